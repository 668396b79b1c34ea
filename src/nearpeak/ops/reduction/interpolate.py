"""Resampling of lines, images and volumes: nearest, linear and cubic interpolation."""

from collections.abc import Mapping
from itertools import permutations
from math import floor, prod
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.array_arithmetic import maximum, minimum, unless_empty, where
from nearpeak.ops.shared.definition.axis_checks import required_one_of
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance

_FLOP: Mapping[str, int] = {"nearest": 0, "linear": 3, "cubic": 7}
"""FLOP of one value between its neighbours along one dimension: a + t * (b - a), or four products and three sums."""
_CUBIC = -0.75
"""Keys' parameter as PyTorch and ONNX set it."""


def interpolate(
    planes: int, w: int, ow: int, dtype: DType, h: int = 1, oh: int = 1, d: int = 1, od: int = 1, mode: str = "nearest"
) -> Work:
    """Return the least work of resizing planes of d x h x w to od x oh x ow.

    Counts: linear 3 FLOP per value and dimension that changes, cubic 7, one dimension after the other in the cheaper
    order; how corners are aligned changes weights only. When the plane shrinks, at least one row and column of the
    input per row and column of the output is read.

    Args:
        mode: nearest, linear or cubic.

    Source: Keys 1981, doi:10.1109/TASSP.1981.1163711; definitions as PyTorch states them.

    >>> interpolate(1, 4, 8, DType(name="fp32", bits_count=32), h=4, oh=8, mode="linear").flop
    {'vector.fp32': 288}
    """
    flop = planes * _values((d, od), (h, oh), (w, ow)) * _cost(mode)
    return Work(
        flop={unit(dtype): flop} if _cost(mode) else {},
        read_bytes=dtype.bytes(planes * minimum(d, od) * minimum(h, oh) * minimum(w, ow)),
        write_bytes=dtype.bytes(planes * od * oh * ow),
    )


def _backward(
    planes: int, w: int, ow: int, dtype: DType, h: int = 1, oh: int = 1, d: int = 1, od: int = 1, mode: str = "nearest"
) -> Work:
    """Return the least work of the input's gradient: the transposed interpolation.

    Counts: as forward; nearest one FLOP for every output beyond the first of an input.
    """
    inputs = planes * d * h * w
    sums = planes * maximum(od * oh * ow - minimum(d, od) * minimum(h, oh) * minimum(w, ow), 0)
    flop = planes * _values((d, od), (h, oh), (w, ow)) * _cost(mode) if _cost(mode) else sums
    return Work(
        flop={unit(dtype): unless_empty(inputs, flop)},
        read_bytes=dtype.bytes(unless_empty(inputs, planes * od * oh * ow)),
        write_bytes=dtype.bytes(inputs),
    )


def _cost(mode: str) -> int:
    required_one_of("interpolate", _FLOP, mode=mode)
    return _FLOP[mode]


def _values(*sizes: tuple[int, int]) -> int:
    """Return the values interpolated along one dimension after the other, in the cheapest order.

    >>> _values((4, 8), (4, 2))
    24
    """
    totals = []
    for order in permutations(sizes):
        total = 0
        for step, (size, wanted) in enumerate(order):
            values = prod([*(out for _, out in order[: step + 1]), *(minimum(*pair) for pair in order[step + 1 :])])
            total = total + where(size == wanted, 0, values)
        totals.append(total)
    least = totals[0]
    for count in totals[1:]:
        least = minimum(least, count)
    return least


def _is_volume(d: int, od: int) -> bool:
    return (d, od) != (1, 1)


