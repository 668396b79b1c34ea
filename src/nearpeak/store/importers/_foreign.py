"""Files of other tools: which importer reads one, and the runs that it holds; one file per format."""

import gzip
import importlib
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from nearpeak.core.history import RunRecord
from nearpeak.errors import SpecError
from nearpeak.registry import Registry
from nearpeak.store.importers._given import Found, Given, record_of
from nearpeak.store.importers._tree import Tree, parsed
from nearpeak.store.importers.mlperf import MARK, events_of

LARGEST_BYTES = 4 << 30
"""Size, unpacked, beyond which a file is taken for something else."""


class Importer(Protocol):
    """What a file of this folder offers."""

    VERSION: int

    def matches(self, tree: Tree) -> bool:
        """Say whether the document is of this format."""

    def read(self, tree: Tree, path: Path) -> Sequence[Found]:
        """Return the runs of the document, which stands in the file `path`."""


def _load(name: str) -> Importer:
    found: Importer = importlib.import_module(f"nearpeak.store.importers.{name}")
    return found


IMPORTERS: Registry[Importer] = Registry(
    kind="importer", folder=Path(__file__).parent, suffix=".py", load=_load, group="nearpeak.importers"
)
"""All importers by name; adding one is adding a file with `VERSION`, `matches(tree)` and `read(tree, path)`."""


NOTHING = Given()
"""Users add nothing to the file."""


def runs_of(path: Path, given: Given = NOTHING, importer: str = "") -> tuple[RunRecord, ...]:
    """Return the runs that a file of another tool holds; nothing of a file that is wrong anywhere.

    Args:
        importer: name of the format; empty to recognise it.

    Raises:
        SpecError: it is of no known format, cut off, or lacks a field; the message names file and field.
    """
    data = _unpacked(path)
    tree = events_of(data, str(path)) if MARK.encode() in data else parsed(data, str(path))
    name = importer or _recognised(tree, path)
    reader = IMPORTERS[name]
    if not reader.matches(tree):
        raise SpecError(f"{path}: is no file of {name}; leave out the format to have it recognised")
    found = reader.read(tree, path)
    if not found or not all(one.samples for one in found):
        raise SpecError(f"{path}: holds no measurements")
    return tuple(record_of(one, given, data, name, reader.VERSION, path.name) for one in found)


def _recognised(tree: Tree, path: Path) -> str:
    fitting = [name for name in IMPORTERS if IMPORTERS[name].matches(tree)]
    if len(fitting) != 1:
        said = "could be of " + " or ".join(fitting) if fitting else "is of no known format"
        raise SpecError(f"{path}: {said}; name one of {', '.join(IMPORTERS)}")
    return fitting[0]


def _unpacked(path: Path) -> bytes:
    """Return the bytes of a file, plain or packed with gzip: the digest of the same results is the same."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if not packed:
        if path.stat().st_size > LARGEST_BYTES:
            raise SpecError(f"{path}: is larger than {LARGEST_BYTES >> 30} GiB; is it a result file?")
        return path.read_bytes()
    try:
        with gzip.open(path) as unpacked:
            data = unpacked.read(LARGEST_BYTES + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise SpecError(f"{path}: its gzip stream is damaged or cut off: {error}") from None
    if len(data) > LARGEST_BYTES:
        raise SpecError(f"{path}: is larger than {LARGEST_BYTES >> 30} GiB unpacked; is it a result file?")
    return data
