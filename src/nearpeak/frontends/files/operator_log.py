"""Import of operator-input logs of TorchInductor and TritonBench: operators, arguments and call counts."""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from nearpeak.base.input_files import check_line_count, text_of_file
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import SpecError
from nearpeak.frontends.files.log_strides import lying
from nearpeak.frontends.torch.fake_tensors import require_torch
from nearpeak.frontends.torch.module_capture import fake_world
from nearpeak.units import counted

_OPERATOR = re.compile(r"Operator:\s*(\S+)\s*$")
_ROW = re.compile(r"cnt:\s*(\d{1,15})\s*,\s*(.*)$")
_FORMATS = {
    "f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "u8": "uint8", "b8": "bool", "c32": "complex32", "c64": "complex64",
    "c128": "complex128",
}  # fmt: skip
_NUMBERS = {"inf": float("inf"), "nan": float("nan")}
_SHOWN = 5
_OUTSIDE = ("from_file", "save", "_print")
"""Operators with side effects outside the process, which are not run."""


class _UnreadableError(Exception):
    """A row that cannot be read, with the reason."""


class _Row(NamedTuple):
    """One line of the log."""

    number: int
    operator: str
    call_count: int
    arguments: str


def capture_op_log(path: Path) -> Workload:
    """Return the rows of an operator log as unrelated calls with their counts.

    A log holds lines `Operator: aten.mm.default`, each followed by lines `cnt: 12, ((T([2, 4], f16), …), {…})`, where
    `T(shape, format, stride=…)` is a tensor. Each row is dispatched once, on tensors without memory; nothing in the
    file is executed. Views launch nothing and are counted apart. A row that cannot be read and one that no operator of
    the catalogue matches are uncovered calls; unreadable lines are named among the assumptions. Strides become
    layouts of the case's inputs where such a layout exists; other calls are taken for dense and counted.

    Raises:
        SpecError: the file is missing or holds no row of a log.
        MissingExtraError: PyTorch is not installed.
    """
    require_torch()
    if not path.is_file():
        raise SpecError(f"{path}: no such file; give a log of operator inputs")
    text = text_of_file(path, errors="replace")
    check_line_count(text, path)
    rows, unread = _lines(text)
    rejected = Counter(unread)
    calls: list[Call] = []
    lost: list[Call] = []
    skipped: Counter[str] = Counter()
    dense: Counter[str] = Counter()
    with fake_world(None) as world:
        for row in rows:
            try:
                calls += _calls(world, row, path.name, skipped, dense)
            except _UnreadableError as error:
                rejected[f"{error} (line {row.number})"] += 1
                if row.call_count:  # counts as uncovered among all calls
                    place = f"{path.name}:{row.number}"
                    lost.append(
                        Call(
                            case=None, operator=row.operator, phase=_phase(row), source=place, call_count=row.call_count
                        )
                    )
    if not calls:
        raise SpecError(
            f"{path}: no row of it can be read; rows look like 'cnt: 1, ((T([2, 4], f16),), {{}})'{_why(rejected)}"
        )
    notes = [f"{counted(rejected.total(), 'line')} could not be read{_why(rejected)}"] if rejected else []
    origin = {"kind": "operator log", "file": path.name, "rows": str(len(rows)),
              "calls": str(sum(row.call_count for row in rows)), **({"unread": notes[0]} if notes else {})}  # fmt: skip
    if dense:
        verb = "is" if dense.total() == 1 else "are"
        origin["strides"] = f"{counted(dense.total(), 'call')} {verb} taken for dense{_why(dense)}"
    return Workload(
        name=path.stem, step="sweep", calls=(*calls, *lost), origin=origin, assumptions=tuple(notes),
        skipped=dict(sorted(skipped.items())),
    )  # fmt: skip


def _why(rejected: Counter[str]) -> str:
    shown = "; ".join(list(rejected)[:_SHOWN])
    return f": {shown}{' …' if len(rejected) > _SHOWN else ''}" if rejected else ""


def _lines(text: str) -> tuple[list[_Row], list[str]]:
    """Return the rows, and descriptions of the lines that cannot be read."""
    rows: list[_Row] = []
    unread: list[str] = []
    operator = ""
    for number, line in enumerate(text.splitlines(), start=1):
        named, row = _OPERATOR.search(line), _ROW.search(line)
        if named:
            operator = named.group(1)
        elif row and operator:
            rows.append(_Row(number, operator, int(row.group(1)), row.group(2)))
        elif line.strip():
            unread.append(f"line {number}: {line.strip()[:40]!r}")
    return rows, unread


