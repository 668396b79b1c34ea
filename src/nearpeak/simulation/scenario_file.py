"""Scenario files in TOML: per stream its work, arrival rate, deadline and resources."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import border, toml_of_file
from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError
from nearpeak.simulation.frame_work import Frame
from nearpeak.simulation.scenario import Scenario, Stream
from nearpeak.units import parse

_TIMES = {"period": "period_s", "start": "start_s", "deadline": "deadline_s"}
_SIZES = {"input": "input_bytes", "output": "output_bytes"}
_WHOLE = {"count": "count", "priority": "priority", "atoms": "atoms_count", "sms": "sm_count"}
_TEXTS = {"launch": "launch", "slice": "slice"}
_KEYS = ("name", "cases", "frame", "share", *_WHOLE, *_TIMES, *_SIZES, *_TEXTS)
_FRAME = {"pixels": "pixels_count", "flop": "flop_count", "bytes": "bytes_per_pixel_count", "passes": "passes_count"}


@border("scenario")
def scenario_of(path: Path, case_of: Callable[[list[str]], Case]) -> Scenario:
    """Return the streams of a file.

    Each `[[stream]]` has a `name`, `cases` (a list of texts such as "gemm m=256 n=1024 k=1024 dtype=bf16") or a `frame`
    (a table of `pixels`, `flop` and `bytes` of each), and, where they matter, `count`, `period`, `start`, `deadline`
    (such as "33 ms"), `priority`, `input` and `output` (such as "6 MB"), `launch`, `atoms`, `share` (percent), `sms`,
    `slice`. The file may say `copy_engines`.

    Args:
        case_of: turns the words of a case into it.

    Raises:
        SpecError: the file is missing or malformed; the message names stream and key.
    """
    data = toml_of_file(path)
    tables = data.get("stream")
    if not isinstance(tables, list) or not tables or set(data) - {"stream", "copy_engines"}:
        raise SpecError(
            f"{path}: holds one or more [[stream]] tables, copy_engines, no more; see docs/guide/simulation.md"
        )
    engines = _whole(path, data, "copy_engines", 2)
    streams = tuple(_stream(path, place, table, case_of) for place, table in enumerate(tables, 1))
    try:
        return Scenario(streams=streams, copy_engine_count=engines)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None


def _stream(path: Path, place: int, table: Mapping[str, Any], case_of: Callable[[list[str]], Case]) -> Stream:
    where = f"{path}: stream {table.get('name', place)}"
    unknown = sorted(set(table) - set(_KEYS))
    if unknown:
        raise SpecError(f"{where}: no key {unknown[0]}; there are {', '.join(_KEYS)}")
    cases = table.get("cases", [])
    if not isinstance(table.get("name"), str) or not isinstance(cases, list) or not (cases or "frame" in table):
        raise SpecError(f"{where}: needs a name and a list of cases, or a frame")
    fields: dict[str, Any] = {field: _whole(where, table, key, 1) for key, field in _WHOLE.items() if key in table}
    for key in _TEXTS:
        if not isinstance(table.get(key, ""), str):
            raise SpecError(f"{where}: {key} is {table[key]!r}; a text is right")
    try:
        fields |= {field: parse(str(table[key]), "s") for key, field in _TIMES.items() if key in table}
        fields |= {field: parse(str(table[key]), "B") for key, field in _SIZES.items() if key in table}
        fields |= {field: table[key] for key, field in _TEXTS.items() if key in table}
        if "share" in table:
            fields["share_ratio"] = _whole(where, table, "share", 100) / 100
        if "frame" in table:
            fields["frame"] = _frame(where, table["frame"])
        return Stream(name=table["name"], cases=tuple(case_of(str(words).split()) for words in cases), **fields)
    except SpecError as error:
        text = str(error)
        raise SpecError(text if text.startswith(where) else f"{where}: {text}") from None


def _frame(where: str, table: Any) -> Frame:
    """Return the frame of a table such as `{pixels = "1920x1080", flop = 1000, bytes = 16}`."""
    if not isinstance(table, dict) or set(table) - set(_FRAME) or "pixels" not in table:
        raise SpecError(f"{where}: frame is a table of {', '.join(_FRAME)}; pixels must be given")
    wide, sign, high = str(table["pixels"]).partition("x")
    if not wide.isdigit() or (sign and not high.isdigit()):
        raise SpecError(
            f"{where}: frame: pixels is {table['pixels']!r}; a number, or a text such as 1920x1080, is right"
        )
    numbers = {key: table.get(key, 0) for key in ("flop", "bytes")}
    for key, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise SpecError(f"{where}: frame: {key} is {value!r}; a number is right")
    return Frame(
        pixels_count=int(wide) * int(high or 1), flop_count=float(numbers["flop"]),
        bytes_per_pixel_count=float(numbers["bytes"]), passes_count=_whole(where, table, "passes", 1),
    )  # fmt: skip


def _whole(where: object, table: Mapping[str, Any], key: str, usual: int) -> int:
    value = table.get(key, usual)
    if isinstance(value, bool) or not isinstance(value, int):
        raise SpecError(f"{where}: {key} is {value!r}; a whole number is right")
    return value
