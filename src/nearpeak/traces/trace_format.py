"""Schema of a trace file format: how it is recognised and how a file becomes a trace."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nearpeak.traces.timeline.trace_columns import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """A format of trace files."""

    name: str
    """The file stem."""
    title: str
    """What writes such files, for people."""
    recognises: Callable[[bytes], bool]
    """Whether the first bytes of a file (unpacked, 64 KiB at most) are of this format; it never raises."""
    read: Callable[[Path], Trace]
    """The trace of a file; a SpecError says in one line why nothing could be read."""
