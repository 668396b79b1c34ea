"""im2col and col2im: windows of an image laid out as columns, and columns added back into an image."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError
from nearpeak.ops.shared import sliding_windows as sliding
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.window_taps import Taps, windows


def im2col(
    batch: int, channels: int, w: int, kw: int, dtype: DType, h: int = 1, kh: int = 1, sh: int = 1, sw: int = 1,
    ph: int = 0, pw: int = 0, dh: int = 1, dw: int = 1,
) -> Work:  # fmt: skip
    """Return the least work of copying each window of x[batch,channels,h,w] into a column.

    Counts: bytes only; pixels that no window meets are not read, those of several are read once.

    Args:
        sh: stride; likewise sw.
        ph: padding with zeros.
        dh: dilation.

    Source: definition.

    >>> im2col(1, 3, 8, 3, DType(name="fp32", bits_count=32), h=8, kh=3).write_bytes
    3888
    """
    reach = _windows(h, w, kh, kw, sh, sw, ph, pw, dh, dw)
    return Work(
        read_bytes=dtype.bytes(batch * channels * reach.touched_count),
        write_bytes=dtype.bytes(batch * channels * reach.taps * reach.outputs),
    )


def _backward(
    batch: int, channels: int, w: int, kw: int, dtype: DType, h: int = 1, kh: int = 1, sh: int = 1, sw: int = 1,
    ph: int = 0, pw: int = 0, dh: int = 1, dw: int = 1,
) -> Work:  # fmt: skip
    """Return the least work of adding columns back into an image (col2im), which is also the gradient of im2col.

    Counts: one FLOP for every column element beyond the first that meets a pixel; those on padding are not read.
    """
    reach = _windows(h, w, kh, kw, sh, sw, ph, pw, dh, dw)
    planes = batch * channels
    return Work(
        flop={unit(dtype): planes * (reach.pair_count - reach.touched_count)},
        read_bytes=dtype.bytes(planes * reach.pair_count),
        write_bytes=dtype.bytes(planes * h * w),
    )


def _windows(
    h: int, w: int, kh: int, kw: int, sh: int, sw: int, ph: int, pw: int, dh: int, dw: int
) -> Taps:  # fmt: skip
    return windows((h, kh, sh, ph, None, dh), (w, kw, sw, pw, None, dw))


def _full(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with the padding at the end that the sliding windows ask for."""
    return {**arguments, "ph_end": arguments["ph"], "pw_end": arguments["pw"]}


def _reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    full = _full(arguments)
    x, steps = sliding.padded(full, arrays["x"]), sliding.outputs(full)
    taps = [x[place].reshape(*x.shape[:2], -1) for _, place in sliding.tap_slices(full, steps)]
    return {"y": np.stack(taps, axis=2).reshape(len(x), -1, steps[0] * steps[1])}


def _backward_reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    full = _full(arguments)
    grad, steps = sliding.padded(full, np.zeros_like(arrays["x"])), sliding.outputs(full)
    columns = arrays["grad_y"].reshape(*grad.shape[:2], -1, *steps)
    for number, (_, place) in enumerate(sliding.tap_slices(full, steps)):
        grad[place] += columns[:, :, number]
    return {"grad_x": sliding.inner(full, grad)}


def _torch_call(tensors: dict[str, Any], kh: int, kw: int, dh: int, dw: int, **arguments: Any) -> dict[str, Any]:
    import torch

    padding, stride = (arguments["ph"], arguments["pw"]), (arguments["sh"], arguments["sw"])
    return {"y": torch.nn.functional.unfold(tensors["x"], (kh, kw), (dh, dw), padding, stride)}


def _from_aten(site: AtenSite) -> Match:
    """Match im2col, and col2im as its way back."""
    back = "output_size" in site.args
    image = site.outputs[0] if back else site.args["self"]
    names = {"k": "kernel_size", "s": "stride", "p": "padding", "d": "dilation"}
    axes = {k: v for prefix, name in names.items() for k, v in sliding.named(prefix, site.args[name], 2).items()}
    return _match(image, axes, back=back, name="self")


def _match(image: Tensor, axes: dict[str, int], *, back: bool, name: str) -> Match:
    h, w = image.shape[-2:]
    channels = image.shape[-3]
    planes = image.elements // max(1, h * w)
    arguments: dict[str, Value] = {
        "batch": planes // max(1, channels), "channels": channels, "h": h, "w": w, "dtype": image.dtype, **axes,
    }  # fmt: skip
    reach = _windows(h, w, **axes)
    count = planes * (reach.pair_count if back else reach.touched_count)
    touched = {name: dtype_of(image.dtype).bytes(count)}
    return Match(arguments=arguments, phase="backward" if back else "forward", touched_bytes=touched)


def _from_onnx(site: OnnxSite) -> Match:
    """Match Col2Im with the same padding on both sides; image and block size travel with the launch."""
    if 2 not in site.constants:
        raise NotModelledError("im2col: no rule where the extents of a block are data")
    block = site.constants[2]
    if len(block) != 2:
        raise NotModelledError(f"im2col: no rule for {len(block)} dimensions; only images have one")
    pads = site.attributes.get("pads", [0, 0, 0, 0])
    axes = sliding.named("k", block, 2) | sliding.named("p", pads[:2], 2)
    axes |= sliding.named("s", site.attributes.get("strides", [1, 1]), 2)
    axes |= sliding.named("d", site.attributes.get("dilations", [1, 1]), 2)
    return _match(site.outputs[0], axes, back=True, name="0")


OPERATOR = Operator(
    forward=im2col,
    family="movement",
    backward=_backward,
    tolerance=Tolerance(kind="exact"),
    inputs=lambda batch, channels, h, w, dtype, **_: {"x": Tensor(shape=(batch, channels, h, w), dtype=dtype)},
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten={"aten.im2col.default": _from_aten, "aten.col2im.default": _from_aten},
    onnx={"Col2Im": _from_onnx},
)
