"""Registries of named entries: one file each in a folder, loaded on first use, plus other packages' entry points."""

import difflib
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from nearpeak.errors import SpecError, UnknownNameError, shown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

T = TypeVar("T")
SHOWN_KINDS = ("op", "target", "fabric", "runner")
"""Kinds that `nearpeak show` lists."""
_ROOM = 100
"""Characters that a list of names may take within a message."""


class Registry(Generic[T]):
    """The files of one folder by stem, loaded on first use, plus out-of-tree entries by entry point."""

    def __init__(
        self, *, kind: str, files: Iterable[Path], load: Callable[[str], T], group: str,
        synonyms: Callable[[str], Sequence[str]] = lambda _: (),
    ) -> None:  # fmt: skip
        """Keep the files; nothing is read until a name is requested.

        Args:
            files: one file per thing, named by its stem; those that start with an underscore are left out.
            load: turns the stem of a file into the thing.
            group: entry-point group through which other packages add things of this kind.
            synonyms: returns the registered names for a name that other software uses.
        """
        self._synonyms = synonyms
        self.kind, self._load, self._group = kind, load, group
        self._stems = tuple(sorted(path.stem for path in files if not path.stem.startswith("_")))
        self._loaded: dict[str, T] = {}

    @classmethod
    def of_modules(
        cls, attribute: str, *, kind: str, package: str, file: str, group: str, pattern: str = "*.py",
        synonyms: Callable[[str], Sequence[str]] = lambda _: (),
    ) -> "Registry[T]":  # fmt: skip
        """Return the registry of the modules of a package; each ends in a value called `attribute`.

        Args:
            package: `__name__` of the package.
            file: `__file__` of the package.
            pattern: which files below the package's folder are things of this kind; folders called `shared` hold none.

        Raises:
            SpecError: when a module is loaded whose value has another name than its file.
        """
        folder = Path(file).parent
        paths = {path.stem: path for path in folder.glob(pattern) if path.parent.name != "shared"}

        def load(stem: str) -> T:
            place = ".".join(paths[stem].relative_to(folder).with_suffix("").parts)
            thing: T = getattr(importlib.import_module(f"{package}.{place}"), attribute)
            if (name := getattr(thing, "name", stem)) != stem:
                raise SpecError(f"{paths[stem].name}: its {kind} is called {name!r}; file and name must agree")
            return thing

        return cls(kind=kind, files=paths.values(), load=load, group=group, synonyms=synonyms)

    def names(self) -> tuple[str, ...]:
        """Return all names, sorted; a name defined both here and out of tree is refused."""
        foreign = tuple(entry.name for entry in _entry_points(self._group))
        twice = sorted(set(foreign) & set(self._stems))
        if twice:
            raise SpecError(f"{self.kind} {twice[0]!r}: defined twice, once by an entry point; rename that one")
        return tuple(sorted({*self._stems, *foreign}))

    def __getitem__(self, name: str) -> T:
        """Return the thing called `name`; an unknown name lists the closest ones."""
        if not isinstance(name, str):
            raise SpecError(f"{self.kind} {shown(name)}: is no name; give text, e.g. {next(iter(self))!r}")
        if name not in self._loaded:
            self._loaded[name] = self._find(name)
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        """Return whether `name` is registered."""
        return name in self.names()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, sorted."""
        return iter(self.names())

    def _find(self, name: str) -> T:
        if name in self._stems:
            return self._load(name)
        for entry in _entry_points(self._group):
            if entry.name == name:
                thing: T = entry.load()
                return thing
        raise unknown_name(self.kind, name, self.names(), self._synonyms(name))


def unknown_name(kind: str, name: str, known: tuple[str, ...], meant: Sequence[str] = ()) -> UnknownNameError:
    """Return the error for an unregistered `name`, with its synonyms (`meant`) or the closest `known` names.

    >>> print(unknown_name("target", "h100sxm", ("h100_sxm", "t4")))
    target 'h100sxm': not known; did you mean h100_sxm? ('nearpeak show targets' lists all 2)
    >>> print(unknown_name("target", "zz", ("h100_sxm", "t4")))
    target 'zz': not known ('nearpeak show targets' lists all 2)
    """
    longer = [candidate for candidate in known if name and candidate.startswith(name.lower())]
    close = (
        list(meant)[:4]
        or list(dict.fromkeys((*longer, *difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.4))))[:4]
    )
    hint = f"; did you mean {', '.join(close)}?" if close else ""
    if kind in SHOWN_KINDS:
        listed = f" ('nearpeak show {kind}s' lists all {len(known)})"
    else:
        listed = f"{'' if hint else ';'} known: {_some(known)}"
    return UnknownNameError(f"{kind} {name!r}: not known{hint}{listed}")


def entry_of(kind: str, table: Mapping[str, T], name: str) -> T:
    """Return the row of a table by name; for an unknown name, the error lists the closest ones.

    >>> entry_of("cell", {"lstm": 4, "gru": 3}, "gru")
    3
    """
    if name not in table:
        raise unknown_name(kind, name, tuple(table))
    return table[name]


def _some(known: tuple[str, ...]) -> str:
    """Return as many of the names as fit into a line.

    >>> _some(("adam", "sgd")), _some(("abcdefgh",) * 50)[-21:], _some(())
    ('adam, sgd', ' abcdefgh and 40 more', 'none')
    """
    shown = list(known)
    while len(shown) > 1 and len(", ".join(shown)) > _ROOM:
        shown.pop()
    left = len(known) - len(shown)
    return (", ".join(shown) or "none") + (f" and {left} more" if left else "")


@cache
def _entry_points(group: str) -> "EntryPoints":
    """Return the entry points of `group`, as they were at the first call.

    Reading them takes longer to import than all of the command line, and looks at every installed package.
    """
    from importlib.metadata import entry_points

    return entry_points(group=group)
