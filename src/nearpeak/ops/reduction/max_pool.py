"""Max pooling in one to three dimensions."""

from math import prod
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError
from nearpeak.ops.shared import sliding_windows as sliding
from nearpeak.ops.shared.arithmetic import INDEX, unit
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.window_maxima import references, returned_work
from nearpeak.ops.shared.window_taps import Taps, windows


def max_pool(
    batch: int, channels: int, w: int, kw: int, dtype: DType, d: int = 1, h: int = 1, kd: int = 1, kh: int = 1,
    sd: int | None = None, sh: int | None = None, sw: int | None = None, pd: int = 0, ph: int = 0, pw: int = 0,
    pd_end: int | None = None, ph_end: int | None = None, pw_end: int | None = None,
    dd: int = 1, dh: int = 1, dw: int = 1, ceil: bool = False, indices: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of the maximum over windows of up to three dimensions d, h, w.

    Counts: one vector FLOP per comparison, one fewer than the window's positions inside the input. Positions that no
    window meets are not read.

    Args:
        sd: stride; the kernel's extent unless given; likewise sh, sw.
        pd: padding at the beginning; pd_end, at the end, is the same unless given.
        dd: dilation.
        ceil: windows that hang over the end count too.
        indices: the position of each maximum is written as int64; leave out where it is not read.

    Source: definition; extents as PyTorch and ONNX state them.

    >>> max_pool(1, 64, 112, 3, DType(name="bf16", bits_count=16), h=112, kh=3, sh=2, sw=2, ph=1, pw=1).write_bytes
    401408
    """
    reach = _reach(
        (d, kd, sd, pd, pd_end, dd), (h, kh, sh, ph, ph_end, dh), (w, kw, sw, pw, pw_end, dw), ceil=ceil
    )  # fmt: skip
    planes = batch * channels
    outputs = planes * reach.outputs
    return Work(
        flop={unit(dtype): planes * (reach.pair_count - reach.live_output_count)},
        read_bytes=dtype.bytes(planes * reach.touched_count),
        write_bytes=dtype.bytes(outputs) + indices * INDEX.bytes(outputs),
    )


def _backward(
    batch: int, channels: int, w: int, kw: int, dtype: DType, d: int = 1, h: int = 1, kd: int = 1, kh: int = 1,
    sd: int | None = None, sh: int | None = None, sw: int | None = None, pd: int = 0, ph: int = 0, pw: int = 0,
    pd_end: int | None = None, ph_end: int | None = None, pw_end: int | None = None,
    dd: int = 1, dh: int = 1, dw: int = 1, ceil: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of adding each output's gradient where its maximum was, as the saved indices say."""
    reach = _reach(
        (d, kd, sd, pd, pd_end, dd), (h, kh, sh, ph, ph_end, dh), (w, kw, sw, pw, pw_end, dw), ceil=ceil
    )  # fmt: skip
    inputs = batch * channels * reach.size
    return returned_work(dtype, inputs, batch * channels * reach.outputs)


def _reach(*dimensions: tuple[int, int, int | None, int, int | None, int], ceil: bool) -> Taps:
    rows = ((n, k, k if s is None else s, p, end, t) for n, k, s, p, end, t in dimensions)
    return windows(*rows, ceil=ceil)


def _winners(arrays: dict[str, Any], arguments: dict[str, Any]) -> tuple[Any, Any]:
    """Return the maxima and their flat positions in the plane of the input; the first one wins a tie.

    A window of padding alone has no position, which is -1.
    """
    x, steps, size = arrays["input"], sliding.outputs(arguments), sliding.extents(arguments)
    places = np.broadcast_to(np.arange(prod(size)).reshape(size), x.shape)
    values, flat = sliding.padded(arguments, x, -np.inf), sliding.padded(arguments, places, -1)
    best, where = np.full((*x.shape[:2], *steps), -np.inf), np.full((*x.shape[:2], *steps), -1)
    for _, place in sliding.tap_slices(arguments, steps):
        first = (where < 0) & (flat[place] >= 0)  # an element may be -inf, too
        better = first | (values[place] > best) | np.isnan(values[place])
        best, where = np.where(better, values[place], best), np.where(better, flat[place], where)
    return best, where


_reference, _backward_reference = references(_winners)


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch.nn.functional as F  # noqa: N812

    x, begin, end = tensors["input"], sliding.extents(arguments, "p"), sliding.extents(arguments, "p", "_end")
    if begin != end and arguments["indices"]:
        raise NotModelledError("max_pool: PyTorch gives no indices with unequal padding")
    inside: Any = ()
    if begin != end:
        sides = zip(reversed(begin), reversed(end), strict=True)
        x, begin = F.pad(x, [side for pair in sides for side in pair], value=float("-inf")), (0,) * len(begin)
        # Where it adds windows at the end, it takes what was padded by hand for input, and adds one more.
        inside = (..., *(slice(count) for count in sliding.outputs(arguments)))
    run: Any = F.max_pool2d if len(begin) == 2 else F.max_pool3d
    window = [sliding.extents(arguments, "k"), sliding.extents(arguments, "s"), begin, sliding.extents(arguments, "d")]
    if not arguments["indices"]:
        output = run(x, *window, arguments["ceil"])
        return {"output": output[inside] if inside else output}
    output, indices = run(x, *window, arguments["ceil"], return_indices=True)
    return {"output": output, "indices": indices}


def _from_aten(site: AtenSite) -> Match:
    """Match max pooling and its gradient; whether the indices are used is not visible here, so they are left out."""
    x = site.args["self"]
    dilation = sliding.named("d", site.args["dilation"], sliding.window_rank(site))
    arguments = sliding.pooled(site, x) | dilation
    if "grad_output" in site.args:
        return Match(arguments=arguments, phase="backward", touched_bytes={"self": 0})
    return Match(arguments=arguments, touched_bytes=sliding.touched(arguments, x, "self"))


def _from_onnx(site: OnnxSite) -> Match:
    """Match MaxPool and GlobalMaxPool."""
    x = site.tensor(0)
    if site.name == "GlobalMaxPool":
        whole = sliding.named("k", x.shape[2:], len(x.shape) - 2)
        return Match(arguments=sliding.onnx_planes(x) | whole)
    arguments = sliding.onnx_pooled(site, x) | {"indices": len(site.outputs) > 1}
    return Match(arguments=arguments, touched_bytes=sliding.touched(arguments, x, "0"))


OPERATOR = Operator(
    forward=max_pool,
    family="reduction",
    backward=_backward,
    tolerance=Tolerance(kind="exact", rounds=("ties", "close", "deep")),
    inputs=sliding.pooled_input,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    same={**sliding.ENDS, "sd": "kd", "sh": "kh", "sw": "kw"},
    aten={
        f"aten.max_pool{name}.default": _from_aten
        for name in ("2d_with_indices", "2d_with_indices_backward", "3d_with_indices", "3d_with_indices_backward")
    }
    | {"prims._low_memory_max_pool_with_offsets.default": _from_aten},
    onnx={"MaxPool": _from_onnx, "GlobalMaxPool": _from_onnx},
)
