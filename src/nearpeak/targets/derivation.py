"""Targets derived from others: partitions and power modes of a device, and edited (hypothetical) devices."""

import copy
import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from nearpeak.errors import SpecError, UnknownNameError
from nearpeak.targets.device_file import positive_quantity
from nearpeak.targets.device_schema import NESTED, TABLES, TAGS
from nearpeak.targets.shares import FORMS, is_share, share_row
from nearpeak.units import parse

EDIT_SOURCE = "what-if edit"
"""Source of a figure that a user changed."""

_Path = tuple[str, ...]


def partitioned(raw: Mapping[str, Any], stem: str, part: str) -> dict[str, Any]:
    """Return the device file of partition or power mode `part` of the device `stem`.

    A partition scales multiprocessors, memory and cache; a power mode sets clock, power, multiprocessors that stay on
    and the memory's clock; a share (`mps=50`, `green=64`) limits multiprocessors only.
    """
    row = share_row(raw, stem, part) if is_share(part) else _documented(raw, stem, part)
    new = copy.deepcopy(dict(raw))
    new.pop("partition", None)
    new["title"] = f"{raw['title']} {part}"
    is_slice = "sm_count" in row and "clock" not in row
    _scale(new, "dram", row.get("dram_ratio", 1.0), ("bandwidth", "capacity") if is_slice else ("bandwidth",))
    _scale(new, "l2", row.get("l2_ratio", 1.0), ("bandwidth", "capacity", "die_capacity"))
    if "sm_count" in row:
        new |= {"sm_count": row["sm_count"], "sm_source": row["source"], "sm_verified": row.get("verified", True)}
    tags = {"source": row["source"], "verified": row.get("verified", True)}
    if "power" in row:
        new["power"] = {"limit": row["power"], **tags}
    if "clock" in row:
        new["clock"] = {"max": row["clock"], **tags}
    changed = {("sm_count",)} if new["sm_count"] != raw["sm_count"] else set()
    return _agreed(new, changed | ({("clock", "max")} if "clock" in row else set()))


def _documented(raw: Mapping[str, Any], stem: str, part: str) -> Mapping[str, Any]:
    """Return the row of a partition or power mode that the device file states."""
    parts = raw.get("partition", {})
    if not parts:
        raise SpecError(
            f"target {stem}: has no partitions or power modes, got {part!r}; write {stem!r} alone, or a share: {FORMS}"
        )
    if part not in parts:
        raise UnknownNameError(
            f"target {stem}: no partition or power mode {part!r}; there are {', '.join(parts)}, and shares: {FORMS}"
        )
    row: Mapping[str, Any] = parts[part]
    return row


