"""Device file → Target: every entry known, with its unit and its source; every peak stated twice and in agreement."""

from collections.abc import Mapping
from typing import Any

from nearpeak.core.target import Link, Memory, Peak, Target
from nearpeak.errors import SpecError
from nearpeak.units import parse, parse_count

AGREEMENT_RATIO = 0.01
"""Largest difference between a peak as printed and multiprocessors × FLOP per clock × clock, over the former."""

_TOP = {
    "title": str, "vendor": str, "kind": str, "architecture": str, "sm_count": int, "sm_source": str,
    "clock": dict, "peak": dict, "dram": dict, "l2": dict, "on_chip": dict, "special": dict, "link": dict,
    "launch": dict, "power": dict, "partition": dict, "measured": bool,
}  # fmt: skip
_REQUIRED = ("title", "vendor", "kind", "architecture", "sm_count", "sm_source", "peak", "dram", "l2")
_TABLES: dict[str, dict[str, str]] = {
    "clock": {"max": "Hz"},
    "dram": {"bandwidth": "B/s", "capacity": "B"},
    "l2": {"bandwidth": "B/s", "capacity": "B"},
    "on_chip": {"register_file": "B", "shared_memory": "B", "tensor_memory": "B"},
    "special": {"sm_clock": "OP"},
    "launch": {"floor": "s"},
    "power": {"limit": "W"},
}
_NESTED: dict[str, dict[str, str]] = {
    "peak": {"rate": "FLOP/s", "sm_clock": "FLOP", "clock": "Hz"},
    "link": {"bandwidth": "B/s"},
}
_PARTITION = {"sm_count": int, "dram_ratio": float, "l2_ratio": float, "clock": str, "power": str, "source": str, "verified": bool}  # fmt: skip
_TAGS = ("source", "verified")


def parse_target(name: str, raw: Mapping[str, Any]) -> Target:
    """Return the target that the device file `raw` states.

    Raises:
        SpecError: an entry is missing, extra, in the wrong unit, without source, or contradicts another.
    """
    _check_entries(name, raw)
    numbers = {table: _quantities(name, table, raw.get(table, {}), units) for table, units in _TABLES.items()}
    peaks = {unit: _peak(name, unit, row, raw["sm_count"]) for unit, row in raw["peak"].items()}
    clock_hz = numbers["clock"].get("max") or max(peak.clock_hz for peak in peaks.values())
    on_chip = numbers["on_chip"]
    return Target(
        name=name,
        title=raw["title"],
        vendor=raw["vendor"],
        kind=raw["kind"],
        architecture=raw["architecture"],
        sm_count=raw["sm_count"],
        clock_hz=clock_hz,
        clock_source=raw.get("clock", {}).get("source", "highest clock of the stated rates; no higher one is documented"),
        peaks=peaks,
        dram=_memory(numbers["dram"], raw["dram"]),
        l2=_memory(numbers["l2"], raw["l2"]),
        on_chip_bytes=int(sum(on_chip.values()) * raw["sm_count"]) if on_chip else None,
        special_per_clock=numbers["special"].get("sm_clock"),
        links={key: _link(name, key, row) for key, row in raw.get("link", {}).items()},
        launch_floor_s=numbers["launch"].get("floor"),
        launch_source=raw.get("launch", {}).get("source", ""),
        power_w=numbers["power"].get("limit"),
        partitions=tuple(raw.get("partition", {})),
        unverified=_unverified(raw),
        measured=raw.get("measured", False),
    )