def _calls(world: Any, row: _Row, file: str, skipped: Counter[str], dense: Counter[str]) -> Iterator[Call]:
    """Yield the calls that one row dispatches, with the log's count."""
    import torch

    function = _function(torch, row.operator)
    args, kwargs = _parsed(row.arguments)
    builder = world.recorder.builder
    before = Counter(builder.skipped)
    try:
        with world.recorder.detached("forward") as made:
            function(*args, **kwargs)
    except Exception as error:  # PyTorch raises exceptions of any type; the row is at fault
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise _UnreadableError(f"{row.operator}: {reason}") from None
    for name, count in (Counter(builder.skipped) - before).items():
        skipped[name] += count * row.call_count
    from torch.utils._pytree import tree_leaves

    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    for call in made:
        case, is_exact = lying(call.case, tensors) if call.case is not None else (None, True)
        if not is_exact:
            dense[f"{row.operator} (line {row.number})"] += call.call_count * row.call_count
        yield replace(
            call, case=case, phase=_phase(row), module="", source=f"{file}:{row.number}", reads=(), writes=(),
            call_count=call.call_count * row.call_count,
        )  # fmt: skip


def _phase(row: _Row) -> str:
    return "backward" if "backward" in row.operator else "forward"


def _function(torch: Any, name: str) -> Any:
    parts = name.split(".")
    if parts[0] in ("aten", "prims", "torchvision") and len(parts) in (2, 3) and parts[1] not in _OUTSIDE:
        packet = getattr(getattr(torch.ops, parts[0]), parts[1], None)
        overload = getattr(packet, parts[2] if len(parts) == 3 else "default", None)
        if overload is not None:
            return overload
    raise _UnreadableError(f"operator {name} is not known to this PyTorch")


def _parsed(text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments; the text is parsed as literals and never executed."""
    try:
        value = _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _UnreadableError("arguments are no literals") from None
    match value:
        case (tuple() as args, dict() as kwargs):
            return args, {key: item for key, item in kwargs.items() if key not in ("device", "layout", "pin_memory")}
        case _:
            raise _UnreadableError("a row is ((arguments), {keywords})")


def _value(node: Any) -> Any:
    """Return the value of one literal of the log."""
    read = _READERS.get(type(node))
    if read is None:
        raise _UnreadableError(f"{ast.unparse(node)[:40]} is no literal of a log")
    return read(node)


def _called(node: ast.Call) -> Any:
    """Return a tensor `T(…)`, or none for a device."""
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name not in ("T", "device"):
        raise _UnreadableError(f"{ast.unparse(node)[:40]} is neither a tensor nor a device")
    return _tensor(node) if name == "T" else None


def _negative(node: ast.UnaryOp) -> Any:
    value = _value(node.operand)
    if isinstance(node.op, ast.USub) and isinstance(value, (int, float, complex)):
        return -value
    raise _UnreadableError("minus stands before something that is no number")


def _named(node: ast.Name) -> Any:
    import torch

    name = node.id
    if name in _NUMBERS:
        return _NUMBERS[name]
    if name not in _FORMATS:
        raise _UnreadableError(f"format {name!r} is not one of {', '.join(_FORMATS)}")
    return getattr(torch, _FORMATS[name])


def _option(node: ast.Attribute) -> Any:
    """Return a format, memory format or layout of PyTorch, written `torch.float32`."""
    import torch

    name = node.attr
    option = getattr(torch, name, None)
    if ast.unparse(node.value) == "torch" and isinstance(option, (torch.dtype, torch.memory_format, torch.layout)):
        return option
    raise _UnreadableError(f"torch.{name} is no format")


def _tensor(node: ast.Call) -> Any:
    """Return the tensor without memory that `T(shape, format, stride=…)` describes; contiguous without strides."""
    import torch

    arguments = [_value(item) for item in node.args]
    options = {word.arg: _value(word.value) for word in node.keywords}
    if len(arguments) != 2 or set(options) - {"stride"} or not isinstance(arguments[1], torch.dtype):
        raise _UnreadableError(f"{ast.unparse(node)[:60]} is not T(shape, format) or T(shape, format, stride=…)")
    shape, dtype = arguments
    extents = [*shape, *options.get("stride", ())] if isinstance(shape, list) else [None]
    if not all(type(extent) is int and 0 <= extent <= 1 << 40 for extent in extents):
        raise _UnreadableError(f"{ast.unparse(node)[:60]}: extents and strides are whole numbers")
    if "stride" in options:
        return torch.empty_strided(shape, options["stride"], dtype=dtype)
    return torch.empty(shape, dtype=dtype)


_READERS: dict[type, Callable[[Any], Any]] = {
    ast.Constant: lambda node: node.value,
    ast.Tuple: lambda node: tuple(map(_value, node.elts)),
    ast.List: lambda node: list(map(_value, node.elts)),
    ast.Dict: lambda node: {_value(key): _value(item) for key, item in zip(node.keys, node.values, strict=True)},
    ast.UnaryOp: _negative, ast.Name: _named, ast.Attribute: _option, ast.Call: _called,
}  # fmt: skip
