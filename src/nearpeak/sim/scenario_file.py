"""Streams of a TOML file: what runs, how often it arrives, by when it must be done."""

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nearpeak.core.case import Case
from nearpeak.errors import SpecError
from nearpeak.sim.scenario import Stream
from nearpeak.units import parse

_TIMES = {"period": "period_s", "start": "start_s", "deadline": "deadline_s"}
_KEYS = ("name", "cases", "count", "priority", *_TIMES)


def streams_of(path: Path, case_of: Callable[[list[str]], Case]) -> tuple[Stream, ...]:
    """Return the streams of a file.

    Each `[[stream]]` has a `name`, `cases` (a list of texts such as "gemm m=256 n=1024 k=1024 dtype=bf16"), and, where
    they matter, `count`, `period`, `start`, `deadline` (such as "33 ms") and `priority`.

    Args:
        case_of: turns the words of a case into it.

    Raises:
        SpecError: the file is missing or malformed; the message names stream and key.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(f"{path}: not found") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: not TOML: {error}") from None
    tables = data.get("stream")
    if not isinstance(tables, list) or not tables or set(data) - {"stream"}:
        raise SpecError(f"{path}: holds one or more [[stream]] tables and nothing else; see docs/explain/simulator.md")
    return tuple(_stream(path, place, table, case_of) for place, table in enumerate(tables, 1))


def _stream(path: Path, place: int, table: Mapping[str, Any], case_of: Callable[[list[str]], Case]) -> Stream:
    where = f"{path}: stream {table.get('name', place)}"
    unknown = sorted(set(table) - set(_KEYS))
    if unknown:
        raise SpecError(f"{where}: no key {unknown[0]}; there are {', '.join(_KEYS)}")
    cases = table.get("cases")
    if not isinstance(table.get("name"), str) or not isinstance(cases, list) or not cases:
        raise SpecError(f"{where}: needs a name and a list of cases")
    for key in ("count", "priority"):
        if not isinstance(table.get(key, 0), int):
            raise SpecError(f"{where}: {key} is {table[key]!r}; a whole number is right")
    try:
        times = {field: parse(table[key], "s") for key, field in _TIMES.items() if key in table}
        return Stream(
            name=table["name"], cases=tuple(case_of(str(one).split()) for one in cases), count=table.get("count", 1),
            priority=table.get("priority", 0), **times,
        )  # fmt: skip
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from None
