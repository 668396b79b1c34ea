"""Fake quantisation: values rounded to an integer grid and dequantised, with straight-through gradients."""

from math import prod
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DTYPES, DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.number_formats import INTS

_GRID = INTS["int4"]
LOWEST, LARGEST = round(_GRID.lowest), round(_GRID.largest)
"""Range of integers of reference and PyTorch call; the work does not depend on it."""
_ZERO, _MASK = DTYPES["int32"], DTYPES["bool"]


@free_when_empty
def fake_quantise(
    channels: int,
    columns: int,
    dtype: DType,
    scale_dtype: DType = DTYPES["fp32"],
    learnable: bool = False,
    mask: bool = False,
    scalars: bool = False,
) -> Work:
    """Return the least work of y[channels,columns] = (clamp(round(x / scale) + zero) - zero) * scale.

    Counts: a product with 1/scale, rounding, zero point added and taken off, two comparisons, a product: 7 FLOP per
    element; a division per scale.

    Args:
        channels: scales and zero points; 1 per tensor.
        scale_dtype: format of scales.
        learnable: zero points are stored like scales, as their gradients need.
        mask: a byte per element says for the gradient which elements lay inside the range.
        scalars: scale and zero point travel with the launch and are not read.

    Source: Jacob et al. 2017, arXiv:1712.05877, section 3; Esser et al. 2019, arXiv:1902.08153, section 2.

    >>> work = fake_quantise(2, 8, DTYPES["fp32"], mask=True)
    >>> work.read_bytes, work.write_bytes, work.special_count
    (80, 80, 2)
    """
    elements = channels * columns
    return Work(
        flop={unit(dtype): 7 * elements},
        special_count=channels,
        read_bytes=dtype.bytes(elements) + (0 if scalars else _parameter_bytes(channels, scale_dtype, learnable)),
        write_bytes=dtype.bytes(elements) + (_MASK.bytes(elements) if mask else 0),
    )


@free_when_empty
def _backward(
    channels: int, columns: int, dtype: DType, scale_dtype: DType = DTYPES["fp32"], learnable: bool = False
) -> Work:
    """Return the least work of the gradients: x's is the result's where the mask is set, else 0.

    Counts: the mask selects, which is no FLOP. Learnable scales and zero points need x again: 10 FLOP per element for
    its place on the grid, the two differences, the product with the gradient and both sums; a division per scale.
    """
    elements = channels * columns
    if not learnable:
        return Work(
            flop={unit(dtype): 0 * elements},
            read_bytes=dtype.bytes(elements) + _MASK.bytes(elements),
            write_bytes=dtype.bytes(elements),
        )
    return Work(
        flop={unit(dtype): 10 * elements},
        special_count=channels,
        read_bytes=2 * dtype.bytes(elements) + _parameter_bytes(channels, scale_dtype, True),
        write_bytes=dtype.bytes(elements) + _parameter_bytes(channels, scale_dtype, True),
    )


def _parameter_bytes(channels: int, scale_dtype: DType, learnable: bool) -> int:
    return scale_dtype.bytes(channels) + (scale_dtype if learnable else _ZERO).bytes(channels)


def _inputs(
    channels: int, columns: int, dtype: str, scale_dtype: str, learnable: bool, scalars: bool = False, **_: Any
) -> dict[str, Tensor]:
    tensors = {"x": Tensor(shape=(channels, columns), dtype=dtype)}
    if scalars:
        return tensors
    formats = {"scale": scale_dtype, "zero": scale_dtype if learnable else "int32"}
    return tensors | {name: Tensor(shape=(channels,), dtype=format_) for name, format_ in formats.items()}


