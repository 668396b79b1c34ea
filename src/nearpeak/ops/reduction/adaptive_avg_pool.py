"""Adaptive average pooling, whose windows follow from the output size."""

from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError
from nearpeak.ops.shared import sliding_windows as sliding
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.array_arithmetic import ceil_div, greatest_common_divisor, unless_empty
from nearpeak.ops.shared.definition.operator import Match, OnnxSite, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance


def adaptive_avg_pool(
    batch: int, channels: int, w: int, ow: int, dtype: DType, d: int = 1, h: int = 1, od: int = 1, oh: int = 1
) -> Work:
    """Return the least work of means over windows that split d, h, w into od, oh, ow parts.

    Counts: per output, one vector FLOP per position of its window: the sum, and one product. Window i spans floor(i *
    extent / parts) to ceil((i + 1) * extent / parts), so windows overlap where the extent does not divide.

    Source: definition, as PyTorch states it.

    >>> adaptive_avg_pool(1, 2, 7, 3, DType(name="bf16", bits_count=16)).flop
    {'vector.fp32': 18}
    """
    inputs, outputs = batch * channels * d * h * w, batch * channels * od * oh * ow
    return Work(
        flop={unit(dtype): batch * channels * pairs_of(d, od) * pairs_of(h, oh) * pairs_of(w, ow)},
        read_bytes=dtype.bytes(unless_empty(outputs, inputs)),
        write_bytes=dtype.bytes(outputs),
    )


def _backward(
    batch: int, channels: int, w: int, ow: int, dtype: DType, d: int = 1, h: int = 1, od: int = 1, oh: int = 1
) -> Work:
    """Return the least work of spreading each output's gradient over its window.

    Counts: one product per output, one addition per pair after the first of each position.
    """
    inputs, outputs = batch * channels * d * h * w, batch * channels * od * oh * ow
    pairs = batch * channels * pairs_of(d, od) * pairs_of(h, oh) * pairs_of(w, ow)
    return Work(
        flop={unit(dtype): unless_empty(inputs, outputs + pairs - unless_empty(outputs, inputs))},
        read_bytes=dtype.bytes(unless_empty(inputs, outputs)),
        write_bytes=dtype.bytes(inputs),
    )


def spans_of(extent: int, parts: int) -> list[tuple[int, int]]:
    """Return the window of each part.

    >>> spans_of(7, 3)
    [(0, 3), (2, 5), (4, 7)]
    """
    return [(i * extent // parts, ceil_div((i + 1) * extent, parts)) for i in range(parts)]


def pairs_of(extent: int, parts: int) -> int:
    """Return the positions of all windows of one dimension together.

    Neighbouring windows share a position unless their border falls between two, as gcd(extent, parts) - 1 of them do.

    >>> pairs_of(7, 3)
    9
    """
    return unless_empty(extent, unless_empty(parts, extent + parts - greatest_common_divisor(extent, parts)))


@lru_cache(maxsize=8)
def _windows(extents: tuple[int, ...], parts: tuple[int, ...]) -> tuple[tuple[tuple[int, ...], Any, int], ...]:
    """Return each output position with the slice of its window and how many positions that has."""
    spans = [list(enumerate(spans_of(extent, part))) for extent, part in zip(extents, parts, strict=True)]
    return tuple(
        (tuple(i for i, _ in cell), (..., *(slice(*span) for _, span in cell)), prod(b - a for _, (a, b) in cell))
        for cell in product(*spans)
    )


def _reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    x, parts = arrays["input"], sliding.extents(arguments, "o")
    y: Any = np.zeros((*x.shape[:2], *parts))
    for place, window, _ in _windows(sliding.extents(arguments), parts):
        y[(..., *place)] = x[window].mean(axis=tuple(range(2, x.ndim)))
    return {"output": y}


def _backward_reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    grad, spread = arrays["grad_output"], np.zeros_like(arrays["input"])
    for place, window, count in _windows(sliding.extents(arguments), sliding.extents(arguments, "o")):
        part = grad[(..., *place)] / count
        spread[window] += part.reshape(*part.shape, *(1 for _ in place))
    return {"grad_input": spread}


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch.nn.functional as F  # noqa: N812

    x, parts = tensors["input"], sliding.extents(arguments, "o")
    if len(parts) == 2:
        return {"output": F.adaptive_avg_pool2d(x, parts)}
    # Of volumes PyTorch's CPU kernel (2.13) adds up in the format of its inputs: 850 roundoffs off in bf16.
    wide = x.float() if x.device.type == "cpu" and x.element_size() == 2 else x
    return {"output": F.adaptive_avg_pool3d(wide, parts).to(x.dtype)}


def _from_onnx(site: OnnxSite) -> Match:
    """Match GlobalAveragePool, and ONNX Runtime's of 8-bit numbers where channels come first."""
    x = site.tensor(0)
    if site.attributes.get("channels_last", 0):
        raise NotModelledError(f"{site.name}: channels come last")
    return Match(arguments=sliding.onnx_planes(x) | sliding.named("o", [1], len(x.shape) - 2))


_OVERLOADS = (
    "adaptive_avg_pool1d", "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d",
    "_adaptive_avg_pool3d_backward",
)  # fmt: skip

OPERATOR = Operator(
    forward=adaptive_avg_pool,
    family="reduction",
    backward=_backward,
    tolerance=Tolerance(kind="reduction", reduction="d h w"),
    inputs=sliding.pooled_input,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten={f"aten.{name}.default": sliding.adaptive_call for name in _OVERLOADS},
    onnx=dict.fromkeys(("GlobalAveragePool", "com.microsoft.QLinearGlobalAveragePool"), _from_onnx),
)