def _weights(size: int, wanted: int, mode: str) -> Any:
    """Return the matrix [wanted, size] that interpolates one dimension, pixel centres at half integers."""
    matrix = np.zeros((wanted, size))
    for out in range(wanted):
        if mode == "nearest":
            matrix[out, min(size - 1, out * size // wanted)] = 1
            continue
        centre = (out + 0.5) * size / wanted - 0.5
        centre = max(0.0, centre) if mode == "linear" else centre
        first, taps = floor(centre), (0, 1) if mode == "linear" else (-1, 0, 1, 2)
        for tap in taps:
            distance = abs(centre - first - tap)
            weight = 1 - distance if mode == "linear" else _cubic(distance)
            matrix[out, min(size - 1, max(0, first + tap))] += weight
    return matrix


def _cubic(distance: float) -> float:
    """Return Keys' kernel at `distance` from its centre."""
    if distance <= 1:
        return ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance * distance + 1
    return ((_CUBIC * distance - 5 * _CUBIC) * distance + 8 * _CUBIC) * distance - 4 * _CUBIC


def _resized(x: Any, arguments: dict[str, Any], *, back: bool) -> Any:
    """Return x with each dimension multiplied by its matrix of weights, or by its transposed."""
    for axis, name in (("w", -1), ("h", -2), ("d", -3)):
        if axis == "d" and not _is_volume(arguments["d"], arguments["od"]):
            continue
        matrix = _weights(arguments[axis], arguments[f"o{axis}"], arguments["mode"])
        x = np.moveaxis(np.moveaxis(x, name, -1) @ (matrix if back else matrix.T), -1, name)
    return x


def _torch_call(tensors: dict[str, Any], od: int, oh: int, ow: int, mode: str, **_: Any) -> dict[str, Any]:
    import torch

    volume = len(tensors["x"].shape) == 5
    name = {"linear": "trilinear" if volume else "bilinear", "cubic": "bicubic"}.get(mode, mode)
    size = (od, oh, ow) if volume else (oh, ow)
    corners = None if mode == "nearest" else False
    return {"y": torch.nn.functional.interpolate(tensors["x"], size=size, mode=name, align_corners=corners)}


def _match(shape: tuple[int, ...], wanted: tuple[int, ...], dtype: str, mode: str) -> dict[str, Value]:
    """Return the arguments for a tensor [batch, channels, ((depth,) height,) width]; other ranks have no rule."""
    if len(shape) not in (3, 4, 5) or shape[:2] != wanted[:2]:
        raise NotModelledError(f"interpolate: no rule from {shape} to {wanted}; one to three dimensions change")
    axes = ("d", "h", "w")[5 - len(shape) :]
    sizes: dict[str, Value] = dict(zip(axes, shape[2:], strict=True))
    sizes |= {f"o{axis}": size for axis, size in zip(axes, wanted[2:], strict=True)}
    return {"planes": shape[0] * shape[1], "dtype": dtype, "mode": mode, **sizes}


_MODES = {
    "upsample_nearest1d": "nearest", "upsample_nearest2d": "nearest", "_upsample_nearest_exact1d": "nearest",
    "_upsample_nearest_exact2d": "nearest", "upsample_linear1d": "linear", "upsample_bilinear2d": "linear",
    "upsample_bicubic2d": "cubic", "upsample_nearest3d": "nearest", "_upsample_nearest_exact3d": "nearest",
    "upsample_trilinear3d": "linear", "_upsample_bilinear2d_aa": "linear", "_upsample_bicubic2d_aa": "cubic",
}  # fmt: skip


def _from_aten(site: AtenSite) -> Match:
    """Match the upsample operators and their gradients."""
    packet = site.name.split(".")[1]
    mode, out = _MODES[packet.removesuffix("_backward")], site.outputs[0]
    if packet.endswith("_backward"):
        grad = site.args["grad_output"]
        return Match(arguments=_match(out.shape, grad.shape, grad.dtype, mode), phase="backward")
    x = site.args["self"] if "self" in site.args else site.args["input"]
    name = "self" if "self" in site.args else "input"
    return Match(arguments=_match(x.shape, out.shape, x.dtype, mode), touched_bytes={name: _touched(x, out)})


def _touched(x: Tensor, out: Tensor) -> int:
    count = 1
    for have, wanted in zip(x.shape, out.shape, strict=True):
        count *= min(have, wanted)
    return min(x.bytes, dtype_of(x.dtype).bytes(count))


def _from_onnx(site: OnnxSite) -> Match:
    """Match Resize and Upsample; scales and sizes travel with the launch."""
    x, out = site.tensor(0), site.outputs[0]
    mode = {"bilinear": "linear"}.get(site.attributes.get("mode", "nearest"), site.attributes.get("mode", "nearest"))
    touched = {"0": _touched(x, out)} | {str(i): 0 for i in range(1, len(site.inputs))}
    return Match(arguments=_match(x.shape, out.shape, x.dtype, mode), touched_bytes=touched)


OPERATOR = Operator(
    forward=interpolate,
    family="reduction",
    backward=_backward,
    tolerance=Tolerance(kind="sampling", reduction="d h w", special="unspecified", steps_count=2),
    inputs=lambda planes, d, h, w, od, dtype, **_: {
        "x": Tensor(shape=(1, planes, *((d,) if _is_volume(d, od) else ()), h, w), dtype=dtype)
    },
    reference=lambda arrays, **arguments: {"y": _resized(arrays["x"], arguments, back=False)},
    backward_reference=lambda arrays, **arguments: {"grad_x": _resized(arrays["grad_y"], arguments, back=True)},
    torch_call=_torch_call,
    aten={
        f"aten.{name}{phase}.{end}": _from_aten
        for name in _MODES
        for phase in ("", "_backward")
        for end in ("default", "vec")
    },
    onnx={"Resize": _from_onnx, "Upsample": _from_onnx},
)
