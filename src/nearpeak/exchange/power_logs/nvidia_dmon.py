"""Output of `nvidia-smi dmon`, with or without `-o DT`: whitespace columns under a header of names and one of units."""

import re
from datetime import UTC, datetime

from nearpeak.core.runs.telemetry import Telemetry
from nearpeak.errors import SpecError
from nearpeak.exchange import log_columns

_NAMES = {
    "pwr": "power", "gtemp": "temperature", "mtemp": "memory_temperature", "sm": "load", "mem": "memory_load",
    "mclk": "memory_clock", "pclk": "clock", "fb": "memory_used", "enc": "encoder_load", "dec": "decoder_load",
}  # fmt: skip
"""Quantity by the tool's column. Source: nvidia-smi's manual page, dmon."""
_DOUBT_NS = 500_000_000
"""Half a second: the step of its times."""
_HEADER = re.compile(r"^#.*\bgpu\b.*\b(pwr|sm|mclk|pclk|fb)\b")


class NvidiaDmon:
    """Header lines begin with # and come again every few lines; a cell of - is unknown."""

    def recognises(self, head: str) -> bool:
        r"""Return whether the first line names the columns of dmon.

        >>> LOG.recognises("# gpu    pwr  gtemp\n# Idx      W      C\n"), LOG.recognises("#Entity   POWER\n")
        (True, False)
        """
        return _HEADER.match(head) is not None

    def read(self, text: str, where: str, interval_s: float | None) -> Telemetry:
        """Return all quantities with a known unit of all GPUs."""
        lines = [(f"{where}:{number}", line.split()) for number, line in enumerate(text.splitlines(), 1)]
        header, units = (_words(lines[place][1]) if place < len(lines) else [] for place in (0, 1))
        if len(units) != len(header):
            raise SpecError(f"{where}:2: {len(units)} units for {len(header)} columns")
        rows = [(place, cells) for place, cells in lines if cells and not cells[0].startswith("#")]
        if rows and len(rows[-1][1]) < len(header):
            rows.pop()  # cut off
        for place, cells in rows:
            if len(cells) != len(header):
                raise SpecError(f"{place}: {len(cells)} cells, the header has {len(header)}")
        quantities = {
            name: (_NAMES.get(name, name), *log_columns.ENTRY_UNITS[unit])
            for name, unit in zip(header, units, strict=True)
            if unit in log_columns.ENTRY_UNITS and name != "gpu"
        }
        known = {*quantities, "gpu", "Date", "Time"}
        rest = [name for name in header if name not in known]
        cells_of = [(place, dict(zip(header, cells, strict=True))) for place, cells in rows]
        entries = [(place, f"gpu{cells['gpu']}", cells) for place, cells in cells_of]
        rounds = log_columns.rounds_of([device for _, device, _ in entries])
        begins = [rounds.index(number) for number in dict.fromkeys(rounds)]
        times = [_time_ns(*cells_of[begin]) for begin in begins] if "Time" in header else []
        return log_columns.device_telemetry(
            "nvidia_dmon", entries, quantities,
            lambda count: times or log_columns.interval_times_ns(count, interval_s, where), where,
            meaning="as nvidia-smi dmon prints it", doubt_ns=_DOUBT_NS if times else 0,
            steps={name: factor for name, (_, _, factor) in quantities.items()},
            wall_ns=times[0] if times and "Date" in header else 0,
            note=f"columns without a known unit: {', '.join(rest)}" if rest else "",
        )  # fmt: skip


def _words(cells: list[str]) -> list[str]:
    """Return the words of a header line, of which the first has the # before it or in front of it."""
    return [word for cell in cells if (word := cell.removeprefix("#"))]


def _time_ns(place: str, cells: dict[str, str]) -> int:
    stamp = f"{cells.get('Date', '19700101')} {cells['Time']}"
    try:
        return round(datetime.strptime(stamp, "%Y%m%d %H:%M:%S").replace(tzinfo=UTC).timestamp()) * 10**9
    except ValueError:
        raise SpecError(f"{place}: {stamp!r} is no time; wanted yearmonthday hour:minute:second") from None


LOG = NvidiaDmon()
