"""The interface of a result-file importer: format detection, and conversion of file bytes into runs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nearpeak.core.history.stored_run import Device, Pairs, Revision, RunRecord, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContext:
    """What the user says of a file, where the file itself does not say it; what the file says wins."""

    name: str
    """Name of the file, for messages."""
    digest: str
    """SHA-256 of its bytes, unpacked."""
    revision: Revision | None = None
    """Commit that was measured."""
    branch: str = "main"
    """Branch whose history it belongs to."""
    device: Device | None = None
    """Where it ran."""
    host: str = ""
    """Name of the machine."""
    stack: Pairs = ()
    """Components of the software, beside those that the file names."""
    track: Pairs = ()
    """Components that belong to the identity of the series."""
    trigger: str = "import"
    """Why it ran."""
    started_ns: int | None = None
    """When it began; none for what the file says, or else when it was last written."""
    written_ns: int = 0
    """When the file was last written."""
    folder: Path | None = None
    """Where the file lies: some formats keep samples or units in files beside it; none for bytes without a file."""

    def source(self, importer: str, version: int, *, selector: str = "", lost: tuple[str, ...] = ()) -> Source:
        """Return where a run of this file was read from.

        Args:
            selector: which of several runs of the file it is.
            lost: fields that the store has no place for.
        """
        return Source(
            digest=self.digest, importer=importer, version=version, selector=selector, name=self.name, lost=lost
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """A format of result files."""

    name: str
    """The file stem."""
    title: str
    """What writes such files, for people."""
    version: int
    """Raised whenever the same file is read differently."""
    recognises: Callable[[bytes], bool]
    """Whether bytes are of this format; it looks at little, and never raises."""
    read: Callable[[bytes, FileContext], tuple[RunRecord, ...]]
    """The runs of a file; a SpecError names file, place and field where one is missing or wrong."""
    marks: tuple[str, ...] = ()
    """Texts that every file of this format holds, alternatives between bars, by which a file that lacks one is told."""
