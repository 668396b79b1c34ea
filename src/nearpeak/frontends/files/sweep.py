"""Import of hand-written cases: JSON lines, or TOML with single cases and sweeps over axes."""

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from nearpeak.base.canonical_json import parsed_once
from nearpeak.base.covering_arrays import covering
from nearpeak.base.input_files import text_of_file, toml_of_file
from nearpeak.core.work.case import Case
from nearpeak.core.work.workload import LARGEST_TENSOR_BYTES, Call, Workload
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.frontends.files.axis_conditions import condition, names_in
from nearpeak.frontends.files.axis_values import AxisValues, axis_values
from nearpeak.ops import OPS, Value, work_of

LARGEST_CASE_COUNT = 1_000_000
"""Cases in one file, before constraints take some away."""
LARGEST_EXTENT = 2**40
_RESERVED = ("op", "phase", "count", "rule")
TOTALS = ("bytes_total", "flop_total")
"""Names that constraints may use besides axes: bytes read and written by a case, and its FLOP."""
REMOVED = "removed by "
"""Prefix, in a sweep's origin, of the number of points that a constraint removed."""
COMBINATIONS = " (combinations)"
"""Suffix of such a number if it counts combinations without a row in a covering array."""
_COVER = "cover"
"""Key of a sweep that takes a covering array of that strength instead of all points."""


