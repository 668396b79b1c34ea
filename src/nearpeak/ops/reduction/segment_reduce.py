"""Sums, means and extrema of segments of consecutive rows."""

from functools import partial
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.array_arithmetic import maximum
from nearpeak.ops.shared.definition.axis_checks import required_one_of
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance

FUNCTIONS = ("sum", "mean", "prod", "max", "min")
_OF_NONE = {"max": {"initial": -np.inf}, "min": {"initial": np.inf}}
"""What an extremum of a segment without rows is, as PyTorch has it."""


@free_when_empty
def segment_reduce(
    rows: int, segments: int, width: int, dtype: DType, function: str = "sum", index_dtype: str = "int64"
) -> Work:
    """Return the least work of y[segment] = function of the rows x[row,width] of the segment.

    Counts: at least rows - segments FLOP per column, as a segment of n rows takes n - 1; a mean one special evaluation
    per result more.

    Args:
        function: sum, mean, prod, max or min.

    Source: definition, as PyTorch states it.

    >>> segment_reduce(8, 2, 4, DType(name="fp32", bits_count=32)).flop
    {'vector.fp32': 24}
    """
    required_one_of("segment_reduce", FUNCTIONS, function=function)
    return Work(
        flop={unit(dtype): maximum(rows - segments, 0) * width},
        special_count=segments * width if function == "mean" else 0,
        read_bytes=dtype.bytes(rows * width) + dtype_of(index_dtype).bytes(segments),
        write_bytes=dtype.bytes(segments * width),
    )


@free_when_empty
def _backward(
    rows: int, segments: int, width: int, dtype: DType, function: str = "sum", index_dtype: str = "int64"
) -> Work:
    """Return the least work of the gradient of the rows.

    Counts: a mean one special evaluation per result; extrema read rows and results to know where the gradient goes,
    products them for the quotients, one special evaluation per row and column.
    """
    required_one_of("segment_reduce", FUNCTIONS, function=function)
    compared = function in ("max", "min", "prod")
    return Work(
        special_count=(segments * width if function == "mean" else 0) + (rows * width if function == "prod" else 0),
        read_bytes=dtype.bytes(segments * width)
        + dtype_of(index_dtype).bytes(segments)
        + (dtype.bytes((rows + segments) * width) if compared else 0),
        write_bytes=dtype.bytes(rows * width),
    )


def _valid(drawn: dict[str, Any], rows: int, segments: int, function: str, **_: Any) -> dict[str, Any]:
    """Return how many rows each segment has: one at least if they suffice, and more as the drawn numbers are large.

    A segment that is drawn 0 has no rows, except for means. What is largest or smallest has no equals: whose
    gradient it is would be a matter of choice.
    """
    numbers = drawn["lengths"] if drawn["lengths"].any() else np.ones_like(drawn["lengths"])
    some = (numbers > 0) | (function == "mean")
    least = some * int(rows >= segments)
    quotas = numbers / max(numbers.sum(), 1) * (rows - least.sum())
    lengths = least + np.floor(quotas).astype(np.int64)
    left = np.argsort(np.floor(quotas) - quotas, kind="stable")[: rows - lengths.sum()]
    lengths[left] += 1  # to the largest remainders: few rows lie in different segments
    valid = {"lengths": lengths}
    if function not in _OF_NONE:
        return valid
    return valid | {"x": np.concatenate([_alone(part, function) for part in _parts(drawn | valid)])}


def _alone(part: Any, function: str) -> Any:
    """Return a segment of which bf16 tells the best number of each column from the others.

    Those next to it are moved by a quarter, whole ones by one; large ones, as at the ends of a format, stay.
    """
    if not len(part):
        return part
    away = -1.0 if function == "max" else 1.0
    first = getattr(np, f"arg{function}")(part, axis=0)
    best = np.take_along_axis(part, first[None], 0)
    near = (np.abs(part - best) <= _APART * np.abs(best)) & (np.abs(part) < _MOST)
    np.put_along_axis(near, first[None], False, 0)
    steps = np.where(part == np.round(part), 1.0, np.abs(part) / 4)
    return np.where(near, part + away * steps, part)


_APART = 2.0**-7
"""Relative difference that bf16 resolves: the spacing of 8 significant bits (IEEE 754)."""
_MOST = 2.0**11
"""What leaves whole numbers and quarters inside fp16."""


def _parts(arrays: dict[str, Any]) -> list[Any]:
    return np.split(arrays["x"], np.cumsum(arrays["lengths"])[:-1])


def _reference(arrays: dict[str, Any], function: str, **_: Any) -> dict[str, Any]:
    reduced = partial(getattr(np, function), axis=0, **_OF_NONE.get(function, {}))
    return {"y": np.stack([reduced(part) for part in _parts(arrays)])}


def _backward_reference(arrays: dict[str, Any], function: str, **_: Any) -> dict[str, Any]:
    parts = _parts(arrays)
    slopes: dict[str, Any] = {
        "sum": np.ones_like, "mean": lambda part: np.ones_like(part) / len(part),
        "prod": lambda part: part.prod(0) / part,
        "max": lambda part: 1.0 * (part == part.max(0, **_OF_NONE["max"])),
        "min": lambda part: 1.0 * (part == part.min(0, **_OF_NONE["min"])),
    }  # fmt: skip
    pairs = zip(parts, arrays["grad_y"], strict=True)
    return {"grad_x": np.concatenate([slopes[function](part) * grad for part, grad in pairs])}


def _torch_call(tensors: dict[str, Any], function: str, **_: Any) -> dict[str, Any]:
    import torch

    return {"y": torch.segment_reduce(tensors["x"], function, lengths=tensors["lengths"], axis=0)}


def _from_aten(site: AtenSite) -> Match:
    """Match segment_reduce and its gradient; how long the segments are is not known."""
    x, back = site.args["data"], "backward" in site.name
    out = site.args["output"] if back else site.outputs[0]
    index = site.args["lengths"] if site.args.get("lengths") is not None else site.args["offsets"]
    axis = site.args.get("axis", 0)
    rows, segments = x.shape[axis], out.shape[axis]
    arguments: dict[str, Value] = {
        "rows": rows, "segments": segments, "width": x.elements // rows if rows else 0, "dtype": x.dtype,
        "function": site.args["reduce"], "index_dtype": index.dtype,
    }  # fmt: skip
    compared = site.args["reduce"] in ("max", "min", "prod")
    unread = {} if compared or not back else {"data": 0, "output": 0}
    return Match(arguments=arguments, phase="backward" if back else "forward", touched_bytes=unread)


OPERATOR = Operator(
    forward=segment_reduce,
    family="reduction",
    backward=_backward,
    tolerance=Tolerance(
        kind="normalisation",
        reduction="rows",
        steps_count=2,
        exact=("max", "min"),
        rounds=("gaps", "deep:max", "high:min"),
    ),
    inputs=lambda rows, segments, width, dtype, index_dtype, **_: {
        "x": Tensor(shape=(rows, width), dtype=dtype),
        "lengths": Tensor(shape=(segments,), dtype=index_dtype),
    },
    valid=_valid,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten={f"aten.{name}.default": _from_aten for name in ("segment_reduce", "_segment_reduce_backward")},
)
