"""Transposed convolution in one to three dimensions (the input gradient of a convolution, used as a layer)."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.convolution.conv import grouped
from nearpeak.ops.shared import sliding_windows as sliding
from nearpeak.ops.shared.convolution import (
    Parts,
    backward_work,
    check_groups,
    fewest,
    forward_work,
    inputs_of,
    parts_of,
    transposed,
)
from nearpeak.ops.shared.definition.array_arithmetic import maximum
from nearpeak.ops.shared.definition.axis_checks import required_one_of
from nearpeak.ops.shared.definition.operator import Match, OnnxSite, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.torch_names import in_wider, torch_dtype
from nearpeak.ops.shared.window_taps import AXES, Taps, check_window, taps


def conv_transpose(
    batch: int, in_channels: int, out_channels: int, w: int, kw: int, dtype: DType,
    groups: int = 1, d: int = 1, h: int = 1, kd: int = 1, kh: int = 1, sd: int = 1, sh: int = 1, sw: int = 1,
    pd: int = 0, ph: int = 0, pw: int = 0,
    pd_end: int | None = None, ph_end: int | None = None, pw_end: int | None = None,
    od: int = 0, oh: int = 0, ow: int = 0, dd: int = 1, dh: int = 1, dw: int = 1,
    out_dtype: DType | None = None, bias: bool = False, layout: str = "channels_first",
) -> Work:  # fmt: skip
    """Return the least work of a transposed convolution in up to three dimensions d, h, w.

    Shapes: X [batch, in_channels, d, h, w]; W [in_channels, out_channels / groups, kd, kh, kw].
    Counts: 2 FLOP per pair of input position and tap that lands on the output, never on the cropped border; the bias
    adds one vector FLOP per output. Inputs and taps that land on no output are not read.

    Args:
        d: extent of the input; the output has (d - 1) * sd - pd - pd_end + dd * (kd - 1) + 1 + od.
        pd: rows cropped at the beginning; pd_end, at the end, is the same unless given.
        od: rows added at the end of the output; likewise oh, ow.

    Source: Dumoulin and Visin 2016, arXiv:1603.07285, section 4; exact taps counted position by position.

    >>> conv_transpose(1, 8, 4, 7, 2, DType(name="bf16", bits_count=16), h=7, kh=2, sh=2, sw=2).flop
    {'matrix.bf16': 12544}
    """
    required_one_of("conv_transpose", sliding.LAYOUTS, layout=layout)
    reach = _reach(
        (d, kd, sd, pd, pd_end, dd, od), (h, kh, sh, ph, ph_end, dh, oh), (w, kw, sw, pw, pw_end, dw, ow)
    )  # fmt: skip
    parts = _parts(batch, in_channels, out_channels, groups, reach)
    return forward_work(parts, dtype, out_dtype or dtype, out_channels, bias=bias)


def _backward(
    batch: int, in_channels: int, out_channels: int, w: int, kw: int, dtype: DType,
    groups: int = 1, d: int = 1, h: int = 1, kd: int = 1, kh: int = 1, sd: int = 1, sh: int = 1, sw: int = 1,
    pd: int = 0, ph: int = 0, pw: int = 0,
    pd_end: int | None = None, ph_end: int | None = None, pw_end: int | None = None,
    od: int = 0, oh: int = 0, ow: int = 0, dd: int = 1, dh: int = 1, dw: int = 1, out_dtype: DType | None = None,
    grad_input: bool = True, grad_weight: bool = True, grad_bias: bool = False, layout: str = "channels_first",
) -> Work:  # fmt: skip
    """Return the least work of the requested gradients; each takes as many products as the forward pass."""
    required_one_of("conv_transpose", sliding.LAYOUTS, layout=layout)
    reach = _reach(
        (d, kd, sd, pd, pd_end, dd, od), (h, kh, sh, ph, ph_end, dh, oh), (w, kw, sw, pw, pw_end, dw, ow)
    )  # fmt: skip
    parts = _parts(batch, in_channels, out_channels, groups, reach)
    return backward_work(
        parts, dtype, out_dtype or dtype, out_channels,
        grad_input=grad_input, grad_weight=grad_weight, grad_bias=grad_bias,
    )  # fmt: skip


def _reach(*dimensions: tuple[int, int, int, int, int | None, int, int]) -> Taps:
    """Return the taps with the roles of input and output exchanged: `outputs` are inputs here, `size` is the output."""
    product = Taps(**dict.fromkeys(Taps.__slots__, 1))
    for axis, (extent, kernel, stride, padding, end, dilation, extra) in zip(AXES, dimensions, strict=True):
        check_window(axis, kernel, stride, dilation)
        border = padding + (padding if end is None else end)
        size = maximum(0, (extent - 1) * stride - border + dilation * (kernel - 1) + 1 + extra)
        product = product * taps(size, extent, kernel, stride, padding, dilation)
    return product


def _parts(batch: int, in_channels: int, out_channels: int, groups: int, reach: Taps) -> Parts:
    check_groups("conv_transpose", groups, in_channels, out_channels)
    return transposed(parts_of(batch, out_channels, in_channels, groups, reach))


def _fewest(batch: int, in_channels: int, out_channels: int, groups: int, **arguments: Any) -> int:
    """Return the multiplications that Winograd's and any other bilinear algorithm needs at least, each pass alike."""
    rows = [[arguments[f"{name}{axis}"] for name in ("", "k", "s", "p")] for axis in AXES]
    ends = [[arguments[f"p{axis}_end"], arguments[f"d{axis}"], arguments[f"o{axis}"]] for axis in AXES]
    reach = _reach(*((*row, *end) for row, end in zip(rows, ends, strict=True)))
    return fewest(_parts(batch, in_channels, out_channels, groups, reach))


