"""Versioned JSON format of a saved workload; equal workloads give identical bytes."""

import base64
import math
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nearpeak.base.canonical_json import canonical_json
from nearpeak.base.input_files import json_value
from nearpeak.core.records.converter import COUNT, Converter, MisfitError, misfit, one_of
from nearpeak.core.records.record_codec import Codec, Schema, Shape, defaulted
from nearpeak.core.work.case import Case
from nearpeak.core.work.tensor import Layout
from nearpeak.core.work.workload import (
    BUFFER_KINDS,
    PHASES,
    SAYINGS,
    Argument,
    Buffer,
    Call,
    CallLayout,
    Pattern,
    Use,
    Workload,
)
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops import CASE

SCHEMA = Schema(
    kind="nearpeak.workload", version=1, title="a saved workload",
    advice="write one with 'nearpeak capture … --out FILE'", kind_key="schema", version_key="version",
)  # fmt: skip
# 1: name, step, origin, assumptions, skipped, cases, buffers, calls; forms where the source states arguments.


def is_workload(data: object) -> bool:
    """Return whether JSON data is marked as a saved workload, of any version.

    >>> is_workload({"schema": "nearpeak.workload", "version": 1}), is_workload({"model_type": "llama"})
    (True, False)
    """
    return SCHEMA.claimed(data)


def save_text(workload: Workload) -> str:
    """Return `workload` as one line of JSON; each distinct case and form is written once, calls name it by number."""
    numbers: dict[Case, int] = {}
    forms: dict[int, tuple[int, CallLayout]] = {}  # by identity: alike calls share one form
    for call in workload.calls:
        if call.case is not None:
            numbers.setdefault(call.case, len(numbers))
        if call.form is not None:
            forms.setdefault(id(call.form), (len(forms), call.form))
    by_number = {Case: numbers.__getitem__, CallLayout: lambda form: forms[id(form)][0]}
    codec = Codec(types={**_TYPES, **{kind: Converter(number, COUNT.read) for kind, number in by_number.items()}},
                  shapes=_SHAPES)  # fmt: skip
    data = {**SCHEMA.head(), **codec.plain(workload), "cases": [case.record() for case in numbers]}
    for call in data["calls"]:
        storages = call.pop("storages", [])
        if "form" in call:
            call["form"] = [call["form"], *storages]
    if forms:
        data["forms"] = [_FORMS.plain(form) for _, form in forms.values()]
    values = [(number, buffer.value) for number, buffer in enumerate(workload.buffers) if buffer.value is not None]
    if values:
        data["values"] = [[number, _argument_record(value)] for number, value in values]
    return canonical_json(data) + "\n"


def load_text(text: str, where: str) -> Workload:
    """Return the workload that `text` holds.

    Args:
        where: file name for messages.

    Raises:
        SpecError: not a saved workload, of another schema version, or damaged.
    """
    try:
        data = json_value(text)
    except ValueError as error:
        raise SpecError(f"{where}: not JSON ({error}); write it with 'nearpeak capture … --out'") from None
    try:
        return _workload(SCHEMA.current(data, where), where)
    except NotModelledError as error:
        raise SpecError(f"{where}: {error}; capture it again") from None


def _workload(data: dict[str, Any], where: str) -> Workload:
    cases: tuple[Case, ...] = _FORMS.value(data.get("cases"), tuple[Case, ...], f"{where}.cases")
    forms: tuple[CallLayout, ...] = _FORMS.value(data.get("forms", []), tuple[CallLayout, ...], f"{where}.forms")
    cases, forms = _shared(cases, data["cases"]), _shared(forms, data.get("forms", []))
    codec = Codec(types={**_TYPES, Case: _numbered(cases), CallLayout: _numbered(forms)}, shapes=_SHAPES)
    if isinstance(data.get("calls"), list):
        data["calls"] = list(map(_call_fields, data["calls"]))
    workload: Workload = codec.value(data, Workload, where)
    values = dict(_FORMS.value(data.get("values", []), tuple[tuple[int, float], ...], f"{where}.values"))
    if values:
        buffers = tuple(replace(buffer, value=values.get(number)) for number, buffer in enumerate(workload.buffers))
        workload = replace(workload, buffers=buffers)
    try:
        _check(workload)
    except SpecError as error:
        raise SpecError(f"{where}: {error}; capture it again") from None
    return workload


def _call_fields(record: Any) -> Any:
    """Return the record of a call with `form` and `storages` separated; the file holds them in one list."""
    if not isinstance(record, dict) or not isinstance(record.get("form"), list) or not record["form"]:
        return record
    form, *storages = record["form"]
    return {**record, "form": form, "storages": storages}


