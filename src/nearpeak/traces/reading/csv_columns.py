"""Lines and rows of profiler CSV files: quoted names, ragged rows, bad encoding, lines before the header."""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

from nearpeak.core.traces.trace import END, Loss
from nearpeak.errors import SpecError
from nearpeak.traces.reading.byte_stream import blocks

_MOST_FIELD = 1 << 24
_LAST = "the last line has no line end, so that it may be cut off"


def lines_of(path: Path, losses: list[Loss]) -> Iterator[str]:
    """Yield the lines of a text file; bytes that are no UTF-8 are shown as such, NUL bytes are left out."""
    rest = b""
    for block in blocks(path, losses):
        *whole, rest = (rest + block).split(b"\n")
        if len(rest) > _MOST_FIELD:
            raise SpecError(f"{path.name}: has a line of more than {_MOST_FIELD >> 20} MiB, the limit of a line")
        yield from (_text(line) + "\n" for line in whole)
    if rest:
        losses.append(Loss(what="unknown", kind=f"{END} the file", record_count=1, example=_LAST))
        yield _text(rest)


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").replace("\x00", "").replace("\r", "").removeprefix("\ufeff")


def rows_of(lines: Iterator[str], is_header: Callable[[str], bool]) -> Iterator[list[str]]:
    """Yield the header, then each row as the file has it."""
    begun = False

    def from_header() -> Iterator[str]:
        nonlocal begun
        for line in lines:
            begun = begun or is_header(line)
            if begun:
                yield line

    csv.field_size_limit(_MOST_FIELD)
    yield from csv.reader(from_header())