def _inputs(**arguments: Any) -> dict[str, Tensor]:
    weight = (
        arguments["in_channels"],
        arguments["out_channels"] // max(arguments["groups"], 1),
        *sliding.extents(arguments, "k"),
    )
    return inputs_of(weight, **arguments)


def _crop(arguments: dict[str, Any]) -> list[tuple[int, int]]:
    """Return rows cropped at the beginning and rows of the result, per dimension."""
    columns = [sliding.extents(arguments, prefix) for prefix in ("", "k", "s", "d", "p", "o")]
    rows = zip(*columns, sliding.extents(arguments, "p", "_end"), strict=True)
    return [(p, max(0, (n - 1) * s + t * (k - 1) + 1 + o - p - e)) for n, k, s, t, p, o, e in rows]


def _uncropped(arguments: dict[str, Any]) -> tuple[int, ...]:
    return tuple(
        max(first + count, (n - 1) * s + t * (k - 1) + 1)
        for (first, count), n, k, s, t in zip(
            _crop(arguments), *(sliding.extents(arguments, prefix) for prefix in ("", "k", "s", "d")), strict=True
        )
    )


def _reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    x, weight, groups = arrays["input"], arrays["weight"], arguments["groups"]
    full: Any = np.zeros((len(x), arguments["out_channels"], *_uncropped(arguments)))
    for tap, place in sliding.tap_slices(arguments, x.shape[2:]):
        part = np.einsum("bgc...,gco->bgo...", grouped(x, 1, groups), grouped(weight[(..., *tap)], 0, groups))
        full[place] += part.reshape(full[place].shape)
    y = full[(..., *(slice(first, first + count) for first, count in _crop(arguments)))]
    return {"output": y + arrays["bias"].reshape(-1, *(1 for _ in x.shape[2:])) if arguments["bias"] else y}