def _check_entries(name: str, raw: Mapping[str, Any]) -> None:
    for key in _REQUIRED:
        if key not in raw:
            raise SpecError(f"target {name}: entry {key!r} is missing")
    for key, value in raw.items():
        if key not in _TOP:
            raise SpecError(f"target {name}: entry {key!r} is not known; known are {', '.join(_TOP)}")
        if type(value) is not _TOP[key]:
            raise SpecError(f"target {name}: {key} is {value!r}; it must be a {_TOP[key].__name__}")
    if raw["kind"] not in ("gpu", "cpu"):
        raise SpecError(f"target {name}: kind is {raw['kind']!r}; it must be 'gpu' or 'cpu'")
    if raw["sm_count"] < 1:
        raise SpecError(f"target {name}: sm_count is {raw['sm_count']}; it must be at least 1")
    for part, row in raw.get("partition", {}).items():
        for key, value in row.items():
            if key not in _PARTITION or not isinstance(value, _PARTITION[key]):
                raise SpecError(f"target {name}: partition.{part}.{key} = {value!r} is not known or of the wrong type")


def _quantities(name: str, table: str, row: Mapping[str, Any], units: Mapping[str, str]) -> dict[str, float]:
    """Return the numbers of one table; a table with numbers needs a source."""
    for key in row:
        if key not in units and key not in _TAGS:
            raise SpecError(f"target {name}: {table}.{key} is not known; known are {', '.join((*units, *_TAGS))}")
    if row and not row.get("source"):
        raise SpecError(f"target {name}: {table} has no source")
    numbers = {}
    for key, unit in units.items():
        if key in row:
            numbers[key] = _positive(name, f"{table}.{key}", row[key], unit)
    return numbers


def _positive(name: str, key: str, text: str, unit: str) -> float:
    try:
        value = parse_count(text, "B") if unit == "B" else parse(text, unit)
    except SpecError as error:
        raise SpecError(f"target {name}: {key}: {error}") from None
    if value <= 0:
        raise SpecError(f"target {name}: {key} is {text!r}; it must be above 0")
    return value


def _peak(name: str, unit: str, row: Mapping[str, Any], sm_count: int) -> Peak:
    """Return one peak, whose two statements must agree."""
    numbers = _quantities(name, f'peak."{unit}"', row, _NESTED["peak"])
    for key in _NESTED["peak"]:
        if key not in numbers:
            raise SpecError(f'target {name}: peak."{unit}".{key} is missing')
    derived = sm_count * numbers["sm_clock"] * numbers["clock"]
    if abs(derived - numbers["rate"]) > AGREEMENT_RATIO * numbers["rate"]:
        raise SpecError(
            f'target {name}: peak."{unit}": rate is {numbers["rate"]:.4g} FLOP/s, but sm_count × sm_clock × clock '
            f"is {derived:.4g}; they must agree within {AGREEMENT_RATIO:.0%}"
        )
    return Peak(
        flop_per_s=numbers["rate"], flop_per_clock=numbers["sm_clock"], clock_hz=numbers["clock"],
        source=row["source"], verified=row.get("verified", True),
    )  # fmt: skip


def _memory(numbers: Mapping[str, float], row: Mapping[str, Any]) -> Memory:
    capacity = numbers.get("capacity")
    return Memory(
        capacity_bytes=None if capacity is None else int(capacity),
        bandwidth_bytes_per_s=numbers.get("bandwidth"),
        source=row.get("source", ""),
        verified=row.get("verified", True),
    )


def _link(name: str, key: str, row: Mapping[str, Any]) -> Link:
    numbers = _quantities(name, f"link.{key}", row, _NESTED["link"])
    if "bandwidth" not in numbers:
        raise SpecError(f"target {name}: link.{key}.bandwidth is missing")
    return Link(
        bandwidth_bytes_per_s=numbers["bandwidth"], source=row["source"], verified=row.get("verified", True)
    )


def _unverified(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the dotted keys of all tables marked `verified = false`."""
    found = [key for key in raw if isinstance(raw[key], dict) and raw[key].get("verified") is False]
    for key in ("peak", "link", "partition"):
        found += [f"{key}.{name}" for name, row in raw.get(key, {}).items() if row.get("verified") is False]
    return tuple(sorted(found))
