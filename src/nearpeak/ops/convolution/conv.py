"""Convolution in one to three dimensions: grouped, depthwise, dilated, strided, padded, with optional bias."""

from dataclasses import replace
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared import sliding_windows as sliding
from nearpeak.ops.shared.convolution import (
    Parts,
    backward_work,
    check_groups,
    fewest,
    forward_work,
    inputs_of,
    parts_of,
)
from nearpeak.ops.shared.definition.array_arithmetic import in_wide_integers
from nearpeak.ops.shared.definition.axis_checks import required_one_of
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.torch_names import in_wider, torch_dtype
from nearpeak.ops.shared.window_taps import AXES, Taps, windows


def conv(
    batch: int, in_channels: int, out_channels: int, w: int, kw: int, dtype: DType,
    groups: int = 1, d: int = 1, h: int = 1, kd: int = 1, kh: int = 1, sd: int = 1, sh: int = 1, sw: int = 1,
    pd: int = 0, ph: int = 0, pw: int = 0,
    pd_end: int | None = None, ph_end: int | None = None, pw_end: int | None = None,
    dd: int = 1, dh: int = 1, dw: int = 1,
    out_dtype: DType | None = None, bias: bool = False, layout: str = "channels_first",
) -> Work:  # fmt: skip
    """Return the least work of a convolution in up to three dimensions d, h, w (one dimension uses w alone).

    Shapes: X [batch, in_channels, d, h, w]; W [out_channels, in_channels / groups, kd, kh, kw].
    Counts: 2 FLOP per pair of output position and tap that falls on the input, never on padding; the bias adds one
    vector FLOP per output. Input positions that no window meets, and taps that only ever meet padding, are not read.

    Args:
        sd: stride; likewise sh, sw.
        pd: padding at the beginning; pd_end, at the end, is the same unless given.
        dd: dilation.
        layout: `channels_first` or `channels_last`; it changes the kernel, not the work.

    Source: Dumoulin and Visin 2016, arXiv:1603.07285; exact taps counted position by position.

    >>> conv(1, 64, 64, 7, 3, DType(name="bf16", bits_count=16), h=7, kh=3, ph=1, pw=1).flop
    {'matrix.bf16': 2957312}
    """
    required_one_of("conv", sliding.LAYOUTS, layout=layout)
    reach = windows((d, kd, sd, pd, pd_end, dd), (h, kh, sh, ph, ph_end, dh), (w, kw, sw, pw, pw_end, dw))
    parts = _parts(batch, in_channels, out_channels, groups, reach)
    return forward_work(parts, dtype, out_dtype or dtype, out_channels, bias=bias)


def _backward(
    batch: int, in_channels: int, out_channels: int, w: int, kw: int, dtype: DType,
    groups: int = 1, d: int = 1, h: int = 1, kd: int = 1, kh: int = 1, sd: int = 1, sh: int = 1, sw: int = 1,
    pd: int = 0, ph: int = 0, pw: int = 0,
    pd_end: int | None = None, ph_end: int | None = None, pw_end: int | None = None,
    dd: int = 1, dh: int = 1, dw: int = 1, out_dtype: DType | None = None,
    grad_input: bool = True, grad_weight: bool = True, grad_bias: bool = False, layout: str = "channels_first",
) -> Work:  # fmt: skip
    """Return the least work of the requested gradients.

    Counts: each of grad_input and grad_weight takes as many products as the forward convolution; grad_bias adds one
    vector FLOP per element of the output's gradient.
    """
    required_one_of("conv", sliding.LAYOUTS, layout=layout)
    reach = windows((d, kd, sd, pd, pd_end, dd), (h, kh, sh, ph, ph_end, dh), (w, kw, sw, pw, pw_end, dw))
    parts = _parts(batch, in_channels, out_channels, groups, reach)
    return backward_work(
        parts, dtype, out_dtype or dtype, out_channels,
        grad_input=grad_input, grad_weight=grad_weight, grad_bias=grad_bias,
    )  # fmt: skip


def _parts(batch: int, in_channels: int, out_channels: int, groups: int, reach: Taps) -> Parts:
    check_groups("conv", groups, in_channels, out_channels)
    return parts_of(batch, in_channels, out_channels, groups, reach)


