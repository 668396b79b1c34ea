"""Parsing shared by power-log readers: checked numbers, CSV rows, and conversion of columns to telemetry."""

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from nearpeak.core.runs.telemetry import Channel, Span, Stream, Telemetry
from nearpeak.errors import SpecError


def number(text: str | None, where: str, what: str) -> float:
    """Return the finite number that `text` states.

    Raises:
        SpecError: it states none.
    """
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SpecError(f"{where}: {what} is {text!r}; it must be a number")
    return value


def rows_of(text: str, where: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each row of a CSV file by column, with its position; a truncated last row is left out.

    Raises:
        SpecError: a row before the last has not as many cells as the header.
    """
    rows = list(csv.reader(io.StringIO(text)))
    header = [cell.strip() for cell in rows[0]]
    last = len(rows)
    for line, row in enumerate(rows[1:], 2):
        if not row or (line == last and len(row) < len(header)):
            continue
        if len(row) != len(header):
            raise SpecError(f"{where}:{line}: {len(row)} cells, the header has {len(header)}")
        yield f"{where}:{line}", dict(zip(header, (cell.strip() for cell in row), strict=True))


def telemetry_of(
    source: str, channels: Sequence[Channel], times_ns: Sequence[int], rows: Sequence[Sequence[float]], where: str,
    *, doubt_ns: int = 0, wall_ns: int = 0, spans: Sequence[Span] = (), note: str = "",
) -> Telemetry:  # fmt: skip
    """Return timed readings as telemetry; channels that never change are named in its note.

    Args:
        doubt_ns: uncertainty of each time.

    Raises:
        SpecError: there are no readings.
    """
    if not rows:
        raise SpecError(f"{where}: holds no reading")
    columns = tuple(zip(*rows, strict=True))
    flat = [c.name for c, values in zip(channels, columns, strict=True) if len(rows) > 2 and len(set(values)) == 1]
    notes = [note] if note else []
    notes += [f"{name} never changes: was its sensor read?" for name in flat]
    stream = Stream(
        source=source, channels=tuple(channels), before_ns=tuple(t - doubt_ns for t in times_ns),
        after_ns=tuple(t + doubt_ns for t in times_ns), values=columns,
    )  # fmt: skip
    return Telemetry(
        begin_ns=min(times_ns), end_ns=max(times_ns), wall_ns=wall_ns, streams=(stream,), spans=tuple(spans),
        tick_count=len(rows), note="; ".join(notes),
    )  # fmt: skip


Window = tuple[str, float, float, Mapping[str, float]]
"""Name, start and length in seconds, joules by domain."""


def windows_telemetry(source: str, windows: Iterable[Window], where: str, meaning: str) -> Telemetry:
    """Return measured windows as counters that restart at 0 in each window; the time between windows is unknown.

    Windows that repeat a name, as in a loop, are numbered: `w (2)`.

    Raises:
        SpecError: there are none.
    """
    times: list[int] = []
    rows: list[list[float]] = []
    spans: list[Span] = []
    names: list[str] = []
    seen: Counter[str] = Counter()
    for name, start_s, length_s, energies in windows:
        begin, end = round(start_s * 1e9), round((start_s + length_s) * 1e9)
        names = list(energies)
        times += [begin, end]
        rows += [[0.0] * len(names), list(energies.values())]
        seen[name] += 1
        spans.append((name if seen[name] == 1 else f"{name} ({seen[name]})", begin, end))
    channels = [
        Channel(name=f"{name}.energy", unit="J", kind="counter", domain=name, meaning=meaning) for name in names
    ]
    return telemetry_of(source, channels, times, rows, where, spans=spans)


def columns_recognised(*needed: str) -> Callable[[str], bool]:
    """Return the test whether the first line of a CSV file has all the needed columns."""

    def recognises(head: str) -> bool:
        cells = {cell.strip() for cell in head.partition("\n")[0].split(",")}
        return set(needed) <= cells

    return recognises