def based(raw: Mapping[str, Any], base: str, base_raw: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the whole device file of one that states only what differs from the device `base`.

    A table that it states keeps the other figures of the base; where a figure differs, the peaks are brought into
    agreement as after a what-if edit. Partitions of a device that differs are not documented, so none remain.

    Raises:
        SpecError: a table states a figure without its own source, or is no table.
    """
    new = copy.deepcopy({key: value for key, value in base_raw.items() if key != "partition"})
    new["title"] = f"{base_raw['title']} with differences"
    changed: set[_Path] = set()
    for key, value in raw.items():
        if key == "base":
            continue
        if key in TABLES:
            changed |= _merge(new, (key,), value, base, where)
        elif key in NESTED and isinstance(value, Mapping):
            for name, row in value.items():
                changed |= _merge(new, (key, name), row, base, where)
        else:
            changed |= {(key,)} if new.get(key) != value else set()
            new[key] = value
    if ("sm_count",) in changed and "sm_source" not in raw:
        raise SpecError(f"{where}: states sm_count without sm_source")
    return _agreed(new, changed)


def _merge(new: dict[str, Any], path: _Path, row: Any, base: str, where: str) -> set[_Path]:
    """Lay a table over that of the base, and return the figures that differ."""
    place = f"{where}: {'.'.join(path)}"
    if not isinstance(row, Mapping):
        raise SpecError(f"{place} is {row!r}; it must be a table")
    if not row.get("source"):
        raise SpecError(f"{place} has no source; what differs from {base} needs its own")
    table = new
    for key in path:
        table = table.setdefault(key, {})
    changed = {(*path, key) for key, value in row.items() if key not in TAGS and table.get(key) != value}
    rest = sorted(key for key in table if key not in row and key not in TAGS)
    source = f"{row['source']}; {', '.join(rest)} as {base}: {table['source']}" if rest else row["source"]
    table.update(row, source=source)
    return changed


def edited(raw: Mapping[str, Any], edits: Sequence[str]) -> dict[str, Any]:
    """Return the device file after what-if edits such as `dram.bandwidth="8 TB/s"`, in any order.

    The two statements of a peak are kept in agreement: an edited rate changes the FLOP per clock, an edited
    clock or multiprocessor count changes the rates. Partitions of an edited device are not documented, so none
    remain.
    """
    if not edits:
        return dict(raw)
    new = copy.deepcopy({key: value for key, value in raw.items() if key != "partition"})
    values: dict[_Path, Any] = {}
    for edit in edits:
        path, value = _parsed(edit, raw)
        if path in values:
            raise SpecError(f"--set {edit!r}: {'.'.join(path)} is given twice; give it once")
        values[path] = value
    changed = {path for path, value in values.items() if not _is_already(new, path, value)}
    # Of a peak whose other statement changes, one that stays as it was is the user's, too.
    changed |= {path for path in values if any(len(path) > 2 and path[:2] == other[:2] for other in changed)}
    for path in sorted(changed):
        _assign(new, path, values[path])
    return _agreed(new, changed)


def _is_already(raw: Mapping[str, Any], path: _Path, value: Any) -> bool:
    """Return whether a file states the value already: an edit without effect leaves every figure as it was."""
    row: Any = raw
    for key in path:
        row = row.get(key) if isinstance(row, Mapping) else None
    if row is None or len(path) == 1:
        return bool(row == value)
    unit = NESTED[path[0]][path[-1]] if path[0] in NESTED else TABLES[path[0]][path[-1]]
    return parse(str(row), unit) == parse(str(value), unit)


def _parsed(edit: str, raw: Mapping[str, Any]) -> tuple[_Path, Any]:
    """Return the path into the device file and the checked value of one edit."""
    where = f"--set {edit!r}"
    key, sign, text = edit.partition("=")
    if not sign:
        raise SpecError(f'{where}: is not KEY=VALUE; e.g. dram.bandwidth="8 TB/s"')
    units = _figures(raw)
    name, text = _unquoted(key).replace('"', "").replace("'", ""), _unquoted(text)
    if name not in units:
        tables = ", ".join(f"{table}.{'|'.join(keys)}" for table, keys in TABLES.items())
        close = difflib.get_close_matches(name, list(units), n=3, cutoff=0.5)
        hint = f" did you mean {', '.join(close)}?" if close else ""
        raise UnknownNameError(
            f"{where}: {name!r} is not a figure of this device file;{hint} there are sm_count, "
            f"{tables}, and of the units and links it states peak.UNIT.{'|'.join(NESTED['peak'])}, link.NAME.bandwidth"
        )
    path, unit = units[name]
    return path, _value(f"{where}: {name}", text, unit)


def _figures(raw: Mapping[str, Any]) -> dict[str, tuple[_Path, str]]:
    """Return path and unit of every figure that the device file has or could have, by dotted name."""
    paths: list[tuple[_Path, str]] = [(("sm_count",), "")]
    paths += [((table, key), unit) for table, units in TABLES.items() for key, unit in units.items()]
    for table, units in NESTED.items():
        paths += [((table, row, key), unit) for row in raw.get(table, {}) for key, unit in units.items()]
    return {".".join(path): (path, unit) for path, unit in paths}


def _value(where: str, text: str, unit: str) -> Any:
    if not unit:
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise SpecError(f"{where}: {text!r} is not a whole number of at least 1; e.g. 132")
        return int(text)
    try:
        float(text)
    except ValueError:
        positive_quantity(where, text, unit)
        return text
    raise SpecError(f"{where}: {text!r} has no unit; write a number, one space and a prefixed {unit}, e.g. '2 G{unit}'")


def _assign(new: dict[str, Any], path: _Path, value: Any) -> None:
    """Set one figure and say in its source that it is an edit; a table that is not there yet is begun."""
    if len(path) == 1:
        new |= {"sm_count": value, "sm_source": EDIT_SOURCE, "sm_verified": True}
        return
    table = new
    for key in path[:-1]:
        table = table.setdefault(key, {})
    table[path[-1]] = value
    documented = table.get("source", EDIT_SOURCE)
    if not documented.startswith(EDIT_SOURCE):
        documented = f"{EDIT_SOURCE}; figures that were not edited: {documented}"
    table["source"] = documented


def _agreed(new: dict[str, Any], changed: set[_Path]) -> dict[str, Any]:
    """Bring the peaks back into agreement with themselves after the figures `changed` were set."""
    everywhere = ("sm_count",) in changed or ("clock", "max") in changed
    for unit, row in new["peak"].items():
        edited_keys = {key for key in NESTED["peak"] if ("peak", unit, key) in changed}
        if ("clock", "max") in changed and "clock" not in edited_keys:
            row["clock"] = new["clock"]["max"]
        if {"rate", "sm_clock"} <= edited_keys:
            continue  # both statements are the user's: reading the file says whether they contradict each other
        cycles_hz = new["sm_count"] * parse(row["clock"], "Hz")
        if "rate" in edited_keys:
            row["sm_clock"] = _text(parse(row["rate"], "FLOP/s") / cycles_hz, "FLOP")
        elif edited_keys or everywhere:
            row["rate"] = _text(cycles_hz * parse(row["sm_clock"], "FLOP"), "FLOP/s")
    return new


def _scale(new: dict[str, Any], table: str, ratio: float, keys: tuple[str, ...]) -> None:
    for key in keys:
        if key in new[table] and ratio != 1.0:
            unit = TABLES[table][key]
            value = parse(new[table][key], unit) * ratio
            new[table][key] = _text(value if unit == "B/s" else int(value), unit)


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1].strip() if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _text(value: float, unit: str) -> str:
    return f"{value!r} {unit}"
