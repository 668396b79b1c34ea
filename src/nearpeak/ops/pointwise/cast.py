"""Conversion of a tensor to another number format."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DTYPES, DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.definition.axis_checks import required_at_most
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.torch_names import torch_dtype


def cast(elements: int, dtype: DType, out_dtype: DType | None = None, read: int | None = None) -> Work:
    """Return the least work of writing x[elements], stored as `dtype`, in the format `out_dtype`.

    Args:
        read: distinct elements; fewer than `elements` when x is broadcast.

    Source: definition; a conversion is no FLOP.

    >>> cast(8, DType(name="fp32", bits_count=32), DType(name="bf16", bits_count=16)).write_bytes
    16
    """
    source = elements if read is None else read
    required_at_most("cast", {"elements": elements}, read=source)
    return Work(read_bytes=dtype.bytes(source), write_bytes=(out_dtype or dtype).bytes(elements))


def _reference(arrays: dict[str, Any], elements: int, read: int, out_dtype: str, **_: Any) -> dict[str, Any]:
    y = arrays["x"] if read == elements else np.resize(arrays["x"], elements)
    kind = dtype_of(out_dtype).kind
    return {"y": np.trunc(y) if kind == "int" else (y != 0) * 1 if kind == "bool" else y}


_LEAST = {"fp64": 2.0**-1074, "fp32": 2.0**-149}
"""Least numbers above 0 of formats of which a kernel might round to fewer bits: true, and 0 there."""


def _edges(dtype: str, out_dtype: str, **_: Any) -> tuple[float, ...]:
    """Return where results jump: at whole numbers, and next to 0, at the least number of the format."""
    if dtype_of(out_dtype).kind == "bool":
        return (0.0, _LEAST.get(dtype, 1.0))
    return (0.0, *(float(number) for number in range(1, 7)), 8.0)


def _torch_call(tensors: dict[str, Any], elements: int, read: int, out_dtype: str, **_: Any) -> dict[str, Any]:
    import torch

    x = tensors["x"] if read == elements else tensors["x"].expand(elements // read, read)
    return {"y": x.to(torch_dtype(torch, out_dtype), copy=True).reshape(elements)}


def _from_aten(site: AtenSite) -> Match:
    """Match _to_copy; one that keeps the format is a copy."""
    return converted(site.args["self"], site.outputs[0])


def converted(x: Tensor, out: Tensor) -> Match:
    """Return the case of copying `x` into `out`: a cast where the formats differ, else a copy."""
    arguments: dict[str, Value] = {"elements": out.elements, "read": min(x.distinct, out.elements), "dtype": x.dtype}
    if x.dtype == out.dtype:
        return Match(op="copy", arguments=arguments)
    return Match(op="cast", arguments=arguments | {"out_dtype": out.dtype})


def _from_onnx(site: OnnxSite) -> Match:
    """Match Cast and CastLike."""
    return converted(site.tensor(0), site.outputs[0])


_WHOLE = tuple(f"out_dtype={dtype.name}" for dtype in DTYPES.values() if dtype.kind == "int")
OPERATOR = Operator(
    forward=cast,
    family="pointwise",
    tolerance=Tolerance(
        kind="reduction",
        ulp_count=1,
        rounds=(
            "whole",
            "midway",
            "large",
            "midway_byte:fp8_e4m3",
            "midway_byte:fp8_e5m2",
            *(f"edges:{out}" for out in _WHOLE),
            "jumps:out_dtype=bool",
        ),
        exact=(*_WHOLE, "out_dtype=bool"),
    ),
    inputs=lambda read, dtype, **_: {"x": Tensor(shape=(read,), dtype=dtype)},
    reference=_reference,
    torch_call=_torch_call,
    edges=_edges,
    same={"read": "elements"},
    aten={"aten._to_copy.default": _from_aten},
    onnx={"Cast": _from_onnx, "CastLike": _from_onnx},
)
