"""Derived targets: partitions and power modes of a device, and what-if edits of its file."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from nearpeak.errors import SpecError
from nearpeak.registry import unknown_name
from nearpeak.units import parse


def partitioned(raw: Mapping[str, Any], stem: str, part: str) -> dict[str, Any]:
    """Return the device file of partition or power mode `part` of the device `stem`.

    A partition scales multiprocessors, memory and cache; a power mode sets clock and power.
    """
    parts = raw.get("partition", {})
    if part not in parts:
        if not parts:
            raise SpecError(f"target {stem}: has no partitions or power modes, got {part!r}")
        raise unknown_name(f"partition of {stem}", part, tuple(parts))
    row = parts[part]
    whole = raw["sm_count"]
    new = copy.deepcopy(dict(raw))
    del new["partition"]
    new["title"] = f"{raw['title']} {part}"
    new["sm_count"] = row.get("sm_count", whole)
    _scale(new, "dram", row.get("dram_ratio", 1.0), ("bandwidth", "capacity") if "sm_count" in row else ("bandwidth",))
    _scale(new, "l2", row.get("l2_ratio", 1.0), ("bandwidth", "capacity"))
    if "clock" in row:
        _set_clock(new, parse(row["clock"], "Hz"), row["source"])
    if "power" in row:
        new["power"] = {"limit": row["power"], "source": row["source"]}
    return _rerated(new)


def edited(raw: Mapping[str, Any], edits: Sequence[str]) -> dict[str, Any]:
    """Return the device file after what-if edits such as `dram.bandwidth="8 TB/s"`.

    The two statements of a peak are kept in agreement: an edited rate changes the FLOP per clock, an edited
    clock or multiprocessor count changes the rates.
    """
    new = copy.deepcopy(dict(raw))
    for edit in edits:
        path, value = _parsed(edit)
        _assign(new, path, value, edit)
        if path[0] == "peak" and path[-1] == "rate":
            row = new["peak"][path[1]]
            row["sm_clock"] = _text(parse(row["rate"], "FLOP/s") / parse(row["clock"], "Hz") / new["sm_count"], "FLOP")
        elif path == ("clock", "max"):
            _set_clock(new, parse(value, "Hz"), "what-if edit")
    return _rerated(new) if edits else new


def _parsed(edit: str) -> tuple[tuple[str, ...], Any]:
    key, sign, text = edit.partition("=")
    if not sign:
        raise SpecError(f'--set {edit!r}: is not KEY=VALUE; e.g. dram.bandwidth="8 TB/s"')
    key, text = key.strip(), text.strip().strip('"')
    path = tuple(key.replace("peak.tensor.", "peak.tensor/").replace("peak.vector.", "peak.vector/").split("."))
    path = tuple(part.replace("/", ".").strip('"') for part in path)
    return path, int(text) if text.isdigit() else text


def _assign(new: dict[str, Any], path: tuple[str, ...], value: Any, edit: str) -> None:
    table = new
    for key in path[:-1]:
        if not isinstance(table.get(key), dict):
            raise SpecError(f"--set {edit!r}: the target has no table {key!r}; it has {', '.join(map(str, new))}")
        table = table[key]
    if path[-1] not in table:
        raise SpecError(f"--set {edit!r}: {'.'.join(path)} is not in the device file; there are {', '.join(table)}")
    if isinstance(table[path[-1]], dict):
        raise SpecError(f"--set {edit!r}: {'.'.join(path)} is a table; name one of {', '.join(table[path[-1]])}")
    table[path[-1]] = value


def _set_clock(new: dict[str, Any], clock_hz: float, source: str) -> None:
    """Set the highest clock and restate every peak at it."""
    new["clock"] = {"max": _text(clock_hz, "Hz"), "source": source}
    for row in new["peak"].values():
        row["clock"] = _text(clock_hz, "Hz")


def _rerated(new: dict[str, Any]) -> dict[str, Any]:
    """Restate every rate as multiprocessors × FLOP per clock × clock."""
    for row in new["peak"].values():
        try:
            rate = new["sm_count"] * parse(row["sm_clock"], "FLOP") * parse(row["clock"], "Hz")
        except TypeError:
            raise SpecError(f"sm_count: {new['sm_count']!r} is not a whole number") from None
        row["rate"] = _text(rate, "FLOP/s")
    return new


def _scale(new: dict[str, Any], table: str, ratio: float, keys: tuple[str, ...]) -> None:
    for key in keys:
        if key in new[table] and ratio != 1.0:
            unit = "B/s" if key == "bandwidth" else "B"
            value = parse(new[table][key], unit) * ratio
            new[table][key] = _text(value if unit == "B/s" else int(value), unit)


def _text(value: float, unit: str) -> str:
    return f"{value!r} {unit}"