def _fewest(batch: int, in_channels: int, out_channels: int, groups: int, **arguments: Any) -> int:
    """Return the multiplications that Winograd's and any other bilinear algorithm needs at least, each pass alike."""
    reach = sliding.reach_of(arguments)
    return fewest(_parts(batch, in_channels, out_channels, groups, reach))


def _inputs(**arguments: Any) -> dict[str, Tensor]:
    weight = (
        arguments["out_channels"],
        arguments["in_channels"] // max(arguments["groups"], 1),
        *sliding.extents(arguments, "k"),
    )
    return inputs_of(weight, **arguments)


def _reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    x, weight = sliding.padded(arguments, in_wide_integers(arrays["input"])), in_wide_integers(arrays["weight"])
    groups, steps = arguments["groups"], sliding.outputs(arguments)
    y = np.zeros((len(x), len(weight), *steps))
    for tap, place in sliding.tap_slices(arguments, steps):
        part = np.einsum("bgc...,goc->bgo...", grouped(x[place], 1, groups), grouped(weight[(..., *tap)], 0, groups))
        y += part.reshape(y.shape)
    if arguments["bias"]:
        y += arrays["bias"].reshape(-1, *(1 for _ in steps))
    return {"output": y}


def _backward_reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    x, weight = sliding.padded(arguments, arrays["input"]), arrays["weight"]
    grad, groups = arrays["grad_output"], arguments["groups"]
    grad_x, grad_weight, upstream = np.zeros_like(x), np.zeros_like(weight), grouped(grad, 1, groups)
    for tap, place in sliding.tap_slices(arguments, grad.shape[2:]):
        part = np.einsum("bgo...,goc->bgc...", upstream, grouped(weight[(..., *tap)], 0, groups))
        grad_x[place] += part.reshape(x[place].shape)
        flat = (t.reshape(*t.shape[:3], -1) for t in (upstream, grouped(x[place], 1, groups)))
        grad_weight[(..., *tap)] = np.einsum("bgox,bgcx->goc", *flat).reshape(weight.shape[:2])
    grads = {
        "grad_input": sliding.inner(arguments, grad_x),
        "grad_weight": grad_weight,
        "grad_bias": grad.sum(axis=(0, *range(2, grad.ndim))),
    }
    return {name: value for name, value in grads.items() if arguments[name]}