def _valid(drawn: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return zero points from 0 on: PyTorch 2.13's gradient per tensor rounds negative ones another way than y does."""
    return {"zero": np.abs(drawn["zero"])} if "zero" in drawn else {}


def _placed(arrays: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Return each element's place on the unbounded grid, which lie inside the range, scales and zero points."""
    scale = np.asarray(arrays.get("scale", [0.5]))[:, None]
    zero = np.clip(np.rint(np.asarray(arrays.get("zero", [0]))), LOWEST, LARGEST)[:, None]
    place = np.rint(arrays["x"] * (1 / scale)) + zero
    return place, (place >= LOWEST) & (place <= LARGEST), scale, zero


def _reference(arrays: dict[str, Any], mask: bool = False, **_: Any) -> dict[str, Any]:
    place, inside, scale, zero = _placed(arrays)
    y = (np.clip(place, LOWEST, LARGEST) - zero) * scale
    return {"y": y, "mask": inside * 1} if mask else {"y": y}


def _backward_reference(arrays: dict[str, Any], learnable: bool, **_: Any) -> dict[str, Any]:
    place, inside, scale, zero = _placed(arrays)
    grad = arrays["grad_y"]
    gradients = {"grad_x": np.where(inside, grad, 0)}
    if not learnable:
        return gradients
    y = (np.clip(place, LOWEST, LARGEST) - zero) * scale
    slope = np.where(inside, (y - arrays["x"]) / scale, np.clip(place, LOWEST, LARGEST) - zero)
    return gradients | {
        "grad_scale": (grad * slope).sum(1),
        "grad_zero": np.where(inside, 0, -grad * scale).sum(1),
    }


def _passed(arrays: dict[str, Any], learnable: bool, **_: Any) -> dict[str, Any]:
    """Return the size of what gradients of zero points add up, and take away again for elements inside the range."""
    if not learnable:
        return {}
    return {"grad_zero": np.sqrt((arrays["grad_y"] ** 2).sum(1)) * np.abs(arrays["scale"])}


def _torch_call(
    tensors: dict[str, Any], channels: int, learnable: bool, mask: bool = False, scalars: bool = False, **_: Any
) -> dict[str, Any]:
    import torch

    scale: Any = tensors.get("scale")
    x, zero = tensors["x"], tensors.get("zero")
    if learnable and x.dtype == torch.float64:
        return {"y": _straight_through(x, scale[:, None], tensors["zero"][:, None])}
    if learnable and channels == 1:
        return {"y": torch._fake_quantize_learnable_per_tensor_affine(x, scale, zero, LOWEST, LARGEST, 1.0)}
    if learnable:
        return {"y": torch._fake_quantize_learnable_per_channel_affine(x, scale, zero, 0, LOWEST, LARGEST, 1.0)}
    arguments: Any = (0.5, 0) if scalars else (scale.detach(), zero, 0)
    name = f"fake_quantize_per_{'tensor' if scalars else 'channel'}_affine"
    if mask:
        call = getattr(torch.ops.aten, f"{name}_cachemask")
        return dict(zip(("y", "mask"), call(x, *arguments, LOWEST, LARGEST), strict=True))
    return {"y": getattr(torch, name)(x, *arguments, LOWEST, LARGEST)}


def _straight_through(x: Any, scale: Any, zero: Any) -> Any:
    """Return the composed function: PyTorch's own has gradients of scales in fp32 only."""

    def rounded(value: Any) -> Any:
        return value + (value.round() - value).detach()

    zero = rounded(zero).clamp(LOWEST, LARGEST)
    return ((rounded(x / scale) + zero).clamp(LOWEST, LARGEST) - zero) * scale


def _from_aten(site: AtenSite) -> Match:
    """Match fake quantisation with given scales; the mask is one of two results."""
    scale = site.args["scale"]
    tensor = scale if isinstance(scale, Tensor) else None
    return _match(site, 1 if tensor is None else tensor.elements, learnable="learnable" in site.name,
                  scalars=tensor is None)  # fmt: skip


def _match(site: AtenSite, channels: int, **more: Value) -> Match:
    x = site.args["self"]
    arguments: dict[str, Value] = {
        "channels": channels, "columns": prod(x.shape) // max(channels, 1), "dtype": x.dtype,
        "mask": len(site.outputs) > 1,
    }  # fmt: skip
    return Match(arguments=arguments | _stored(site) | more)


def _stored(site: AtenSite) -> dict[str, Value]:
    scale = site.args.get("scale")
    return {"scale_dtype": scale.dtype} if isinstance(scale, Tensor) else {}


def _observed(site: AtenSite) -> tuple[Match, ...]:
    """Match the observer that also quantises: extremes per tensor or row, then fake quantisation."""
    scale = site.args["scale"]
    channels = scale.elements if site.args["per_row_fake_quant"] else 1
    match = _match(site, channels)
    x = site.args["self"]
    sizes: dict[str, Value] = {"outputs": channels, "reduced": x.elements // max(channels, 1), "dtype": x.dtype}
    return (match, Match(op="reduce", arguments=sizes | {"function": "min_max"}))


def _gradient(site: AtenSite) -> Match:
    """Match the gradient, from the mask or, for learnable parameters, from x."""
    grad, scale = site.args["grad"], site.args.get("scale")
    channels = 1 if scale is None else scale.elements
    arguments: dict[str, Value] = {
        "channels": channels, "columns": grad.elements // max(channels, 1), "dtype": grad.dtype,
        "learnable": scale is not None,
    }  # fmt: skip
    return Match(arguments=arguments | _stored(site), phase="backward")


_PER = ("per_tensor_affine", "per_channel_affine")
_NAMES = (
    *(f"fake_quantize_{per}_cachemask" for per in _PER), *(f"_fake_quantize_learnable_{per}" for per in _PER),
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
)  # fmt: skip

OPERATOR = Operator(
    forward=fake_quantise,
    family="pointwise",
    backward=_backward,
    tolerance=Tolerance(
        kind="pointwise",
        below={"zero": "5"},
        positive=("scale",),
        special="unspecified",
        gates="learnable",
        rounds=("saturated",),
    ),
    inputs=_inputs,
    valid=_valid,
    reference=_reference,
    backward_reference=_backward_reference,
    passed=_passed,
    torch_call=_torch_call,
    aten={
        **{f"aten.{name}.default": _from_aten for name in _NAMES},
        **{f"aten.{name}_backward.default": _gradient for name in _NAMES[:4]},
        "aten._fused_moving_avg_obs_fq_helper.default": _observed,
    },
)
