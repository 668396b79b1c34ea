"""Parsing shared by power-log readers: checked numbers, CSV rows, and conversion of columns to telemetry."""

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from nearpeak.core.runs.telemetry import Channel, Span, Stream, Telemetry
from nearpeak.errors import SpecError
from nearpeak.units import one_or_several

_LEAST_W, _MOST_W = -1.0, 1e6
"""Power that a reading may state: analysers drift a little below 0."""


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
    """Yield each row of a CSV file by column, with its position.

    A header that comes again, as in logs that were appended to, and a truncated last row are left out.

    Raises:
        SpecError: a row before the last has not as many cells as the header.
    """
    try:
        rows = list(csv.reader(io.StringIO(text)))
    except csv.Error as error:
        raise SpecError(f"{where}: is no CSV: {error}") from None
    header = [cell.strip() for cell in rows[0]]
    last = len(rows)
    for line, row in enumerate(rows[1:], 2):
        if not row or (line == last and len(row) < len(header)):
            continue
        if len(row) != len(header):
            raise SpecError(f"{where}:{line}: {len(row)} cells, the header has {len(header)}")
        cells = [cell.strip() for cell in row]
        if cells != header:
            yield f"{where}:{line}", dict(zip(header, cells, strict=True))


def telemetry_of(
    source: str, channels: Sequence[Channel], times_ns: Sequence[int], rows: Sequence[Sequence[float]], where: str,
    *, doubt_ns: int = 0, wall_ns: int = 0, spans: Sequence[Span] = (), note: str = "",
) -> Telemetry:  # fmt: skip
    """Return timed readings as telemetry; channels that never change are named in its note.

    A power below 0 or above 1 MW is no reading of a device: it counts as failed, and the note says how many there are.

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
    columns = tuple(_possible(c, values, notes) for c, values in zip(channels, columns, strict=True))
    notes += [f"{name} never changes: was its sensor read?" for name in flat]
    stream = Stream(
        source=source, channels=tuple(channels), before_ns=tuple(t - doubt_ns for t in times_ns),
        after_ns=tuple(t + doubt_ns for t in times_ns), values=columns,
    )  # fmt: skip
    return Telemetry(
        begin_ns=min(times_ns), end_ns=max(times_ns), wall_ns=wall_ns, streams=(stream,), spans=tuple(spans),
        tick_count=len(rows), note="; ".join(notes),
    )  # fmt: skip


def _possible(channel: Channel, values: tuple[float, ...], notes: list[str]) -> tuple[float, ...]:
    """Return readings with NaN for powers that cannot be, and note their number."""
    if channel.unit != "W":
        return values
    wrong = [value for value in values if not (math.isnan(value) or _LEAST_W <= value <= _MOST_W)]
    if not wrong:
        return values
    notes.append(
        f"{channel.name}: {one_or_several(len(wrong), 'reading', 'readings')} of {len(values)} left out, as no"
        f" device takes {wrong[0]:g} W"
    )
    return tuple(math.nan if value in wrong else value for value in values)


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


Quantity = tuple[str, str, float]
"""Name, base unit, and factor to it."""
ENTRY_UNITS = {
    "W": ("W", 1.0), "mW": ("W", 1e-3), "C": ("celsius", 1.0), "MHz": ("Hz", 1e6), "Mhz": ("Hz", 1e6),
    "%": ("ratio", 0.01), "MB": ("B", 1e6), "MiB": ("B", 2.0**20), "B": ("B", 1.0), "mJ": ("J", 1e-3), "J": ("J", 1.0),
}  # fmt: skip
"""Base unit and factor by the units that tools of GPU vendors print; MB is taken as it is written."""
UNKNOWN_CELLS = (
    "",
    "-",
    "N/A",
    "[N/A]",
    "[Not Supported]",
    "[Unknown Error]",
    "[GPU requires reset]",
    "None",
    "unknown",
)


UNTIMED = "its lines have no time; give the interval, e.g. --interval 1s"
"""What is wrong with several lines without a time."""


def rounds_of(devices: Sequence[str]) -> list[int]:
    """Return the round of reading that each row belongs to: a new one begins where a device stands again.

    >>> rounds_of(["0", "1", "0", "1", "1"])
    [0, 0, 1, 1, 2]
    """
    rounds, number, seen = [], 0, set[str]()
    for device in devices:
        if device in seen:
            number, seen = number + 1, set()
        seen.add(device)
        rounds.append(number)
    return rounds


def interval_times_ns(count: int, interval_s: float | None, where: str) -> list[int]:
    """Return times of readings that state none, from 0.

    Raises:
        SpecError: there are several, and no interval is given.
    """
    if interval_s is None and count > 1:
        raise SpecError(f"{where}: {UNTIMED}")
    return [round(index * (interval_s or 0.0) * 1e9) for index in range(count)]


def device_telemetry(
    source: str, rows: Sequence[tuple[str, str, Mapping[str, str]]], quantities: Mapping[str, Quantity],
    times_ns: Callable[[int], Sequence[int]], where: str, *, meaning: str, steps: Mapping[str, float] | None = None,
    doubt_ns: int = 0, wall_ns: int = 0, note: str = "",
) -> Telemetry:  # fmt: skip
    """Return rows of several devices as telemetry: a channel for each device and quantity.

    Args:
        rows: place, device and cells by column of each row, in the order of the file.
        quantities: columns that are read, by column.
        times_ns: returns the times of a number of rounds.
        steps: smallest step by column.
    """
    devices = list(dict.fromkeys(device for _, device, _ in rows))
    rounds = rounds_of([device for _, device, _ in rows])
    readings: list[dict[tuple[str, str], float]] = [{} for _ in range(max(rounds, default=-1) + 1)]
    for number_of_round, (place, device, cells) in zip(rounds, rows, strict=True):
        for column, (_, _, factor) in quantities.items():
            text = cells.get(column, "")
            value = math.nan if text in UNKNOWN_CELLS else number(text, place, column) * factor
            readings[number_of_round][device, column] = value
    pairs = [(device, column) for device in devices for column in quantities]
    pairs = [pair for pair in pairs if any(not math.isnan(row.get(pair, math.nan)) for row in readings)]
    if not pairs:
        raise SpecError(f"{where}: holds no reading of a quantity with a known unit")
    channels = []
    for device, column in pairs:
        name, unit, _ = quantities[column]
        channels.append(
            Channel(
                name=f"{device}.{name}", unit=unit, kind="counter" if unit == "J" else "instantaneous", meaning=meaning,
                resolution=(steps or {}).get(column), domain=device if unit in ("W", "J") else "",
            )
        )  # fmt: skip
    values = [[row.get(pair, math.nan) for pair in pairs] for row in readings]
    return telemetry_of(
        source, channels, times_ns(len(readings)), values, where, doubt_ns=doubt_ns, wall_ns=wall_ns, note=note
    )
