"""Axes, shapes, padding and slices of the sliding windows of convolution and pooling."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.errors import NotModelledError
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite
from nearpeak.ops.shared.window_taps import AXES, Taps, output_extent, windows

ENDS = {f"p{axis}_end": f"p{axis}" for axis in AXES}
"""Padding at the end defaults to that at the beginning."""


def rank(arguments: Mapping[str, Any]) -> int:
    """Return 3 when the depth takes part, else 2."""
    neutral = {"d": 1, "kd": 1, "pd": 0, "pd_end": 0, "od": 0 if "sd" in arguments else 1}
    return 2 if all(arguments.get(name, value) == value for name, value in neutral.items()) else 3


def extents(arguments: Mapping[str, Any], prefix: str = "", suffix: str = "") -> tuple[int, ...]:
    """Return the axes with that prefix and suffix, depth left out where it takes no part.

    >>> extents({"d": 1, "h": 4, "w": 5})
    (4, 5)
    """
    return tuple(arguments[f"{prefix}{axis}{suffix}"] for axis in AXES[-rank(arguments) :])


def outputs(arguments: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the output extents of windows sliding over the input."""
    columns = (extents(arguments, prefix) for prefix in ("", "k", "s", "p"))
    dilations = extents(arguments, "d") if "dw" in arguments else (1,) * rank(arguments)
    ends = extents(arguments, "p", "_end")
    rows = zip(*columns, ends, dilations, strict=True)
    return tuple(output_extent(*row, ceil=arguments.get("ceil", False)) for row in rows)