def _backward_reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    x, weight, grad, groups = arrays["input"], arrays["weight"], arrays["grad_output"], arguments["groups"]
    full: Any = np.zeros((*grad.shape[:2], *_uncropped(arguments)))
    full[(..., *(slice(first, first + count) for first, count in _crop(arguments)))] = grad
    grad_x, grad_weight, source = np.zeros_like(x), np.zeros_like(weight), grouped(x, 1, groups)
    for tap, place in sliding.tap_slices(arguments, x.shape[2:]):
        upstream = grouped(full[place], 1, groups)
        grad_x += np.einsum("bgo...,gco->bgc...", upstream, grouped(weight[(..., *tap)], 0, groups)).reshape(x.shape)
        flat = (t.reshape(*t.shape[:3], -1) for t in (source, upstream))
        grad_weight[(..., *tap)] = np.einsum("bgcx,bgox->gco", *flat).reshape(weight.shape[:2])
    grad_bias = grad.sum(axis=(0, *range(2, grad.ndim)))
    grads = {"grad_input": grad_x, "grad_weight": grad_weight, "grad_bias": grad_bias}
    return {name: value for name, value in grads.items() if arguments[name]}


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch
    import torch.nn.functional as F  # noqa: N812

    out = torch_dtype(torch, arguments["out_dtype"])
    tensors = in_wider(torch, tensors, arguments["out_dtype"])
    begin, end = sliding.extents(arguments, "p"), sliding.extents(arguments, "p", "_end")
    strides, dilations, extra = (sliding.extents(arguments, prefix) for prefix in ("s", "d", "o"))
    run = F.conv_transpose2d if len(begin) == 2 else F.conv_transpose3d
    x, weight, bias, groups = tensors["input"], tensors["weight"], tensors.get("bias"), arguments["groups"]
    if begin == end:
        return {"output": run(x, weight, bias, strides, begin, extra, groups, dilations).to(out)}
    y = run(x, weight, None, strides, 0, 0, groups, dilations)
    sides = [(-first, first + count - n) for (first, count), n in zip(_crop(arguments), y.shape[2:], strict=True)]
    y = F.pad(y, [side for pair in reversed(sides) for side in pair])
    return {"output": (y if bias is None else y + bias.reshape(-1, *(1 for _ in begin))).to(out)}


def _from_onnx(site: OnnxSite) -> Match:
    """Match ConvTranspose; where the node states no padding, it follows from the output's shape."""
    x, weight = site.tensor(0), site.tensor(1)
    groups, count = site.attributes.get("group", 1), len(x.shape) - 2
    arguments = {
        "batch": x.shape[0], "in_channels": x.shape[1], "out_channels": weight.shape[1] * groups, "groups": groups,
        **sliding.named("", x.shape[2:], count), **_onnx_border(site, x, weight),
        "dtype": x.dtype, "out_dtype": site.outputs[0].dtype,
        "bias": site.optional(2) is not None,
    }  # fmt: skip
    return Match(arguments=arguments)


def _onnx_border(site: OnnxSite, x: Tensor, weight: Tensor) -> dict[str, int]:
    count, auto = len(x.shape) - 2, str(site.attributes.get("auto_pad", "NOTSET"))
    window = sliding.onnx_window(site, weight.shape[2:]) if auto == "NOTSET" else {}
    extra = tuple(site.attributes.get("output_padding") or (0,) * count)
    if auto == "NOTSET" and not site.attributes.get("output_shape"):
        return window | sliding.named("o", extra, count)
    strides = tuple(site.attributes.get("strides") or (1,) * count)
    dilations = tuple(site.attributes.get("dilations") or (1,) * count)
    rows = zip(x.shape[2:], weight.shape[2:], strides, dilations, extra, site.outputs[0].shape[2:], strict=True)
    totals = [s * (n - 1) + o + (k - 1) * d + 1 - out for n, k, s, d, o, out in rows]
    first = [max(0, t) // 2 if auto == "SAME_UPPER" else max(0, t) - max(0, t) // 2 for t in totals]
    return (
        sliding.named("k", weight.shape[2:], count) | sliding.named("s", strides, count)
        | sliding.named("d", dilations, count) | sliding.named("p", first, count)
        | sliding.named("p", [max(0, t) - p for t, p in zip(totals, first, strict=True)], count, "_end")
        | sliding.named("o", [o + max(0, -t) for t, o in zip(totals, extra, strict=True)], count)
    )  # fmt: skip


OPERATOR = Operator(
    forward=conv_transpose,
    family="convolution",
    backward=_backward,
    tolerance=Tolerance(kind="contraction", special="unspecified", reduction="in_channels kd kh kw", steps_count=1),
    inputs=_inputs,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    same=sliding.ENDS,
    fewest={"forward": _fewest, "backward": _fewest},
    # The dispatched overload is aten.convolution, which conv.py claims and hands over when it is transposed.
    onnx={"ConvTranspose": _from_onnx},
)
