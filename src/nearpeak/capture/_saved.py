"""A workload as JSON text and back: documented, versioned, the same bytes for the same workload."""

import base64
import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

from nearpeak.canon import canonical_json
from nearpeak.core.case import Case
from nearpeak.core.tensor import Layout
from nearpeak.core.workload import (
    BUFFER_KINDS,
    PHASES,
    SAYINGS,
    Argument,
    Buffer,
    Call,
    Form,
    Known,
    Pattern,
    Use,
    Workload,
)
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops import OPS

SCHEMA = "nearpeak.workload"
SCHEMA_VERSION = 1
# 1: name, step, origin, assumptions, skipped, cases, buffers, calls; forms where the source states arguments.


def is_workload(data: object) -> bool:
    """Say whether `data`, read from JSON, claims to be a saved workload of any version.

    >>> is_workload({"schema": "nearpeak.workload", "version": 1}), is_workload({"model_type": "llama"})
    (True, False)
    """
    return isinstance(data, dict) and data.get("schema") == SCHEMA


def save_text(workload: Workload) -> str:
    """Return `workload` as one line of JSON; each distinct case is written once."""
    numbers: dict[Case, int] = {}
    for call in workload.calls:
        if call.case is not None:
            numbers.setdefault(call.case, len(numbers))
    forms: dict[int, tuple[int, Form]] = {}  # by identity: alike calls share one form
    for call in workload.calls:
        if call.form is not None:
            forms.setdefault(id(call.form), (len(forms), call.form))
    data = {
        "schema": SCHEMA, "version": SCHEMA_VERSION, "name": workload.name, "step": workload.step,
        "origin": dict(workload.origin), "assumptions": list(workload.assumptions), "skipped": dict(workload.skipped),
        "cases": [case.record() for case in numbers],
        "buffers": [
            [one.bytes, one.kind, one.name, *([] if one.kept_bytes is None else [one.kept_bytes])]
            for one in workload.buffers
        ],
        "calls": [_call_record(call, numbers, forms) for call in workload.calls],
        **({"groups": [list(group) for group in workload.groups]} if workload.groups else {}),
    }  # fmt: skip
    if forms:
        data["forms"] = [
            {
                "arguments": [[name, _argument_record(value)] for name, value in form.arguments],
                "results": [_argument_record(layout) for layout in form.results],
            }
            for _, form in forms.values()
        ]
    known = [(number, buffer.value) for number, buffer in enumerate(workload.buffers) if buffer.value is not None]
    if known:
        data["values"] = [[number, _argument_record(value)] for number, value in known]
    if workload.guards:
        data["guards"] = list(workload.guards)
    if workload.returned:
        data["returned"] = [[number, _argument_record(layout)] for number, layout in workload.returned]
    if workload.known:
        data["known"] = [list(one) for one in workload.known]
        data["patterns"] = [[list(one.shape), base64.b64encode(one.packed).decode()] for one in workload.patterns]
    return canonical_json(data) + "\n"


