"""Power-analyser logs of SPEC's PTDaemon, which MLPerf results contain as `spl.txt`."""

import calendar
from collections.abc import Iterator
from datetime import UTC, datetime

from nearpeak.core.runs.telemetry import Channel, Span, Telemetry
from nearpeak.errors import SpecError
from nearpeak.exchange import log_columns

_STAMP = "%m-%d-%Y %H:%M:%S.%f"
_DOUBT_NS = 500_000
"""Half a millisecond, the step of its times."""
_QUANTITIES = {"Watts": ("power", "W", 1e-3), "Volts": ("voltage", "V", 1e-2), "Amps": ("current", "A", 1e-5)}
_MEANING = "mean over the analyser's own interval, of all channels together unless one is named"


class Spl:
    """Lines of `Time,<month-day-year time>,Watts,x,Volts,x,Amps,x,PF,x,Mark,<name>`, then the same per channel."""

    def recognises(self, head: str) -> bool:
        """Return whether the first line has this form."""
        return head.startswith("Time,") and ",Watts," in head.partition("\n")[0]

    def read(self, text: str, where: str, _interval_s: float | None) -> Telemetry:
        """Return power, voltage and current; marks become phases."""
        lines = [line for line in text.splitlines() if line.strip()]
        parsed = [reading for reading in _parsed(lines, where, whole=text.endswith("\n")) if reading]
        if not parsed:
            raise SpecError(f"{where}: holds no reading")
        names = list(parsed[0][2])
        channels = [_channel(name) for name in names]
        times = [time_ns for time_ns, _, _ in parsed]
        rows = [[values.get(name, float("nan")) for name in names] for _, _, values in parsed]
        spans = list(_spans([(mark, time_ns) for time_ns, mark, _ in parsed]))
        return log_columns.telemetry_of(
            "spl", channels, times, rows, where, doubt_ns=_DOUBT_NS, wall_ns=times[0], spans=spans
        )


def _parsed(lines: list[str], where: str, *, whole: bool) -> Iterator[tuple[int, str, dict[str, float]] | None]:
    for index, line in enumerate(lines):
        try:
            yield _line(line, f"{where}:{index + 1}")
        except SpecError:
            if index + 1 < len(lines) or whole:  # a last line without an end was cut off
                raise


def _line(line: str, where: str) -> tuple[int, str, dict[str, float]]:
    """Return time, mark and values of a line."""
    cells = [cell.strip() for cell in line.split(",")]
    if cells[0] != "Time" or len(cells) < 4:
        raise SpecError(f"{where}: {line[:60]!r} is no reading; wanted Time,<time>,Watts,<number>,…")
    try:
        stamp = datetime.strptime(cells[1], _STAMP).replace(tzinfo=UTC)
    except ValueError:
        raise SpecError(f"{where}: the time is {cells[1]!r}; wanted month-day-year hour:minute:second.part") from None
    values: dict[str, float] = {}
    mark, place, channel = "", 2, ""
    while place < len(cells):
        key, value = cells[place], cells[place + 1] if place + 1 < len(cells) else ""
        if key.startswith("Ch") and key[2:].isdigit():
            channel, place = f"{key.lower()}.", place + 1
            continue
        if key == "Mark":
            mark = value
        elif key in _QUANTITIES:
            values[f"{channel}{_QUANTITIES[key][0]}"] = log_columns.number(value, where, key)
        place += 2
    if "power" not in values:
        raise SpecError(f"{where}: states no Watts")
    return (calendar.timegm(stamp.timetuple()) * 10**6 + stamp.microsecond) * 1000, mark, values


def _channel(name: str) -> Channel:
    quantity = name.rpartition(".")[2]
    _, unit, step = next(quantity_row for quantity_row in _QUANTITIES.values() if quantity_row[0] == quantity)
    domain = (name.rpartition(".")[0] or "wall") if unit == "W" else ""
    return Channel(name=name, unit=unit, kind="mean", meaning=_MEANING, resolution=step, domain=domain)


def _spans(marks: list[tuple[str, int]]) -> Iterator[Span]:
    """Yield each stretch of lines with the same mark."""
    begin = 0
    for index, (mark, _) in enumerate(marks):
        if index + 1 == len(marks) or marks[index + 1][0] != mark:
            if mark:
                yield mark, marks[begin][1], marks[index][1]
            begin = index + 1


LOG = Spl()