def tap_slices(arguments: Mapping[str, Any], steps: Sequence[int]) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield each tap with the slice of the padded array that it meets when the window takes `steps`."""
    strides = extents(arguments, "s")
    dilations = extents(arguments, "d") if "dw" in arguments else (1,) * rank(arguments)
    for tap in product(*(range(kernel) for kernel in extents(arguments, "k"))):
        starts = (place * dilation for place, dilation in zip(tap, dilations, strict=True))
        rows = zip(starts, strides, steps, strict=True)
        yield tap, (..., *(slice(start, start + stride * count, stride) for start, stride, count in rows))


def padded(arguments: Mapping[str, Any], array: Any, value: float = 0.0) -> Any:
    """Return the array with `value` around its last dimensions, wide enough for every window."""
    strides = extents(arguments, "s")
    overhang = strides if arguments.get("ceil", False) else (0,) * len(strides)
    sides = zip(extents(arguments, "p"), extents(arguments, "p", "_end"), overhang, strict=True)
    widths = [(0, 0)] * (array.ndim - len(strides)) + [(begin, end + over) for begin, end, over in sides]
    return np.pad(array, widths, constant_values=value)


def inner(arguments: Mapping[str, Any], array: Any) -> Any:
    """Return the part of a padded array that is the input."""
    sides = zip(extents(arguments, "p"), extents(arguments), strict=True)
    return array[(..., *(slice(begin, begin + size) for begin, size in sides))]


def named(prefix: str, values: Sequence[int], dimensions: int, suffix: str = "") -> dict[str, int]:
    """Return the values as axes; a single value holds for all dimensions.

    >>> named("s", [2], 2)
    {'sh': 2, 'sw': 2}
    """
    if dimensions > len(AXES):
        raise NotModelledError(f"window: {dimensions} spatial dimensions; at most {len(AXES)} are modelled")
    spread = list(values) * dimensions if len(values) == 1 else list(values)
    return {f"{prefix}{axis}{suffix}": int(v) for axis, v in zip(AXES[-dimensions:], spread, strict=True)}


def onnx_window(site: OnnxSite, kernel: Sequence[int]) -> dict[str, int]:
    """Return kernel, strides, dilations and padding of an ONNX node as axes."""
    count, attributes = len(kernel), site.attributes
    strides = tuple(attributes.get("strides") or (1,) * count)
    dilations = tuple(attributes.get("dilations") or (1,) * count)
    pads = tuple(attributes.get("pads") or (0,) * 2 * count)
    auto = str(attributes.get("auto_pad", "NOTSET"))
    if auto.startswith("SAME"):
        source = site.tensor(0)
        rows = zip(source.shape[-count:], kernel, strides, dilations, strict=True)
        totals = [max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n) for n, k, s, d in rows]
        halves = [total // 2 if auto == "SAME_UPPER" else total - total // 2 for total in totals]
        pads = (*halves, *(total - half for total, half in zip(totals, halves, strict=True)))
    return (
        named("k", kernel, count) | named("s", strides, count) | named("d", dilations, count)
        | named("p", pads[:count], count) | named("p", pads[count:], count, "_end")
    )  # fmt: skip


LAYOUTS = ("channels_first", "channels_last")


def layout_of(tensor: Tensor) -> str:
    """Return `channels_last` when the channel is the fastest dimension, else `channels_first`."""
    strides = tensor.strides
    last = strides is not None and len(strides) > 2 and strides[1] == 1 and tensor.shape[1] > 1 and strides[-1] != 1
    return "channels_last" if last else "channels_first"


def strides_of(shape: tuple[int, ...], layout: str) -> tuple[int, ...] | None:
    """Return the strides of a dense array in that layout; none where it is contiguous."""
    if layout == "channels_first":
        return None
    order = (1, *range(len(shape) - 1, 1, -1), 0)
    strides, step = [0] * len(shape), 1
    for dimension in order:
        strides[dimension], step = step, step * shape[dimension]
    return tuple(strides)


def partly_touched(name: str, tensor: Tensor, count: int) -> dict[str, int]:
    """Return the touched bytes of an input where they are fewer than all."""
    return {name: dtype_of(tensor.dtype).bytes(count)} if count < tensor.distinct else {}


def reach_of(arguments: Mapping[str, Any]) -> Taps:
    """Return the taps of a matched call; missing arguments have their defaults."""
    known = {f"s{axis}": arguments.get(f"k{axis}", 1) for axis in AXES} | dict(arguments)
    rows = [
        (*(known.get(f"{prefix}{axis}", 1) for prefix in ("", "k", "s")), known.get(f"p{axis}", 0),
         known.get(f"p{axis}_end"), known.get(f"d{axis}", 1))
        for axis in AXES
    ]  # fmt: skip
    return windows(*rows, ceil=bool(known.get("ceil", False)))


def touched(arguments: Mapping[str, Any], x: Tensor, name: str) -> dict[str, int]:
    """Return the touched bytes of the input of a pooling where they are fewer than all."""
    planes_count = arguments["batch"] * arguments["channels"]
    return partly_touched(name, x, planes_count * reach_of(arguments).touched_count)


def pooled_input(**arguments: Any) -> dict[str, Tensor]:
    """Return the input [batch, channels, ...] of a pooling."""
    shape = (arguments["batch"], arguments["channels"], *extents(arguments))
    return {"input": Tensor(shape=shape, dtype=arguments["dtype"])}


def window_rank(site: AtenSite) -> int:
    """Return the number of pooled dimensions, which the overload's name states; TorchInductor's list them all."""
    stated = (count for count in (1, 2, 3) if f"pool{count}d" in site.name)
    return next(stated, None) or len(site.args["kernel_size"])


def pooled(site: AtenSite, x: Tensor) -> dict[str, Any]:
    """Return the arguments that all windowed poolings of ATen share; leading dimensions fold into the batch."""
    count = window_rank(site)
    kernel = site.args["kernel_size"]
    window = named("k", kernel, count) | named("s", site.args["stride"] or kernel, count)
    padding = named("p", site.args["padding"], count)
    ceil = {"ceil": bool(site.args["ceil_mode"])}
    return planes(x, count) | named("", x.shape[-count:], count) | window | padding | ceil


def planes(x: Tensor, count: int) -> dict[str, Any]:
    """Return batch, channels and format of a tensor whose last `count` dimensions are pooled."""
    return {"batch": prod(x.shape[: -count - 1]), "channels": x.shape[-count - 1], "dtype": x.dtype}


def partition(site: AtenSite) -> dict[str, Any]:
    """Return planes, extents and output extents of a call whose windows follow from these, or of its gradient."""
    x, count = site.args["self"], window_rank(site)
    output = site.args["grad_output"] if "grad_output" in site.args else site.outputs[0]
    parts = named("o", output.shape[-count:], count)
    return planes(x, count) | named("", x.shape[-count:], count) | parts


def adaptive_call(site: AtenSite) -> Match:
    """Match an adaptive pooling, or its gradient, which does not read the input."""
    back = "grad_output" in site.args
    touched = {"self": 0} if back else {}
    return Match(arguments=partition(site), phase="backward" if back else "forward", touched_bytes=touched)


def onnx_planes(x: Tensor) -> dict[str, Any]:
    """Return batch, channels, format and extents of an ONNX tensor [N, C, ...]."""
    count = len(x.shape) - 2
    return planes(x, count) | named("", x.shape[2:], count)


def onnx_pooled(site: OnnxSite, x: Tensor) -> dict[str, Any]:
    """Return the arguments that all windowed poolings of ONNX share."""
    window = onnx_window(site, site.attributes["kernel_shape"])
    return onnx_planes(x) | window | {"ceil": bool(site.attributes.get("ceil_mode", 0))}