def grouped(array: Any, axis: int, groups: int) -> Any:
    """Return the array with the channels of `axis` split into groups."""
    return array.reshape(*array.shape[:axis], groups, array.shape[axis] // groups, *array.shape[axis + 1 :])


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch
    import torch.nn.functional as F  # noqa: N812

    tensors = in_wider(torch, tensors, arguments["out_dtype"])
    x, begin, end = tensors["input"], sliding.extents(arguments, "p"), sliding.extents(arguments, "p", "_end")
    if begin != end:
        sides = zip(reversed(begin), reversed(end), strict=True)
        x, begin = F.pad(x, [side for pair in sides for side in pair]), (0,) * len(begin)
    run = F.conv2d if len(begin) == 2 else F.conv3d
    strides, dilations = sliding.extents(arguments, "s"), sliding.extents(arguments, "d")
    y = run(x, tensors["weight"], tensors.get("bias"), strides, begin, dilations, arguments["groups"])
    return {"output": y.to(torch_dtype(torch, arguments["out_dtype"]))}


def _from_aten(site: AtenSite) -> Match:
    """Match a convolution, forward or backward; a transposed one is a case of conv_transpose."""
    weight = site.args["weight"]
    back = "grad_output" in site.args
    y = site.args["grad_output"] if back else site.outputs[0]
    mask = site.args["output_mask"] if back else ()
    gradients = {f"grad_{name}": bool(m) for name, m in zip(("input", "weight", "bias"), mask, strict=False)}
    arguments = _arguments(site, weight, y) | (gradients if back else {"bias": site.args["bias"] is not None})
    phase = "backward" if back else "forward"
    if site.args["transposed"]:
        unread = {"input": gradients.get("grad_weight", True), "weight": gradients.get("grad_input", True)}
        touched = {name: 0 for name, needed in unread.items() if not needed}
        return Match(arguments=arguments, phase=phase, touched_bytes=touched, op="conv_transpose")
    touched = _touched(arguments, site.args["input"], weight, names=("input", "weight"))
    return Match(arguments=arguments, phase=phase, touched_bytes=touched)


def _packed(site: AtenSite) -> Match:
    """Match layers of torch.ao; those that quantise their input on the way multiply in the format of the weights."""
    match = _from_aten(site)
    is_wide = dtype_of(site.args["input"].dtype).kind == "float"
    return replace(match, arguments={**match.arguments, "dtype": site.args["weight"].dtype}) if is_wide else match


def _arguments(site: AtenSite, weight: Tensor, y: Tensor) -> dict[str, Any]:
    x, count, groups = site.args["input"], len(weight.shape) - 2, site.args["groups"]
    transposed = site.args["transposed"]
    ends = {name: site.args[key] for name, key in (("s", "stride"), ("p", "padding"), ("d", "dilation"))}
    axes = {k: v for prefix, values in ends.items() for k, v in sliding.named(prefix, values, count).items()}
    extra = sliding.named("o", site.args["output_padding"], count) if transposed else {}
    return {
        "batch": x.shape[0], "in_channels": x.shape[1], "groups": groups,
        "out_channels": weight.shape[1] * groups if transposed else weight.shape[0],
        **sliding.named("", x.shape[2:], count), **sliding.named("k", weight.shape[2:], count), **axes, **extra,
        "dtype": x.dtype, "out_dtype": y.dtype, "layout": sliding.layout_of(x),
    }  # fmt: skip


def _touched(arguments: dict[str, Any], x: Tensor, weight: Tensor, names: tuple[str, str]) -> dict[str, int]:
    """Return the touched bytes of input and weight; without a gradient's request its operand is not read."""
    reach = sliding.reach_of({f"s{axis}": 1 for axis in AXES} | arguments)
    need_x, need_weight = arguments.get("grad_weight", True), arguments.get("grad_input", True)
    planes = need_x * arguments["batch"] * arguments["in_channels"]
    rows = need_weight * weight.shape[0] * weight.shape[1]
    return sliding.partly_touched(names[0], x, planes * reach.touched_count) | sliding.partly_touched(
        names[1], weight, rows * reach.live_tap_count
    )


def _from_onnx(site: OnnxSite) -> Match:
    """Match Conv."""
    x, weight = site.tensor(0), site.tensor(1)
    arguments = {
        "batch": x.shape[0], "in_channels": x.shape[1], "out_channels": weight.shape[0],
        "groups": site.attributes.get("group", 1), **sliding.named("", x.shape[2:], len(x.shape) - 2),
        **sliding.onnx_window(site, weight.shape[2:]), "dtype": x.dtype, "out_dtype": site.outputs[0].dtype,
        "bias": site.optional(2) is not None,
    }  # fmt: skip
    return Match(arguments=arguments, touched_bytes=_touched(arguments, x, weight, names=("0", "1")))


def _quantised(site: OnnxSite) -> Match:
    """Match ConvInteger and QLinearConv, whose scales and zero points alternate with input and weight."""
    linear = site.name == "QLinearConv"
    places = (0, 3, 8) if linear else (0, 1)
    operands = tuple(site.optional(place) for place in places)
    match = _from_onnx(OnnxSite(name="Conv", inputs=operands, outputs=site.outputs, attributes=site.attributes))
    touched = {str(places[int(name)]): size for name, size in match.touched_bytes.items()}
    return Match(arguments=match.arguments, touched_bytes=touched)


OPERATOR = Operator(
    forward=conv,
    family="convolution",
    backward=_backward,
    tolerance=Tolerance(
        kind="contraction", reduction="in_channels kd kh kw", special="unspecified", step_if="bias", rounds=("beyond",)
    ),
    inputs=_inputs,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    same=sliding.ENDS,
    fewest={"forward": _fewest, "backward": _fewest},
    aten={
        "aten.convolution.default": _from_aten,
        "aten.convolution_backward.default": _from_aten,
        "nearpeak.quantised_convolution.default": _packed,
    },
    onnx={"Conv": _from_onnx, "ConvInteger": _quantised, "QLinearConv": _quantised},
)