def load_text(text: str, where: str) -> Workload:
    """Return the workload that `text` holds.

    Args:
        where: file name for messages.

    Raises:
        SpecError: not a saved workload, of another schema version, or damaged.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{where}: not JSON ({error}); write it with 'nearpeak capture … --out'") from None
    if not is_workload(data):
        raise SpecError(f"{where}: not a saved workload; write one with 'nearpeak capture … --out {where}'")
    version = data.get("version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise SpecError(
            f"{where}: has workload schema version {version!r}; this nearpeak reads {SCHEMA_VERSION}: capture it again"
        )
    reader = _Reader(where)
    try:
        return reader.workload(data)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, NotModelledError, zlib.error) as error:
        reason = f"missing {error}" if isinstance(error, KeyError) else str(error)
        raise SpecError(f"{where}: {reader.place}: {reason}; capture it again") from None


def _call_record(call: Call, numbers: Mapping[Case, int], forms: Mapping[int, tuple[int, Form]]) -> dict[str, Any]:
    """Return a call as plain data, without what says nothing."""
    record: dict[str, Any] = {"operator": call.operator, "phase": call.phase}
    if call.case is not None:
        record["case"] = numbers[call.case]
    if call.form is not None:
        record["form"] = [forms[id(call.form)][0], *call.storages]
    optional = {
        "module": call.module, "source": call.source, "count": call.call_count if call.call_count != 1 else 0,
        "reads": [_use_record(use) for use in call.reads], "writes": [_use_record(use) for use in call.writes],
    }  # fmt: skip
    return record | {key: value for key, value in optional.items() if value}


def _use_record(use: Use) -> list[int]:
    return [use.buffer, use.bytes, use.start_bytes, use.stop_bytes]


def _argument_record(value: Argument) -> Any:
    """Return one argument as plain data: tensors and numbers that JSON lacks as objects."""
    if isinstance(value, Layout):
        return {"tensor": [list(value.shape), list(value.strides), value.dtype, value.offset, value.alias]}
    if isinstance(value, tuple):
        return [_argument_record(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    return value


class _Reader:
    """Reads the parts of a saved workload, keeping the place for messages."""

    def __init__(self, where: str) -> None:
        self._where = where
        self.place = "header"

    def workload(self, data: Mapping[str, Any]) -> Workload:
        """Return the whole."""
        values = {_whole(number): float(_number(value)) for number, value in data.get("values", ())}
        buffers = tuple(self._buffer(index, row, values.get(index)) for index, row in enumerate(data["buffers"]))
        cases = tuple(self._case(index, record) for index, record in enumerate(data["cases"]))
        forms = tuple(self._form(index, row) for index, row in enumerate(data.get("forms", ())))
        calls = tuple(self._call(index, row, cases, forms, buffers) for index, row in enumerate(data["calls"]))
        self.place = "header"
        if not calls:
            raise ValueError("it holds no call")
        return Workload(
            name=_text(data["name"]), step=_text(data["step"]), calls=calls, buffers=buffers,
            origin={_text(key): _text(value) for key, value in data["origin"].items()},
            assumptions=tuple(_text(item) for item in data["assumptions"]),
            guards=tuple(_text(item) for item in data.get("guards", ())),
            skipped={_text(key): _whole(value) for key, value in data["skipped"].items()},
            returned=tuple(
                (_position(number, buffers, "returned"), _layout(value)) for number, value in data.get("returned", ())
            ),
            groups=tuple(_group(members, len(calls)) for members in data.get("groups", ())),
            known=tuple(_known(row, calls, len(data["patterns"])) for row in data.get("known", ())),
            patterns=tuple(_pattern(*row) for row in data.get("patterns", ())),
        )  # fmt: skip

    def _buffer(self, index: int, row: Any, value: float | None) -> Buffer:
        self.place = f"buffer {index}"
        size, kind, name, *kept = row
        kept_bytes = _whole(kept[0]) if kept else None
        return Buffer(
            bytes=_whole(size), kind=_one_of(kind, BUFFER_KINDS), name=_text(name), kept_bytes=kept_bytes, value=value
        )

    def _case(self, index: int, record: Mapping[str, Any]) -> Case:
        """Return the case through its operator, which checks names and values and writes defaults out."""
        self.place = f"case {index}"
        arguments = {key: value for key, value in record.items() if key not in ("op", "phase")}
        return OPS[_text(record["op"])].case(_text(record["phase"]), **arguments)

    def _form(self, index: int, row: Mapping[str, Any]) -> Form:
        self.place = f"form {index}"
        arguments = tuple((_text(name), _argument(value)) for name, value in row["arguments"])
        return Form(arguments=arguments, results=tuple(_layout(value) for value in row["results"]))

    def _call(
        self,
        index: int,
        row: Mapping[str, Any],
        cases: tuple[Case, ...],
        forms: tuple[Form, ...],
        buffers: tuple[Buffer, ...],
    ) -> Call:
        self.place = f"call {index}"
        number = row.get("case")
        form, *storages = row.get("form", (None,))
        return Call(
            case=None if number is None else cases[_whole(number)], operator=_text(row["operator"]),
            phase=_one_of(row["phase"], PHASES),
            module=_text(row.get("module", "")), source=_text(row.get("source", "")),
            reads=_uses(row, "reads", buffers), writes=_uses(row, "writes", buffers),
            call_count=_whole(row.get("count", 1)), storages=tuple(_position(one, buffers, "form") for one in storages),
            form=None if form is None else forms[_whole(form)],
        )  # fmt: skip


def _group(members: Any, call_count: int) -> tuple[int, ...]:
    """Return the positions of the calls that run as one kernel."""
    found = tuple(map(_whole, members))
    if not found or max(found) >= call_count:
        raise ValueError(f"a group names calls {list(found)} of {call_count}")
    return found


def _known(row: Any, calls: tuple[Call, ...], pattern_count: int) -> Known:
    """Return what is known of an operand of a call that states its arguments."""
    call, tensor, says, pattern = row
    found = Known(_whole(call), _whole(tensor), _one_of(says, SAYINGS), _whole(pattern))
    if found.call >= len(calls) or found.tensor >= len(calls[found.call].storages) or found.pattern >= pattern_count:
        raise ValueError(f"{found} names a call, a tensor or a pattern that is not there")
    return found


def _pattern(shape: Any, packed: Any) -> Pattern:
    """Return a set of elements, checked to hold as many bits as its extents say."""
    found = Pattern(tuple(map(_whole, shape)), base64.b64decode(_text(packed), validate=True))
    most = -(-math.prod(found.shape) // 8)
    opened = zlib.decompressobj()
    if len(opened.decompress(found.packed, most + 1)) != most:
        raise ValueError(f"a pattern of {found.shape} does not hold one bit for each element")
    return found


def _uses(row: Mapping[str, Any], key: str, buffers: tuple[Buffer, ...]) -> tuple[Use, ...]:
    found = []
    for entry in row.get(key, ()):
        buffer, size, start, stop = map(_whole, entry)
        found.append(Use(buffer=_position(buffer, buffers, key), bytes=size, start_bytes=start, stop_bytes=stop))
    return tuple(found)


def _position(value: object, buffers: tuple[Buffer, ...], where: str) -> int:
    number = _whole(value)
    if number >= len(buffers):
        raise ValueError(f"{where} buffer {number} of {len(buffers)}")
    return number


def _layout(value: Any) -> Layout:
    found = _argument(value)
    if not isinstance(found, Layout):
        raise ValueError(f"{value!r} is not a tensor")  # noqa: TRY004 (one kind of error for a damaged file)
    return found


def _number(value: Any) -> float:
    found = _argument(value)
    if not isinstance(found, (int, float)):
        raise ValueError(f"{value!r} is not a number")  # noqa: TRY004 (one kind of error for a damaged file)
    return found


def _argument(value: Any) -> Argument:
    if isinstance(value, dict) and "tensor" in value:
        shape, strides, dtype, offset, alias = value["tensor"]
        return Layout(tuple(map(_whole, shape)), tuple(map(int, strides)), _text(dtype), _whole(offset), _whole(alias))
    if isinstance(value, dict):
        return float(_text(value["number"]))
    if isinstance(value, list):
        return tuple(_argument(item) for item in value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(f"{value!r} is no argument of a call")


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a whole number of at least 0")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")  # noqa: TRY004 (one kind of error for a damaged file)
    return value


def _one_of(value: object, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ValueError(f"{value!r} is not one of {', '.join(known)}")
    return str(value)
