"""Reading and checking of device files: known keys, units, sources, and peak rates that agree with the clocks."""

import math
from collections.abc import Mapping
from typing import Any

from nearpeak.core.work.target import Link, Memory, Peak, Target
from nearpeak.errors import SpecError
from nearpeak.targets.device_schema import JOINED, KINDS, NESTED, PARTITION, REQUIRED, TABLES, TAGS, TOP
from nearpeak.units import parse, parse_count

AGREEMENT_RATIO = 0.01
"""Largest difference between a peak as printed and multiprocessors × FLOP per clock × clock, over the former."""

_NO_CLOCK = "highest clock of the stated rates; no higher one is documented"


def parse_target(name: str, raw: Mapping[str, Any], where: str = "") -> Target:
    """Return the target that the device file `raw` states.

    Args:
        name: what the target is called.
        raw: the file as plain data.
        where: how errors call the place; `target NAME` when empty.

    Raises:
        SpecError: an entry is missing, extra, in the wrong unit, without source, or contradicts another.
    """
    where = where or f"target {name}"
    _check_entries(where, raw)
    numbers = {table: _quantities(where, table, raw.get(table, {}), units) for table, units in TABLES.items()}
    peaks = {unit: _peak(where, unit, row, raw["sm_count"]) for unit, row in raw["peak"].items()}
    clock_hz = numbers["clock"].get("max") or max(peak.clock_hz for peak in peaks.values())
    _check_partitions(where, raw, clock_hz)
    on_chip = numbers["on_chip"]
    return Target(
        name=name,
        title=raw["title"],
        vendor=raw["vendor"],
        kind=raw["kind"],
        architecture=raw["architecture"],
        sm_count=raw["sm_count"],
        clock_hz=clock_hz,
        clock_source=raw.get("clock", {}).get("source", _NO_CLOCK),
        peaks=peaks,
        dram=_memory(numbers["dram"], raw["dram"]),
        l2=_memory(numbers["l2"], raw["l2"]),
        on_chip_bytes=int(sum(on_chip.values()) * raw["sm_count"]) if on_chip else None,
        on_chip_source=raw.get("on_chip", {}).get("source", ""),
        special_per_clock=numbers["special"].get("sm_clock"),
        special_source=raw.get("special", {}).get("source", ""),
        links={key: _link(where, key, row) for key, row in raw.get("link", {}).items()},
        launch_floor_s=numbers["launch"].get("floor"),
        launch_source=raw.get("launch", {}).get("source", ""),
        power_w=numbers["power"].get("limit"),
        unstated=_unstated(where, raw),
        partitions=tuple(raw.get("partition", {})),
        unverified=_unverified(raw),
        measured=raw.get("measured", False),
    )


_INTEGERS = "tensor.int8"


def positive_quantity(where: str, text: str, unit: str) -> float:
    """Return the number of `unit` that `text` states, which must be finite and above 0.

    >>> positive_quantity("target x: dram.bandwidth", "8 TB/s", "B/s")
    8000000000000.0
    """
    try:
        value = parse_count(text, "B") if unit == "B" else parse(text, unit)
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from None
    if not 0 < value < math.inf:
        raise SpecError(f"{where} is {text!r}; it must be above 0 and finite")
    return value


def _check_entries(where: str, raw: Mapping[str, Any]) -> None:
    for key in REQUIRED:
        if key not in raw:
            raise SpecError(f"{where}: entry {key!r} is missing")
    for key, value in raw.items():
        if key not in TOP:
            raise SpecError(f"{where}: entry {key!r} is not known; known are base, {', '.join(TOP)}")
        if type(value) is not TOP[key]:
            raise SpecError(f"{where}: {key} is {value!r}; it must be a {TOP[key].__name__}")
        if value in ("", {}) and key in REQUIRED and key != "l2":
            raise SpecError(f"{where}: {key} is empty; it must be stated")
    if raw["kind"] not in KINDS:
        raise SpecError(f"{where}: kind is {raw['kind']!r}; it must be {' or '.join(map(repr, KINDS))}")
    if raw["sm_count"] < 1:
        raise SpecError(f"{where}: sm_count is {raw['sm_count']}; it must be at least 1")


