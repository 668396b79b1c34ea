"""Grid sampling: images and volumes interpolated at positions that a tensor states."""

from itertools import product
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.array_arithmetic import minimum
from nearpeak.ops.shared.definition.axis_checks import required_one_of
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance

MODES = ("linear", "nearest", "cubic")
"""In the order of PyTorch's numbers 0, 1, 2."""
_SHARPNESS = -0.75
"""Parameter of the cubic weights (Keys 1981, doi:10.1109/TASSP.1981.1163711), as PyTorch sets it."""


@free_when_empty
def grid_sample(
    batch: int, channels: int, w: int, ow: int, dtype: DType, h: int = 1, oh: int = 1, d: int = 1, od: int = 1,
    touched: int = 0, mode: str = "linear", volume: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of y[batch,channel,point] = x[batch,channel] at the position grid[batch,point].

    Counts: linear 2 * taps - 1 FLOP per channel and point with 4 taps, or 8 in a volume, and one per tap and point for
    the product of its weights, or 3 per channel and step where going from point to line to plane takes fewer; cubic
    likewise with 16 taps, or 7 per channel and line; nearest none. Where the points lie is data; a bound reads nothing
    of x unless the grid is known, as all points may lie outside (assumption A9).

    Args:
        touched: distinct pixels that some point meets, per image of the batch.
        mode: linear, nearest or cubic, the last one of images only.
        volume: three dimensions d, h, w instead of h, w.

    Source: Jaderberg et al. 2015, arXiv:1506.02025, section 3.3.

    >>> grid_sample(1, 3, 8, 4, DType(name="fp32", bits_count=32), h=8, oh=4).flop
    {'vector.fp32': 400}
    """
    points, taps = batch * od * oh * ow, _taps(mode, volume=volume)
    return Work(
        flop={
            unit(dtype): points
            * minimum(channels * (2 * taps - 1) + taps, channels * (5 * 7 if taps == 16 else 3 * (taps - 1)))
        }
        if taps
        else {},
        read_bytes=dtype.bytes(points * (3 if volume else 2) + batch * channels * touched),
        write_bytes=dtype.bytes(points * channels),
    )


@free_when_empty
def _backward(
    batch: int, channels: int, w: int, ow: int, dtype: DType, h: int = 1, oh: int = 1, d: int = 1, od: int = 1,
    touched: int = 0, mode: str = "linear", volume: bool = False, grad_input: bool = True, grad_grid: bool = True,
) -> Work:  # fmt: skip
    """Return the least work of the gradients of image and grid.

    Counts: linear 2 FLOP per tap, channel and point for each gradient; joining the taps of a point is not counted.
    """
    points, taps, coordinates = batch * od * oh * ow, _taps(mode, volume=volume), 3 if volume else 2
    return Work(
        flop={unit(dtype): 2 * (grad_input + grad_grid) * taps * points * channels} if taps else {},
        read_bytes=dtype.bytes(points * (channels + coordinates) + batch * channels * touched * grad_grid),
        write_bytes=dtype.bytes(grad_input * batch * channels * d * h * w + grad_grid * points * coordinates),
    )


def _taps(mode: str, *, volume: bool) -> int:
    required_one_of("grid_sample", MODES, mode=mode)
    return {"linear": 8 if volume else 4, "cubic": 16}.get(mode, 0)


def _extents(arguments: dict[str, Any], prefix: str = "") -> tuple[int, ...]:
    return tuple(arguments[prefix + axis] for axis in ("dhw" if arguments["volume"] else "hw"))


def _inputs(batch: int, channels: int, dtype: str, **arguments: Any) -> dict[str, Tensor]:
    sizes, points = _extents(arguments), _extents(arguments, "o")
    return {
        "x": Tensor(shape=(batch, channels, *sizes), dtype=dtype),
        "grid": Tensor(shape=(batch, *points, len(sizes)), dtype=dtype),
    }


def _valid(drawn: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    """Return the grid with the first point of some images in the first pixel, the last point of some in the last one.

    Few points would miss the ends of a long extent in every round. The last digits of a point say whether it is moved.
    """
    grid = drawn["grid"].copy()
    points = grid.reshape(len(grid), -1, grid.shape[-1])
    if not points.size or not np.isfinite(points).all():
        return {}
    # Between a quarter and three quarters of the pixel: nearer to its edges, roundings decide.
    inward = (0.5 + np.mod(np.abs(points), 1.0)) / np.asarray(_extents(arguments)[::-1], dtype=float)
    chance = np.mod(np.abs(points[..., :1]) * _LAST_DIGITS, 1.0)
    points[:, 0] = np.where(chance[:, 0] > 0.75, inward[:, 0] - 1, points[:, 0])
    points[:, -1] = np.where((chance[:, -1] > 0.25) & (chance[:, -1] <= 0.75), 1 - inward[:, -1], points[:, -1])
    return {"grid": points.reshape(grid.shape)}


_LAST_DIGITS = 64.0
"""What coordinates are multiplied with, so that what is left of the point tells nothing of where it lies."""


def _meetings(arrays: dict[str, Any], arguments: dict[str, Any]) -> Any:
    """Yield per tap: index of each point into x, weight of each point, and the weight's slope per coordinate.

    Coordinates -1 and 1 are the outer edges of the image; outside of it everything is zero.
    """
    sizes, grid = _extents(arguments), arrays["grid"]
    places = [((grid[..., i] + 1) * size - 1) / 2 for i, size in enumerate(sizes[::-1])][::-1]
    nearest = arguments["mode"] == "nearest"
    images = np.arange(len(grid)).reshape(-1, *(1 for _ in sizes))
    for tap in product({"linear": (0, 1), "cubic": (-1, 0, 1, 2)}.get(arguments["mode"], (0,)), repeat=len(sizes)):
        index = [(np.rint(p) if nearest else np.floor(p)).astype(int) + t for p, t in zip(places, tap, strict=True)]
        weights = [_weight(p - i, t, arguments["mode"]) for p, i, t in zip(places, index, tap, strict=True)]
        parts = [weight for weight, _ in weights]
        inside = np.all([(i >= 0) & (i < size) for i, size in zip(index, sizes, strict=True)], axis=0)
        clipped = tuple(np.clip(i, 0, size - 1) for i, size in zip(index, sizes, strict=True))
        signs = [slope * size / 2 for (_, slope), size in zip(weights, sizes, strict=True)]
        slopes = [
            sign * inside * np.prod([q for j, q in enumerate(parts) if j != i], axis=0) for i, sign in enumerate(signs)
        ]
        yield (images, slice(None), *clipped), inside * np.prod(parts, axis=0), slopes


def _weight(distance: Any, tap: int, mode: str) -> tuple[Any, Any]:
    """Return the weight of a tap at `distance` before the point, and its slope."""
    far, a = np.abs(distance), _SHARPNESS
    if mode == "nearest":
        return np.ones_like(far), 0.0
    if mode == "linear":
        return 1 - far, 1.0 if tap else -1.0
    near = tap in (0, 1)
    value = ((a + 2) * far - (a + 3)) * far * far + 1 if near else ((far - 5) * far + 8) * far * a - 4 * a
    slope = (3 * (a + 2) * far - 2 * (a + 3)) * far if near else ((3 * far - 10) * far + 8) * a
    return value, slope * np.sign(distance)


def _reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    total: Any = 0.0
    for index, weight, _ in _meetings(arrays, arguments):
        total = total + arrays["x"][index] * weight[..., None]
    return {"y": np.moveaxis(total, -1, 1)}


def _backward_reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    upstream = np.moveaxis(arrays["grad_y"], 1, -1)
    grad_x, grad_grid = np.zeros_like(arrays["x"]), np.zeros_like(arrays["grid"])
    for index, weight, slopes in _meetings(arrays, arguments):
        np.add.at(grad_x, index, upstream * weight[..., None])
        met = (upstream * arrays["x"][index]).sum(axis=-1)
        for place, slope in enumerate(slopes[::-1]):
            grad_grid[..., place] += met * slope
    return {"grad_x": grad_x, "grad_grid": grad_grid}


def _torch_call(tensors: dict[str, Any], mode: str, **_: Any) -> dict[str, Any]:
    import torch

    name = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return {"y": torch.nn.functional.grid_sample(tensors["x"], tensors["grid"], mode=name, align_corners=False)}


def _arguments(x: Tensor, grid: Tensor, mode: str) -> dict[str, Value]:
    volume = len(x.shape) == 5
    axes = "dhw" if volume else "hw"
    sizes = dict(zip(axes, x.shape[2:], strict=True))
    points = {f"o{axis}": size for axis, size in zip(axes, grid.shape[1:-1], strict=True)}
    return {"batch": x.shape[0], "channels": x.shape[1], **sizes, **points, "dtype": x.dtype,
            "mode": mode, "volume": volume}  # fmt: skip


def _from_aten(site: AtenSite) -> Match:
    """Match the samplers of two and three dimensions and their gradients; where the points lie is not known."""
    arguments = _arguments(site.args["input"], site.args["grid"], MODES[site.args["interpolation_mode"]])
    if "grad_output" not in site.args:
        return Match(arguments=arguments, touched_bytes={"input": 0})
    wanted = dict(zip(("grad_input", "grad_grid"), map(bool, site.args["output_mask"]), strict=True))
    return Match(arguments=arguments | wanted, phase="backward", touched_bytes={"input": 0})


def _from_onnx(site: OnnxSite) -> Match:
    """Match GridSample."""
    x, grid = site.tensor(0), site.tensor(1)
    mode = str(site.attributes.get("mode", "linear")).removeprefix("bi")
    if mode not in MODES:
        raise NotModelledError(f"grid_sample: no rule for mode {mode}; there are {', '.join(MODES)}")
    return Match(arguments=_arguments(x, grid, mode), touched_bytes={"0": 0})


OPERATOR = Operator(
    forward=grid_sample,
    family="reduction",
    backward=_backward,
    data_axes={"touched": ("d*h*w",)},
    tolerance=Tolerance(
        kind="sampling", reduction="h w d", ulp_count=64.0, special="unspecified", steps_count=2, least_format="fp32"
    ),
    inputs=_inputs,
    valid=_valid,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten={
        f"aten.grid_sampler_{rank}{phase}.default": _from_aten for rank in ("2d", "3d") for phase in ("", "_backward")
    },
    onnx={"GridSample": _from_onnx},
)
