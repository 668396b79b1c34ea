"""CSV tables with a time column first and columns whose names end in a unit (`power_in_mw`, `temp_c`)."""

from nearpeak.core.runs.telemetry import Channel, Telemetry
from nearpeak.errors import SpecError
from nearpeak.exchange import log_columns

_TIMES = {"t_ns": 1, "t_us": 10**3, "t_ms": 10**6, "t_s": 10**9, "time_ns": 1, "time_us": 10**3, "time_ms": 10**6,
          "time_s": 10**9}  # fmt: skip
_UNITS = {
    "_uw": ("W", 1e-6), "_mw": ("W", 1e-3), "_w": ("W", 1.0), "_kw": ("W", 1e3), "_mhz": ("Hz", 1e6),
    "_hz": ("Hz", 1.0), "_pct": ("ratio", 0.01), "_c": ("celsius", 1.0), "_celsius": ("celsius", 1.0),
    "_uj": ("J", 1e-6), "_mj": ("J", 1e-3), "_j": ("J", 1.0), "_bytes": ("B", 1.0),
}  # fmt: skip
"""Unit and factor to the base unit by suffix of a column name; the magnitude of values is never considered."""


class Table:
    """A CSV file; columns without a known unit are left out and named in a note, energies are counters."""

    def recognises(self, head: str) -> bool:
        """Return whether the first column is a time."""
        return head.partition("\n")[0].split(",")[0].strip().lower() in _TIMES

    def read(self, text: str, where: str, _interval_s: float | None) -> Telemetry:
        """Return all columns with a known unit; the first column holds the times."""
        rows = list(log_columns.rows_of(text, where))
        if not rows:
            raise SpecError(f"{where}: holds no reading")
        clock, *names = rows[0][1]
        endings = {
            name: max((end for end in _UNITS if name.lower().endswith(end)), key=len, default="") for name in names
        }
        known = {name: _UNITS[end] for name, end in endings.items() if end}
        if not known:
            raise SpecError(f"{where}: no column ends in a unit; there are {', '.join(_UNITS)}")
        values = [[log_columns.number(r[n], place, n) * known[n][1] for n in known] for place, r in rows]
        factor = _TIMES[clock.lower()]
        times = [round(log_columns.number(row[clock], place, clock) * factor) for place, row in rows]
        rest = [name for name in names if name not in known]
        note = f"columns without a known unit: {', '.join(rest)}" if rest else ""
        channels = [
            Channel(
                name=name, unit=unit, kind="counter" if unit == "J" else "instantaneous",
                meaning="as its column states it", resolution=factor if unit != "J" else None,
                domain=name.rpartition("_")[0] if unit in ("W", "J") else "",
            )
            for name, (unit, factor) in known.items()
        ]  # fmt: skip
        return log_columns.telemetry_of("table", channels, times, values, where, note=note)


LOG = Table()
