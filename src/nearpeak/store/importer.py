"""The interface of a result-file importer: format detection, and conversion of file bytes into runs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nearpeak.core.history.stored_run import Device, Pairs, Revision, RunRecord, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContext:
    """Facts of a result file that the user states; facts in the file itself take precedence."""

    name: str
    """Name of the file, for messages."""
    digest: str
    """SHA-256 of its bytes, unpacked."""
    revision: Revision | None = None
    """Commit that was measured, where the file does not name it."""
    commit_of: Callable[[str], Revision] | None = None
    """Look-up of the commit that a file names, where `revision` is only a default; none where the user named it."""
    branch: str = "main"
    """Branch of the history."""
    device: Device | None = None
    """Device that was measured."""
    host: str = ""
    """Name of the machine."""
    stack: Pairs = ()
    """Software components in addition to those that the file names."""
    track: Pairs = ()
    """Components that belong to the identity of the series."""
    trigger: str = "import"
    """Reason for the run."""
    started_ns: int | None = None
    """Start time; none for that in the file, or else the time of its last change."""
    written_ns: int = 0
    """Time of the file's last change."""
    folder: Path | None = None
    """Folder of the file, as some formats keep samples or units in sidecar files; none for bytes without a file."""

    def source(self, importer: str, version: int, *, selector: str = "", lost: tuple[str, ...] = ()) -> Source:
        """Return the source record of a run of this file.

        Args:
            selector: part of the file that the run is.
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
    """Tool and option that write such files."""
    version: int
    """Version, raised whenever the same file is read differently."""
    recognises: Callable[[bytes], bool]
    """Whether bytes are of this format; it looks at little, and never raises."""
    read: Callable[[bytes, FileContext], tuple[RunRecord, ...]]
    """The runs of a file; a SpecError names file, place and field where one is missing or wrong."""
    marks: tuple[str, ...] = ()
    """Texts that every file of this format contains, alternatives between bars; a missing one is named in the error."""
