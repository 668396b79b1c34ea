"""Helpers shared by importers: file-type detection by byte marks, and construction of a run from imported rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nearpeak.core.history.stored_run import Device, Pairs, Revision, RunRecord, SampleSet
from nearpeak.errors import SpecError
from nearpeak.store.importer import Given, Importer
from nearpeak.store.json_tree import Tree, parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is read of one run; what a format has no place for stays empty and comes from the user."""

    samples: tuple[SampleSet, ...]
    """What was measured."""
    device: Device | None = None
    """Where it ran; none where the file does not say."""
    revision: Revision | None = None
    """Which commit."""
    branch: str = ""
    """Which branch."""
    stack: Pairs = ()
    """Software that took part."""
    started_ns: int = 0
    """When; 0 where the file does not say."""
    lost: tuple[str, ...] = ()
    """Fields that the store has no place for."""
    selector: str = ""
    """Which part of the file it is."""


Marks = tuple[str, ...]
Read = Callable[[Tree, Path], Sequence[Found]]


def foreign(
    name: str, title: str, version: int, read: Read, *, marks: Marks, never: Marks = (),
    tree_of: Callable[[bytes, str], Tree] = parsed,
) -> Importer:  # fmt: skip
    """Return the importer of a format.

    Args:
        read: from the document, and the place of its file, to what stands in it.
        marks: texts of which a file of this format holds every one.
        never: texts of which it holds none.
        tree_of: bytes to a document, where they are not JSON.
    """

    def recognises(data: bytes) -> bool:
        holds = all(any(one.encode() in data for one in mark.split("|")) for mark in marks)
        return holds and not any(one.encode() in data for one in never)

    def runs(data: bytes, given: Given) -> tuple[RunRecord, ...]:
        found = read(tree_of(data, given.name), (given.folder or Path()) / given.name)
        if not found or not all(one.samples for one in found):
            raise SpecError(f"{given.name}: holds no measurements")
        return tuple(_record(one, given, name, version) for one in found)

    return Importer(name=name, title=title, version=version, recognises=recognises, read=runs, marks=marks)


def _record(found: Found, given: Given, name: str, version: int) -> RunRecord:
    """Return the run as it goes into a store; what the file says wins."""
    device = found.device or given.device
    if device is None:
        raise SpecError(f"{given.name}: does not say on which device it was measured; name it by --device")
    return RunRecord(
        device=device, samples=found.samples, revision=_revision(found.revision, given),
        source=given.source(name, version, selector=found.selector, lost=found.lost),
        branch=found.branch or given.branch, stack=tuple(sorted({**dict(given.stack), **dict(found.stack)}.items())),
        track=given.track, trigger=given.trigger,
        started_ns=given.started_ns if given.started_ns is not None else found.started_ns or given.written_ns,
    )  # fmt: skip


def _revision(own: Revision | None, given: Given) -> Revision | None:
    """Return the commit: the user knows where it stands, the file which one it is; the two must agree."""
    if own is None or given.revision is None:
        return own or given.revision
    if not given.revision.sha.startswith(own.sha):
        raise SpecError(
            f"{given.name}: was measured at {own.sha[:12]}, --commit names {given.revision.sha[:12]}; give one"
        )
    return given.revision
