"""Cases of products, element-wise operators and copies in PyTorch profiles by their shapes alone, without PyTorch."""

import ast
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import mul
from typing import Any, NamedTuple

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.frontends.torch.workload_builder import WorkloadBuilder
from nearpeak.ops import AtenSite, aten_matchers

FORMATS: Mapping[str, str] = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16", "half": "float16",
    "long int": "int64", "long": "int64", "int": "int32", "short int": "int16", "short": "int16", "bool": "bool",
    "signed char": "int8", "unsigned char": "uint8", "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2", "c10::complex<float>": "complex64", "c10::complex<double>": "complex128",
}  # fmt: skip
"""PyTorch's formats by the names of C++ that its profiler prints."""
_REAL = ("float16", "bfloat16", "float32")
"""Formats of operands whose result has their own format."""


class Recorded(NamedTuple):
    """One operator as recorded; each list has one entry per argument of its schema."""

    name: str
    shapes: tuple[Any, ...]
    dtypes: tuple[Any, ...]
    strides: tuple[Any, ...] = ()
    concrete: tuple[Any, ...] = ()


def format_of(name: str) -> str | None:
    """Return PyTorch's name of the format that its profiler calls `name`; none if it is no tensor format.

    >>> format_of("c10::BFloat16"), format_of("Scalar")
    ('bfloat16', None)
    """
    return FORMATS.get(name)


def plain_cases(row: Recorded) -> tuple[Case, ...] | None:
    """Return the cases of an operator whose result follows from the shapes of its operands; none for all others.

    What it returns is what PyTorch dispatches for these shapes; a record that leaves a doubt is left to PyTorch.

    >>> row = Recorded("aten::mm", ((2, 3), (3, 4)), ("float", "float"))
    >>> [case.label()[:18] for case in plain_cases(row)]
    ['gemm m=2 n=4 k=3 b']
    >>> plain_cases(Recorded("aten::sort", ((2, 3), ()), ("float", "Scalar")))
    """
    operator = row.name.removeprefix("aten::")
    form = _FORMS.get(operator)
    if form is None or not row.name.startswith("aten::"):
        return None
    tensors = [_tensor(row, place) for place in range(len(form.operands))]
    known = [tensor for tensor in tensors if tensor is not None]
    if len(known) != len(tensors) or any(t.dtype != known[0].dtype for t in known[1:]):
        return None
    shape = _result(operator, [tensor.shape for tensor in known])
    if shape is None or not _ends_as_known(row, len(form.operands), form.options, shape):
        return None
    values = {name: _number(row, len(form.operands) + place) for place, name in enumerate(form.options)}
    if None in values.values():
        return None
    out = known[0] if operator.endswith("_") else Tensor(shape=shape, dtype=known[0].dtype, buffer=len(known))
    site = AtenSite(
        name=f"aten.{operator}.{form.overload}", outputs=(out,),
        args=dict(zip(form.operands, known, strict=True)) | values,
    )  # fmt: skip
    matched = WorkloadBuilder(aten_matchers()).match(site)
    cases = [case for case, count in matched.cases if case is not None and count == 1]
    return tuple(cases) if len(cases) == len(matched.cases) else None


class _Form(NamedTuple):
    """Arguments of an overload."""

    overload: str
    operands: tuple[str, ...]
    """Tensors, which come first in its schema."""
    options: tuple[str, ...] = ()
    """Numbers that come next, each 1 unless it is stated."""


_UNARY = ("relu", "silu", "tanh", "sigmoid", "neg", "exp", "sqrt", "rsqrt", "reciprocal", "abs", "sin", "cos", "erf")
_BINARY = ("mul", "div", "maximum", "minimum")
_SCALED = ("beta", "alpha")
_FORMS: Mapping[str, _Form] = {
    "mm": _Form("default", ("self", "mat2")), "bmm": _Form("default", ("self", "mat2")),
    "addmm": _Form("default", ("self", "mat1", "mat2"), _SCALED),
    "baddbmm": _Form("default", ("self", "batch1", "batch2"), _SCALED),
    **{f"{name}{twin}": _Form("default", ("self",)) for name in _UNARY for twin in ("", "_")},
    **{name: _Form("Tensor" if name in ("mul", "div") else "default", ("self", "other")) for name in _BINARY},
    **{f"{name}_": _Form("Tensor", ("self", "other")) for name in ("mul", "div")},
    **{f"{name}{twin}": _Form("Tensor", ("self", "other"), ("alpha",))
       for name in ("add", "sub") for twin in ("", "_")},
}  # fmt: skip


def _tensor(row: Recorded, place: int) -> Tensor | None:
    """Return an operand of a real format as recorded, none where it is no such tensor."""
    kind = row.dtypes[place] if place < len(row.dtypes) else None
    shape = row.shapes[place] if place < len(row.shapes) else None
    name = FORMATS.get(kind) if isinstance(kind, str) else None
    if name not in _REAL or not isinstance(shape, (tuple, list)) or not all(type(n) is int and n > 0 for n in shape):
        return None
    stated = row.strides[place] if place < len(row.strides) else ()
    whole = tuple(accumulate((1, *reversed(shape[1:])), mul))[::-1] if shape else ()
    strides = tuple(stated) if isinstance(stated, (tuple, list)) and len(stated) == len(shape) and stated else whole
    if not all(type(stride) is int and stride >= 0 for stride in strides):
        return None
    return Tensor(shape=tuple(shape), dtype=dtype_of(str(name)).name, strides=strides, buffer=place)


def _result(operator: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the shape of the result, none where the operands do not fit together."""
    if operator in ("mm", "bmm", "addmm", "baddbmm"):
        left, right = shapes[-2:]
        rank = 3 if operator.startswith("b") else 2
        if len(left) != rank or len(right) != rank or left[-1] != right[-2] or left[:-2] != right[:-2]:
            return None
        shape = (*left[:-1], right[-1])
        return shape if len(shapes) == 2 or _broadcast([shapes[0], shape]) == shape else None
    spread = _broadcast(shapes)
    return None if operator.endswith("_") and spread != shapes[0] else spread


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        return None


def _ends_as_known(row: Recorded, operand_count: int, options: Sequence[str], shape: tuple[int, ...]) -> bool:
    """Say whether nothing follows the operands but their options, and the tensor that takes the result."""
    for place, kind in enumerate(row.dtypes[operand_count:], operand_count):
        if isinstance(kind, str) and kind in FORMATS and row.shapes[place : place + 1] != ((),):
            is_last = place == len(row.dtypes) - 1
            if not is_last or kind != row.dtypes[0] or row.shapes[place : place + 1] != (shape,):
                return False
        elif kind not in ("", "Scalar", "None") or place >= operand_count + len(options):
            return False
    return True


def _number(row: Recorded, place: int) -> float | None:
    """Return the number that an option states: 1 where it was left out, none where the text is no number."""
    if place >= len(row.dtypes) or row.dtypes[place] in FORMATS:
        return 1
    text = str(row.concrete[place]).strip() if place < len(row.concrete) else ""
    try:
        value = ast.literal_eval(text) if text else 1
    except (ValueError, SyntaxError):
        return None
    return value if isinstance(value, (int, float)) else None