def _check(workload: Workload) -> None:
    """Refuse references to buffers, calls and patterns that do not exist."""
    calls, buffer_count = workload.calls, len(workload.buffers)
    if not calls:
        raise SpecError("holds no call")
    for place, call in enumerate(calls):
        numbers = [use.buffer for use in (*call.reads, *call.writes)] + list(call.storages)
        if numbers and max(numbers) >= buffer_count:
            raise SpecError(f"call {place}: names buffer {max(numbers)} of {buffer_count}")
    for number, _ in workload.returned:
        if number >= buffer_count:
            raise SpecError(f"returned: names buffer {number} of {buffer_count}")
    for group in workload.groups:
        if not group or max(group) >= len(calls):
            raise SpecError(f"a group names calls {list(group)} of {len(calls)}")
    if workload.guessed and max(workload.guessed) >= len(calls):
        raise SpecError(f"guessed: names call {max(workload.guessed)} of {len(calls)}")
    for fact in workload.known:
        is_there = fact.call < len(calls) and fact.tensor < len(calls[fact.call].storages)
        if not is_there or fact.pattern >= len(workload.patterns) or fact.says not in SAYINGS:
            raise SpecError(f"{fact} names a call, a tensor, a pattern or a fact that is not there")
    for pattern in workload.patterns:
        _check_pattern(pattern)


def _check_pattern(pattern: Pattern) -> None:
    """Refuse a pattern whose number of bits is not that of its extents."""
    byte_count, opened = -(-math.prod(pattern.shape) // 8), zlib.decompressobj()
    try:
        is_whole = len(opened.decompress(pattern.packed, byte_count + 1)) == byte_count
    except zlib.error:
        is_whole = False
    if not is_whole:
        raise SpecError(f"a pattern of {pattern.shape} does not hold one bit for each element")


def _shared(values: Sequence[Any], records: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values, one object for equal records: calls are counted by the identity of their cases."""
    first: dict[str, Any] = {}
    return tuple(first.setdefault(canonical_json(record), value) for value, record in zip(values, records, strict=True))


def _numbered(values: Sequence[Any]) -> Converter:
    """Return the converter of values that records refer to by their position in a list."""

    def read(raw: Any) -> Any:
        if COUNT.read(raw) >= len(values):
            raise MisfitError(f"is {raw}; there are {len(values)}")
        return values[raw]

    return Converter(None, read)


def _packed(raw: Any) -> bytes:
    if not isinstance(raw, str):
        raise misfit(raw, "a text")
    try:
        return base64.b64decode(raw, validate=True)
    except ValueError as error:
        raise MisfitError(f"is not in base64: {error}") from None


def _argument_record(value: Argument) -> Any:
    """Return one argument as plain data: tensors and numbers that JSON lacks as objects."""
    if isinstance(value, Layout):
        return {"tensor": [list(value.shape), list(value.strides), value.dtype, value.offset, value.alias]}
    if isinstance(value, tuple):
        return [_argument_record(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    return value


def _argument(raw: Any) -> Argument:
    if isinstance(raw, list):
        return tuple(_argument(item) for item in raw)
    if not isinstance(raw, dict):
        if raw is None or isinstance(raw, (bool, int, float, str)):
            return raw
        raise misfit(raw, "an argument of a call")
    if "tensor" in raw:
        layout: Layout = _LAYOUTS.converter(Layout).read(raw["tensor"])
        if min((*layout.shape, layout.offset, layout.alias)) < 0:
            raise MisfitError(f"is {layout}; extents and positions are at least 0")
        return layout
    if raw.get("number") in ("nan", "inf", "-inf"):
        return float(raw["number"])
    raise misfit(raw, "a tensor or a number")


def _layout(raw: Any) -> Layout:
    layout = _argument(raw)
    if not isinstance(layout, Layout):
        raise misfit(raw, "a tensor")
    return layout


def _number(raw: Any) -> float:
    number = _argument(raw)
    if not isinstance(number, (int, float)):
        raise misfit(raw, "a number")
    return float(number)


_TYPES = {
    int: COUNT,
    bytes: Converter(lambda packed: base64.b64encode(packed).decode(), _packed),
    Layout: Converter(_argument_record, _layout),
}
_SHAPES = {
    Buffer: Shape(as_row=True, brief=("kept_bytes",), omitted={"value": None}, fields={"kind": one_of(BUFFER_KINDS)}),
    Call: Shape(names={"call_count": "count"}, brief=("case", *defaulted(Call)), fields={"phase": one_of(PHASES)}),
    Use: Shape(as_row=True, brief=("runs",)),
    Workload: Shape(
        brief=("guards", "groups", "returned", "known", "patterns", "guessed"),
        required=("buffers", "origin", "assumptions", "skipped"),
    ),
}
_ARGUMENTS = Codec(types={object: Converter(_argument_record, _argument)}).converter(tuple[tuple[str, object], ...])
_FORMS = Codec(
    types={**_TYPES, Case: CASE, float: Converter(_argument_record, _number)},
    shapes={CallLayout: Shape(fields={"arguments": _ARGUMENTS})},
)
_LAYOUTS = Codec()