def _unstated(where: str, raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the units whose rate nothing states; a CPU that was measured before its integers were has one."""
    units = tuple(raw.get("unstated", ()))
    if raw.get("measured") and raw["kind"] == "cpu" and not units and _INTEGERS not in raw["peak"]:
        return (_INTEGERS,)
    if units and not raw.get("unstated_source"):
        raise SpecError(f"{where}: unstated has no unstated_source: what says that the device has these units")
    for unit in units:
        if unit in raw["peak"]:
            raise SpecError(f"{where}: unstated names {unit!r}, whose rate peak states")
    return units


def _check_partitions(where: str, raw: Mapping[str, Any], clock_hz: float) -> None:
    """Refuse a partition that is malformed or larger or faster than the whole device."""
    limits = {"sm_count": raw["sm_count"], "dram_ratio": 1.0, "l2_ratio": 1.0}
    for part, row in raw.get("partition", {}).items():
        place = f'{where}: partition."{part}"'
        _check_keys(place, row, PARTITION)
        if not row.get("source"):
            raise SpecError(f"{place} has no source")
        for key, limit in limits.items():
            if key in row and not 0 < row[key] <= limit:
                raise SpecError(f"{place}.{key} is {row[key]}; it must be above 0 and at most {limit}")
        if "clock" in row and positive_quantity(f"{place}.clock", row["clock"], "Hz") > clock_hz:
            raise SpecError(f"{place}.clock is {row['clock']!r}, above the device's {clock_hz / 1e9:.4g} GHz")
        for key, unit in (("power", "W"), ("host_clock", "Hz")):
            if key in row:
                positive_quantity(f"{place}.{key}", row[key], unit)


def _check_keys(place: str, row: object, known: Mapping[str, type]) -> None:
    if not isinstance(row, Mapping):
        raise SpecError(f"{place} is {row!r}; it must be a table")
    for key, value in row.items():
        if key not in known:
            raise SpecError(f"{place}.{key} is not known; known are {', '.join(known)}")
        if type(value) is not known[key]:
            raise SpecError(f"{place}.{key} is {value!r}; it must be a {known[key].__name__}")


def _quantities(where: str, table: str, row: Mapping[str, Any], units: Mapping[str, str]) -> dict[str, float]:
    """Return the numbers of one table; a table with numbers needs a source."""
    place = f"{where}: {table}"
    _check_keys(place, row, dict.fromkeys(units, str) | TAGS)
    if row and not row.get("source"):
        raise SpecError(f"{place} has no source")
    return {key: positive_quantity(f"{place}.{key}", row[key], unit) for key, unit in units.items() if key in row}


def _peak(where: str, unit: str, row: Mapping[str, Any], sm_count: int) -> Peak:
    """Return one peak, whose two statements must agree."""
    numbers = _complete(where, f'peak."{unit}"', row, NESTED["peak"])
    derived = sm_count * numbers["sm_clock"] * numbers["clock"]
    if abs(derived - numbers["rate"]) > AGREEMENT_RATIO * numbers["rate"]:
        raise SpecError(
            f'{where}: peak."{unit}": rate is {numbers["rate"]:.4g} FLOP/s, but sm_count × sm_clock × clock '
            f"is {derived:.4g}; they must agree within {AGREEMENT_RATIO:.0%}"
        )
    return Peak(
        flop_per_s=numbers["rate"], flop_per_clock=numbers["sm_clock"], clock_hz=numbers["clock"],
        source=row["source"], verified=row.get("verified", True),
    )  # fmt: skip


def _complete(where: str, table: str, row: Mapping[str, Any], units: Mapping[str, str]) -> dict[str, float]:
    """Return the numbers of a table that must state them all."""
    numbers = _quantities(where, table, row, units)
    for key in units:
        if key not in numbers:
            raise SpecError(f"{where}: {table}.{key} is missing")
    return numbers


def _memory(numbers: Mapping[str, float], row: Mapping[str, Any]) -> Memory:
    capacities = [int(numbers[key]) for key in ("capacity", "die_capacity") if key in numbers]
    return Memory(
        capacity_bytes=sum(capacities) if capacities else None,
        bandwidth_bytes_per_s=numbers.get("bandwidth"),
        source=row.get("source", ""),
        verified=row.get("verified", True),
    )


def _link(where: str, key: str, row: Mapping[str, Any]) -> Link:
    count = row.get(JOINED)
    if count is not None and (type(count) is not int or count < 2):
        raise SpecError(f"{where}: link.{key}.{JOINED} is {count!r}; a whole number of at least 2 is right")
    rest = {name: value for name, value in row.items() if name != JOINED}
    numbers = _complete(where, f"link.{key}", rest, NESTED["link"])
    return Link(
        bandwidth_bytes_per_s=numbers["bandwidth"], source=row["source"], verified=row.get("verified", True),
        device_count=count,
    )  # fmt: skip


def _unverified(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the dotted keys of all tables marked `verified = false`."""
    keys = [key for key in raw if isinstance(raw[key], dict) and raw[key].get("verified") is False]
    for key in ("peak", "link", "partition"):
        keys += [f"{key}.{name}" for name, row in raw.get(key, {}).items() if row.get("verified") is False]
    return tuple(sorted([*keys, *(["sm_count"] if raw.get("sm_verified") is False else [])]))
