"""Output of NVIDIA's tegrastats: power rails, clocks, loads and temperatures, in any order a board prints them."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from nearpeak.core.runs.telemetry import Channel, Telemetry
from nearpeak.errors import SpecError
from nearpeak.exchange import log_columns

_STAMP = re.compile(r"^(\d\d-\d\d-\d{4} \d\d:\d\d:\d\d) ")
_RAIL = re.compile(r"(?<!\S)(\w+) (\d+)(?:mW)?/(\d+)(?:mW)?(?!\S)")
_TEMPERATURE = re.compile(r"(?<!\S)(\w+)@(-?\d+(?:\.\d+)?)C(?!\S)")
_LOAD = re.compile(r"(?<!\S)(\w+_FREQ) (\d+)%(?:@\[?(\d+))?")
_MEMORY = re.compile(r"(?<!\S)(RAM|SWAP) (\d+)/(\d+)MB")
_CORES = re.compile(r"(?<!\S)CPU \[([^\]]*)\]")
_CORE = re.compile(r"(\d+)%(?:@(\d+))?")
_DOUBT_NS = 500_000_000
"""Half a second: the step of its times."""
_UNITS = {
    "power": ("W", "instantaneous", 1e-3), "temperature": ("celsius", "instantaneous", 1e-3),
    "load": ("ratio", "mean", 0.01), "clock": ("Hz", "instantaneous", 1e6), "used": ("B", "instantaneous", 2.0**20),
}  # fmt: skip


class Tegrastats:
    """One line per reading; the second figure of a rail is its mean since the program began, and is not used."""

    def recognises(self, head: str) -> bool:
        """Return whether the first line has the memory field of tegrastats."""
        first = head.partition("\n")[0]
        return bool(_MEMORY.search(first)) and ("CPU [" in first or "_FREQ" in first)

    def read(self, text: str, where: str, interval_s: float | None) -> Telemetry:
        """Return the quantities that the first line has; unknown ones are ignored."""
        lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
        if not text.endswith("\n"):
            lines = lines[:-1]  # cut off
        readings = [quantities_of(line) for _, line in lines]
        for (line, words), reading in zip(lines, readings, strict=True):
            if not reading:
                raise SpecError(f"{where}:{line}: {words[:60]!r} is no line of tegrastats")
        if not readings:
            raise SpecError(f"{where}: holds no reading")
        names = list(readings[0])
        rows = [[reading.get(name, float("nan")) for name in names] for reading in readings]
        times_ns, doubt_ns, wall_ns = _times_ns([line for _, line in lines], where, interval_s)
        return log_columns.telemetry_of(
            "tegrastats", channels_of(names, "as the program prints it"), times_ns, rows, where, doubt_ns=doubt_ns,
            wall_ns=wall_ns,
        )  # fmt: skip


def quantities_of(line: str) -> dict[str, float]:
    """Return every quantity of a line that is known, in base units.

    >>> quantities_of("RAM 2/4MB CPU [10%@700,off] GR3D_FREQ 50%@[600] cpu@41.5C VDD_IN 5971mW/5000mW")["VDD_IN.power"]
    5.971
    """
    line = _STAMP.sub("", line)
    quantities = {f"{name}.used": float(used) * 2**20 for name, used, _ in _MEMORY.findall(line)}
    cores = [core for text in _CORES.findall(line) for core in _CORE.findall(text)]
    if cores:
        quantities["CPU.load"] = sum(float(load) for load, _ in cores) / len(cores) / 100
        clocks = [float(clock) for _, clock in cores if clock]
        quantities |= {"CPU.clock": max(clocks) * 1e6} if clocks else {}
    for name, load, clock in _LOAD.findall(line):
        quantities[f"{name.removesuffix('_FREQ')}.load"] = float(load) / 100
        quantities |= {f"{name.removesuffix('_FREQ')}.clock": float(clock) * 1e6} if clock else {}
    quantities |= {f"{name}.temperature": float(value) for name, value in _TEMPERATURE.findall(line)}
    quantities |= {
        f"{name}.power": float(now) * 1e-3 for name, now, _ in _RAIL.findall(line) if name not in ("RAM", "SWAP")
    }
    return quantities


def channels_of(names: Sequence[str] | Mapping[str, float], meaning: str) -> tuple[Channel, ...]:
    """Return the channels of quantities by their names."""
    channels = []
    for name in names:
        device, _, quantity = name.rpartition(".")
        unit, kind, step = _UNITS[quantity]
        domain = device if unit == "W" else ""
        channels.append(Channel(name=name, unit=unit, kind=kind, meaning=meaning, resolution=step, domain=domain))
    return tuple(channels)


def _times_ns(lines: list[str], where: str, interval_s: float | None) -> tuple[list[int], int, int]:
    """Return the time of each line, its uncertainty, and the wall-clock time of the first line.

    Timestamps have a resolution of one second, so lines are spread evenly between the first and the last. The interval
    is used for lines without timestamps, or with all the same one.

    Raises:
        SpecError: no interval is given where one is needed.
    """
    stamps = [_STAMP.match(line) for line in (lines[0], lines[-1])]
    ends = [_seconds(stamp[1], where) for stamp in stamps if stamp is not None]
    if len(ends) < len(stamps):
        return log_columns.interval_times_ns(len(lines), interval_s, where), 0, 0
    first_ns, span_ns = round(ends[0] * 1e9), (ends[1] - ends[0]) * 1e9
    if span_ns < 0:
        raise SpecError(f"{where}: its last line states an earlier time than its first")
    if len(lines) > 1 and not span_ns:
        if interval_s is None:
            raise SpecError(f"{where}: its first and last line state the same second; give --interval")
        span_ns = (len(lines) - 1) * interval_s * 1e9
    step_ns = span_ns / max(1, len(lines) - 1)
    return [first_ns + round(index * step_ns) for index in range(len(lines))], _DOUBT_NS, first_ns


def _seconds(stamp: str, where: str) -> float:
    try:
        return datetime.strptime(stamp, "%m-%d-%Y %H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise SpecError(f"{where}: {stamp!r} is no time; wanted month-day-year hour:minute:second") from None


LOG = Tegrastats()