class _Found:
    """Calls collected so far, and the number of points that each constraint removed."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.removed: dict[str, int] = {}


def capture_sweep(path: Path) -> Workload:
    """Return the hand-written cases of the .jsonl or .toml file at `path`, as unrelated calls.

    Raises:
        SpecError: the file is missing, malformed, empty or too large; the message names line or table, and axis.
    """
    if not path.is_file():
        raise SpecError(f"{path}: no such file; give a .jsonl or .toml file of cases")
    collected = _Found()
    if path.suffix == ".toml":
        _read_toml(path, collected)
    else:
        for number, line in enumerate(text_of_file(path).split("\n"), start=1):
            if line.strip():
                _check_count(number)
                _add_line(f"{path.name}:{number}", line, collected)
    if not collected.calls:
        raise SpecError(f'{path}: states no case; write e.g. {{"op": "gemm", "dtype": "bf16", "m": 1, …}}')
    origin = {"kind": "sweep", "file": path.name, **_removals(collected)}
    return Workload(name=path.stem, step="sweep", calls=tuple(collected.calls), origin=origin)


def swept(name: str, line: str, where: Sequence[str] = ()) -> Workload:
    """Return the cases of one sweep in words, such as `op=gemm dtype=bf16 m=1024:4096:256 k=pow2(64,8192) n=8`.

    Args:
        where: constraints, as in a file of sweeps, over axes, `bytes_total` and `flop_total`.

    Raises:
        SpecError: a word is not NAME=VALUES, or the sweep is not one that a file could state.

    >>> [call.case.label() for call in swept("s", "op=fill dtype=bf16 elements=1:8", ["elements % 4 == 0"]).calls]
    ['fill elements=4 bf16', 'fill elements=8 bf16']
    >>> [call.case.label() for call in swept("s", "op=fill dtype=bf16 elements=1:3", ["bytes_total > 4"]).calls]
    ['fill elements=3 bf16']
    """
    table: dict[str, Any] = {}
    for word in shlex.split(line):
        key, sign, text = word.partition("=")
        if not sign or not key or not text:
            raise SpecError(f"{name}: {word!r} is not NAME=VALUES; write e.g. op=gemm dtype=bf16 m=1:64 n=8 k=[1,7,8]")
        table[key] = {"true": True, "false": False}.get(text, text)
    if str(table.get(_COVER, "")).isdigit():
        table[_COVER] = int(table[_COVER])
    collected = _Found()
    _expand(name, {**table, **({"where": list(where)} if where else {})}, collected)
    origin = {"kind": "sweep", "line": line, **_removals(collected)}
    return Workload(name=name, step="sweep", calls=tuple(collected.calls), origin=origin)


def _removals(collected: _Found) -> dict[str, str]:
    return {f"{REMOVED}{text}": str(count) for text, count in collected.removed.items()}


def _add_line(where: str, line: str, collected: _Found) -> None:
    try:
        row = parsed_once(line)
    except SpecError as error:
        raise SpecError(f"{where}: {error}; a case states each of its arguments once") from None
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{where}: not JSON ({error}); write one object per line") from None
    if not isinstance(row, dict):
        raise SpecError(f"{where}: is {type(row).__name__}, not an object with op, dtype and axes")
    collected.calls.append(_call(where, row))


def _read_toml(path: Path, collected: _Found) -> None:
    data = toml_of_file(path)
    unknown = sorted(set(data) - {"case", "sweep"})
    if unknown:
        raise SpecError(f"{path}: table {unknown[0]!r} is not known; use [[case]] and [[sweep]]")
    for number, row in enumerate(_tables(path, data, "case"), start=1):
        _check_count(number)
        collected.calls.append(_call(f"{path.name} case {number}", row))
    for number, row in enumerate(_tables(path, data, "sweep"), start=1):
        _expand(f"{path.name} sweep {number}", row, collected)


def _tables(path: Path, data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    tables = data.get(name, [])
    tables = [tables] if isinstance(tables, dict) else tables
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise SpecError(f"{path}: {name} must be a table [{name}] or tables [[{name}]]")
    return tables


def _expand(where: str, table: Mapping[str, Any], collected: _Found) -> None:
    """Append every point of the sweep that meets its constraints."""
    try:
        fixed = {key: table[key] for key in _RESERVED if key in table and not isinstance(table[key], list)}
        axes = [axis_values(key, values) for key, values in table.items() if key not in (*fixed, "where", _COVER)]
        constraints = _constraints(table.get("where", []), axes, fixed, where)
        ruled_out: dict[str, int] = {}
        points = _points(axes) if _COVER not in table else _covered(axes, table[_COVER], constraints, ruled_out)
        if _COVER not in table:
            counted = " × ".join(f"{','.join(axis.names)} {axis.value_count}" for axis in axes)
            _check_count(len(collected.calls) + math.prod(axis.value_count for axis in axes), counted)
    except SpecError as error:
        raise type(error)(f"{where}: {error}") from None
    removed = dict.fromkeys(constraints, 0)
    before = len(collected.calls)
    for row in points:
        failed = _first_failed(where, constraints, row)
        if failed:
            removed[failed] += 1
        else:
            collected.calls.append(_call(where, {**fixed, **row}))
    if len(collected.calls) == before:
        counts = {text: count + ruled_out.get(f"{text}{COMBINATIONS}", 0) for text, count in removed.items()}
        most = max(counts, key=lambda text: counts[text])
        raise SpecError(f"{where}: no case is left; constraint {most!r} removed {counts[most]:,}: loosen it")
    for text, count in (*removed.items(), *ruled_out.items()):
        collected.removed[text] = collected.removed.get(text, 0) + count


def _constraints(
    stated: object, axes: list[AxisValues], fixed: Mapping[str, Any], where: str
) -> dict[str, Callable[[Mapping[str, Any]], bool]]:
    """Return the test of each constraint; totals of the case are computed only for constraints that use them."""
    texts = stated if isinstance(stated, list) else [stated]
    names = frozenset(name for axis in axes for name in axis.names)
    tests = {str(text): condition(text, names | frozenset(TOTALS)) for text in texts}
    totals = {text for text in tests if any(name in text for name in TOTALS)}

    def of_case(test: Callable[[Mapping[str, Any]], bool]) -> Callable[[Mapping[str, Any]], bool]:
        def holds(row: Mapping[str, Any]) -> bool:
            case = _call(where, {**fixed, **row}).case
            assert case is not None  # every row of a sweep has one
            work = work_of(case)
            totals = (int(work.read_bytes + work.write_bytes), int(sum(work.flop.values())))
            return test({**row, **dict(zip(TOTALS, totals, strict=True))})

        return holds

    return {text: of_case(test) if text in totals else test for text, test in tests.items()}


def _points(axes: list[AxisValues]) -> Iterator[dict[str, Value]]:
    names = [name for axis in axes for name in axis.names]
    for parts in product(*(tuple(axis.rows()) for axis in axes)):
        yield dict(zip(names, (value for part in parts for value in part), strict=True))


def _covered(
    axes: list[AxisValues], strength: object, constraints: Mapping[str, Any], removed: dict[str, int]
) -> Iterator[dict[str, Value]]:
    """Return a covering array: every allowed combination of values of `strength` axes occurs in a point."""
    if type(strength) is not int or not 1 <= strength <= 4:
        raise SpecError(f"cover={strength!r}: is not a whole number from 1 to 4; 2 combines all pairs of axes")
    most = sorted((axis.value_count for axis in axes), reverse=True)[:strength]
    _check_count(math.prod(most) * math.comb(len(axes), min(strength, len(axes))))
    values = {",".join(axis.names): tuple(axis.rows()) for axis in axes}

    def point(row: Mapping[str, Any]) -> dict[str, Value]:
        taken = {key: values[key][position] for key, position in row.items()}
        return {
            name: value
            for key, row_values in taken.items()
            for name, value in zip(key.split(","), row_values, strict=True)
        }

    def refusal(row: Mapping[str, Any]) -> str:
        return _first_failed("cover", constraints, point(row))

    names = {text: names_in(text) for text in constraints}

    def hopeful(row: Mapping[str, Any]) -> bool:
        known = point(row)
        decidable = {text: holds for text, holds in constraints.items() if names[text] <= known.keys()}
        return not _first_failed("cover", decidable, known)

    array = covering({key: range(len(rows)) for key, rows in values.items()}, strength, refusal, hopeful, restarts=5)
    for reason in array.infeasible.values():
        removed[f"{reason}{COMBINATIONS}"] = removed.get(f"{reason}{COMBINATIONS}", 0) + 1
    return (point(row) for row in array.rows)


def _first_failed(where: str, constraints: Mapping[str, Any], row: Mapping[str, Value]) -> str:
    try:
        return next((text for text, holds in constraints.items() if not holds(row)), "")
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from None


def _check_count(count: int, counted: str = "") -> None:
    if count > LARGEST_CASE_COUNT:
        explained = f" ({counted})" if counted else ""
        raise SpecError(f"{count:,} cases{explained}; a file holds up to {LARGEST_CASE_COUNT:,}")


def _call(where: str, row: Mapping[str, Any]) -> Call:
    """Return the call that one row states; its module is the rule that the row names."""
    op, count = row.get("op"), row.get("count", 1)
    if not isinstance(op, str) or not op.strip():
        raise SpecError(f"{where}: 'op' is {'blank' if isinstance(op, str) else 'missing'}; write e.g. op = \"gemm\"")
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise SpecError(f"{where}: count={count!r} is not a whole number of at least 1")
    arguments = {key: value for key, value in row.items() if key not in _RESERVED}
    try:
        case = OPS[op].case(row.get("phase", "forward"), **arguments)
        check_size(case)
    except (SpecError, NotModelledError) as error:
        raise type(error)(f"{where}: {error}") from None
    phase = "backward" if case.phase == "backward" else "forward"
    return Call(
        case=case, operator=op, phase=phase, source=where, call_count=count, module=str(row.get("rule", "")),
    )  # fmt: skip


def check_size(case: Case) -> None:
    """Refuse a case with an extent over 2^40 or a tensor over 2^50 bytes, naming the axis.

    >>> from nearpeak.ops import case
    >>> check_size(case("gemm", m=4, n=4, k=8, dtype="bf16"))
    """
    for name, extent in case.axes:
        if extent > LARGEST_EXTENT:
            raise SpecError(f"{case.op}: {name}={extent} is over 2^40; is it a typing error?")
    if math.prod(max(1, extent) for _, extent in case.axes) * 16 <= LARGEST_TENSOR_BYTES:
        return  # no tensor has more elements than all axes together
    arguments = dict((*case.axes, *case.dtypes, *case.attributes))
    largest = max((tensor.bytes for tensor in OPS[case.op].inputs(**arguments).values()), default=0)
    if largest > LARGEST_TENSOR_BYTES:
        name, extent = max(case.axes, key=lambda item: item[1])
        raise SpecError(
            f"{case.op}: {name}={extent} makes a tensor of {largest:,} bytes, over 2^50; is it a typing error?"
        )
