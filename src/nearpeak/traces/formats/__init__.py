"""Registry of trace file formats, one file each, recognised by the first bytes of a file."""

from pathlib import Path

from nearpeak.base.input_files import check_file, reading
from nearpeak.base.registry import Registry
from nearpeak.errors import SpecError
from nearpeak.exchange.file_kinds import described
from nearpeak.traces.reading.byte_stream import head_of
from nearpeak.traces.reading.sqlite_tables import MAGIC, schema_of
from nearpeak.traces.timeline.trace_columns import Trace
from nearpeak.traces.trace_format import TraceFormat

__all__ = ["FORMATS", "TraceFormat", "begins", "format_of", "read_trace"]


FORMATS: Registry[TraceFormat] = Registry.of_modules(
    "FORMAT", kind="trace format", package=__name__, file=__file__, group="nearpeak.trace_formats"
)
"""All formats by name; adding one is adding a file with a `FORMAT`."""


def read_trace(path: Path, form: str | None = None) -> Trace:
    """Return the trace that a profiler's file holds; losses and missing evidence are in its header.

    Args:
        form: name of the format; recognised by the first bytes where it is none.

    Raises:
        SpecError: the file cannot be read, or is of no known format.
        SpecError: nothing can be read of it; the message names file, place and what was expected.
    """
    check_file(path)
    with reading(path, "trace"):
        return (FORMATS[form] if form else format_of(path)).read(path)


def begins(path: Path) -> bytes:
    """Return what a file is recognised by: its first bytes, and of a database its tables, which may stand anywhere.

    Raises:
        SpecError: the file cannot be read.
    """
    head = head_of(path)
    return head + schema_of(path) if head.startswith(MAGIC) else head


def format_of(path: Path) -> TraceFormat:
    """Return the format that recognises a file.

    Raises:
        SpecError: none does, or several do; says which there are.
    """
    head = begins(path)
    if not head:
        raise SpecError(f"{path}: is empty, or nothing of it can be unpacked")
    matches = [FORMATS[entry] for entry in FORMATS if FORMATS[entry].recognises(head)]
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(entry.name for entry in matches) or ", ".join(FORMATS)
    if not matches and (words := described(head, path.name)):
        raise SpecError(f"{path}: {words}")
    raise SpecError(f"{path}: matches {'several formats' if matches else 'no known trace format'}; name one: {names}")
