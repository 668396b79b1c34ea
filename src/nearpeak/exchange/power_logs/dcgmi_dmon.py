"""Output of NVIDIA's `dcgmi dmon`: entities and fields in columns, without times."""

import re

from nearpeak.core.runs.telemetry import Telemetry
from nearpeak.errors import SpecError
from nearpeak.exchange import log_columns

_NAMES = {
    "POWER": "power", "PWRAVG": "power", "PWRINST": "power_now", "TMPTR": "temperature", "MMTMP": "memory_temperature",
    "SMCLK": "clock", "MMCLK": "memory_clock", "GPUTL": "load", "MCUTL": "memory_load", "TOTEC": "energy",
    "FBUSD": "memory_used",
}  # fmt: skip
_BARE = {
    "GPUTL": "%",
    "MCUTL": "%",
    "TOTEC": "mJ",
    "POWER": "W",
    "TMPTR": "C",
    "MMTMP": "C",
    "SMCLK": "MHz",
    "MMCLK": "MHz",
}
"""Units of fields for which the tool prints none. Source: dcgm_fields.h, fields 100 to 204."""
_RATIOS = ("GRACT", "SMACT", "SMOCC", "TENSO", "DRAMA", "FP64A", "FP32A", "FP16A")
"""Profiling fields, which are parts of 1. Source: dcgm_fields.h, fields 1001 to 1008."""
_ENTITY = re.compile(r"^(GPU(?:-I|-CI)?|NvSwitch|CPU)\s+(\S+)\s+(.*)$")


class DcgmiDmon:
    """Lines of `GPU 0  100.000  40`; the header, which may come again, starts with #Entity, the units with ID."""

    def recognises(self, head: str) -> bool:
        r"""Return whether a file begins with the header of dcgmi.

        >>> LOG.recognises("#Entity   POWER\nID        W\nGPU 0     100.000\n"), LOG.recognises("# gpu pwr\n")
        (True, False)
        """
        return re.match(r"#\s*Entity\b", head) is not None

    def read(self, text: str, where: str, interval_s: float | None) -> Telemetry:
        """Return all fields with a known unit of all entities."""
        lines = text.splitlines()
        header = lines[0].replace("#", " ", 1)
        places = [(match[0], match.start()) for match in re.finditer(r"\S+", header)][1:]
        units = _units(places, lines[1] if len(lines) > 1 else "")
        quantities = {
            name: (_NAMES.get(name, name.lower()), *log_columns.ENTRY_UNITS[unit])
            for name, unit in units.items()
            if unit in log_columns.ENTRY_UNITS
        } | {name: (name.lower(), "ratio", 1.0) for name, _ in places if name in _RATIOS}
        names = [name for name, _ in places]
        rows = []
        for number, line in enumerate(lines, 1):
            if match := _ENTITY.match(line):
                cells = match[3].split()
                if len(cells) < len(names) and number == len(lines):
                    continue  # cut off
                if len(cells) != len(names):
                    raise SpecError(f"{where}:{number}: {len(cells)} cells, the header has {len(names)}")
                rows.append((f"{where}:{number}", match[1].lower() + match[2], dict(zip(names, cells, strict=True))))
            elif line.strip() and not re.match(r"#|ID\b", line.lstrip()):
                raise SpecError(f"{where}:{number}: {line[:60]!r} is no line of dcgmi dmon")
        rest = [name for name in names if name not in quantities]
        return log_columns.device_telemetry(
            "dcgmi_dmon", rows, quantities,
            lambda count: log_columns.interval_times_ns(count, interval_s, where), where,
            meaning="the field as DCGM defines it",
            note=f"columns without a known unit: {', '.join(rest)}" if rest else "",
        )  # fmt: skip


def _units(places: list[tuple[str, int]], line: str) -> dict[str, str]:
    """Return the unit of each column: the word below its name, or the one that is known of the field."""
    words = [(match[0], match.start()) for match in re.finditer(r"\S+", line)][1:] if line.startswith("ID") else []
    ends = [*(start for _, start in places[1:]), len(line) + 1][: len(places)]
    printed = {
        name: next((word for word, at in words if start <= at < end), "")
        for (name, start), end in zip(places, ends, strict=True)
    }
    return {name: unit or _BARE.get(name, "") for name, unit in printed.items()}


LOG = DcgmiDmon()
