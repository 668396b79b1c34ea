"""CSV logs of `nvidia-smi --query-gpu=timestamp,power.draw,… --format=csv -l …`."""

import re
from datetime import UTC, datetime
from itertools import groupby

from nearpeak.core.runs.telemetry import Channel, Telemetry
from nearpeak.errors import SpecError
from nearpeak.exchange import log_columns

_UNITS = {"W": ("W", 1.0), "mW": ("W", 1e-3), "MHz": ("Hz", 1e6), "%": ("ratio", 0.01), "MiB": ("B", 2.0**20)}
_KEYS = ("index", "uuid", "pci.bus_id")


class NvidiaSmi:
    """A CSV file whose header states units in brackets; temperatures have none."""

    def recognises(self, head: str) -> bool:
        """Return whether it has timestamps and a quantity with a unit."""
        first = head.partition("\n")[0]
        return "timestamp" in [cell.strip() for cell in first.split(",")] and (" [" in first or "temperature." in first)

    def read(self, text: str, where: str, _interval_s: float | None) -> Telemetry:
        """Return all quantities of all GPUs; rows with the same timestamp are one reading."""
        rows = list(log_columns.rows_of(text, where))
        if not rows:
            raise SpecError(f"{where}: holds no reading")
        key = next((item for item in _KEYS if item in rows[0][1]), "")
        units = {name: re.search(r"\[([^\]]+)\]$", name) for name in rows[0][1]}
        names = {name: _UNITS[unit[1]] for name, unit in units.items() if unit and unit[1] in _UNITS}
        names |= {n: ("celsius", 1.0) for n, unit in units.items() if not unit and n.startswith("temperature.")}
        gpus = list(dict.fromkeys(row.get(key, "0") for _, row in rows))
        columns = [(gpu, name) for gpu in gpus for name in names]
        times, values = [], []
        for stamp, group in groupby(rows, key=lambda item: item[1]["timestamp"]):
            same = list(group)
            readings = {
                (row.get(key, "0"), n): _value(row[n], place, n, names[n][1]) for place, row in same for n in names
            }
            times.append(_time_ns(stamp, same[0][0]))
            values.append([readings.get(column, float("nan")) for column in columns])
        channels = [_channel(gpu, name, *names[name]) for gpu, name in columns]
        return log_columns.telemetry_of(
            "nvidia_smi", channels, times, values, where, doubt_ns=500_000, wall_ns=times[0]
        )


def _value(text: str, where: str, name: str, factor: float) -> float:
    if text in log_columns.UNKNOWN_CELLS:
        return float("nan")
    number, _, unit = text.partition(" ")
    if unit and unit != _unit_of(name):
        raise SpecError(f"{where}: {name} is {text!r}; its column is in {_unit_of(name) or 'no stated unit'}")
    return log_columns.number(number, where, name) * factor


def _unit_of(name: str) -> str:
    """Return the unit that a column states in brackets; empty where it states none."""
    return name.partition("[")[2].removesuffix("]")


def _time_ns(stamp: str, where: str) -> int:
    try:
        time = datetime.strptime(stamp, "%Y/%m/%d %H:%M:%S.%f").replace(tzinfo=UTC)
    except ValueError:
        raise SpecError(f"{where}: timestamp is {stamp!r}; wanted year/month/day hour:minute:second.part") from None
    return (int(time.replace(microsecond=0).timestamp()) * 10**6 + time.microsecond) * 1000


def _channel(gpu: str, name: str, unit: str, factor: float) -> Channel:
    quantity = name.partition(" [")[0]
    drawn = quantity.startswith("power.draw")
    mean = quantity == "power.draw.average"
    return Channel(
        name=f"gpu{gpu}.{quantity}", unit=unit, kind="mean" if mean else "instantaneous",
        meaning=f"{quantity} as nvidia-smi defines it", resolution=factor * (0.01 if unit == "W" else 1.0),
        window_s=1.0 if mean else None, domain=f"gpu{gpu}" if drawn else "",
    )  # fmt: skip


LOG = NvidiaSmi()
