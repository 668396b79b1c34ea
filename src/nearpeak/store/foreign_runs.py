"""Helpers shared by importers: detection by byte marks, construction of runs, timestamps and units of time."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from nearpeak.core.history.stored_run import ROW, Device, Pairs, Revision, RunRecord, SampleSet
from nearpeak.errors import SpecError
from nearpeak.store.importer import FileContext, Importer
from nearpeak.store.json_tree import MOST_LOST, Tree, parsed

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Seconds per unit, as the files spell it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRun:
    """One run of an imported file; fields that the format lacks stay empty and come from the user."""

    samples: tuple[SampleSet, ...]
    """What was measured."""
    device: Device | None = None
    """Device; none where the file states none."""
    revision: Revision | None = None
    """Commit."""
    branch: str = ""
    """Branch."""
    stack: Pairs = ()
    """Software that took part."""
    started_ns: int = 0
    """Start time; 0 where the file states none."""
    lost: tuple[str, ...] = ()
    """Fields that the store has no place for."""
    selector: str = ""
    """Part of the file that the run is."""


class Rows:
    """Rows of a file that are read one by one: a faulty one is left out and named, the others are kept."""

    def __init__(self, tree: Tree) -> None:
        """Begin without faults.

        Args:
            tree: whole document, whose name faults begin with.
        """
        self._prefix, self._faults = f"{tree.where}: ", list[str]()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Note the fault of a row instead of refusing the file.

        >>> rows = Rows(Tree([1, -2], "a.json"))
        >>> for row in Tree([1, -2], "a.json").each():
        ...     with rows.guarded():
        ...         print(row.positive())
        1.0
        >>> rows.lost(["a sample"])
        ('row [1]: -2.0 where a number above 0 belongs',)
        """
        try:
            yield
        except SpecError as error:
            self._faults.append(str(error))

    def lost(self, samples: Sequence[object]) -> tuple[str, ...]:
        """Return the faults as a run keeps them.

        Raises:
            SpecError: no row was read, so that the file is refused for its first fault.
        """
        if not samples and self._faults:
            raise SpecError(self._faults[0])
        more = len(self._faults) - MOST_LOST
        lines = [fault.removeprefix(self._prefix) for fault in self._faults[:MOST_LOST]]
        return tuple(f"{ROW}{line}" for line in [*lines, *([f"{more} more"] if more > 0 else [])])


Marks = tuple[str, ...]
Read = Callable[[Tree, Path], Sequence[ForeignRun]]


def foreign(
    name: str, title: str, version: int, read: Read, *, marks: Marks, never: Marks = (),
    begin: re.Pattern[bytes] | None = None, tree_of: Callable[[bytes, str], Tree] = parsed,
) -> Importer:  # fmt: skip
    """Return the importer of a format.

    Args:
        read: returns the runs of a document; the second argument is the path of its file.
        marks: texts that every file of this format contains.
        never: texts that no file of this format contains.
        begin: beginning of every file of this format, where names are the user's own.
        tree_of: bytes to a document, where they are not JSON.
    """

    def recognises(data: bytes) -> bool:
        holds = all(any(part.encode() in data for part in mark.split("|")) for mark in marks)
        begins = begin is None or begin.match(data) is not None
        return begins and holds and not any(part.encode() in data for part in never)

    def runs(data: bytes, context: FileContext) -> tuple[RunRecord, ...]:
        read_runs = read(tree_of(data, context.name), (context.folder or Path()) / context.name)
        if not read_runs or not all(run.samples for run in read_runs):
            raise SpecError(f"{context.name}: holds no measurements")
        return tuple(_record(run, context, name, version) for run in read_runs)

    return Importer(name=name, title=title, version=version, recognises=recognises, read=runs, marks=marks)


def _record(foreign_run: ForeignRun, context: FileContext, name: str, version: int) -> RunRecord:
    """Return the run as it goes into a store; what the file says wins."""
    device = foreign_run.device or context.device
    if device is None:
        raise SpecError(f"{context.name}: does not say on which device it was measured; name it by --device")
    began_ns = foreign_run.started_ns or context.written_ns if context.started_ns is None else context.started_ns
    return RunRecord(
        device=device, samples=foreign_run.samples, revision=_revision(foreign_run.revision, context),
        source=context.source(name, version, selector=foreign_run.selector, lost=foreign_run.lost),
        branch=foreign_run.branch or context.branch,
        stack=tuple(sorted({**dict(context.stack), **dict(foreign_run.stack)}.items())),
        track=context.track, trigger=context.trigger,
        started_ns=began_ns,
    )  # fmt: skip


def _revision(revision: Revision | None, context: FileContext) -> Revision | None:
    """Return the commit of the file with its position as the repository has it, or else that of the user.

    A commit that the user named must agree with the file's; the newest of a repository is no contradiction to it.
    """
    if revision is None or context.revision is None:
        return revision or context.revision
    if context.commit_of is not None:
        return context.commit_of(revision.sha)
    if not context.revision.sha.startswith(revision.sha):
        raise SpecError(
            f"{context.name}: was measured at {revision.sha[:12]}, --commit names {context.revision.sha[:12]}; give one"
        )
    return context.revision


def epoch_ns(value: Tree) -> int:
    """Return an ISO 8601 time as nanoseconds since 1970 UTC; without a zone it is taken as UTC.

    >>> epoch_ns(Tree("1970-01-01T00:00:01+00:00", "x"))
    1000000000
    """
    try:
        moment = datetime.fromisoformat(value.text())
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise SpecError(f"{value.where}: {str(value.raw)[:40]!r} is no ISO 8601 time") from None
    return max(0, round(seconds * 1e6) * 1000)


def seconds_per(unit: Tree) -> float:
    """Return the seconds of one `unit`."""
    if unit.text() not in SECONDS:
        raise SpecError(f"{unit.where}: {unit.text()[:40]!r} is no unit of time; there are {', '.join(SECONDS)}")
    return SECONDS[unit.text()]
