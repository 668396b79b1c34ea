"""Average pooling in one to three dimensions."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError
from nearpeak.ops.shared import sliding_windows as sliding
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.window_taps import Taps, windows


def avg_pool(
    batch: int, channels: int, w: int, kw: int, dtype: DType, d: int = 1, h: int = 1, kd: int = 1, kh: int = 1,
    sd: int | None = None, sh: int | None = None, sw: int | None = None, pd: int = 0, ph: int = 0, pw: int = 0,
    pd_end: int | None = None, ph_end: int | None = None, pw_end: int | None = None,
    divisor: int = 0, ceil: bool = False, count_padding: bool = True,
) -> Work:  # fmt: skip
    """Return the least work of the mean over windows of up to three dimensions d, h, w.

    Counts: per output, one vector FLOP for each position of the window inside the input: the sum, and one product.
    Positions that no window meets are not read.

    Args:
        sd: stride; the kernel's extent unless given; likewise sh, sw.
        pd: padding at the beginning; pd_end, at the end, is the same unless given.
        divisor: divides every sum; 0 stands for the window's positions.
        ceil: windows that hang over the end count too.
        count_padding: padding counts among the window's positions.

    Source: definition; extents and divisors as PyTorch and ONNX state them.

    >>> avg_pool(1, 8, 56, 2, DType(name="bf16", bits_count=16), h=56, kh=2).flop
    {'vector.fp32': 25088}
    """
    reach = _reach((d, kd, sd, pd, pd_end), (h, kh, sh, ph, ph_end), (w, kw, sw, pw, pw_end), ceil=ceil)
    planes = batch * channels
    return Work(
        flop={unit(dtype): planes * reach.pair_count},
        read_bytes=dtype.bytes(planes * reach.touched_count),
        write_bytes=dtype.bytes(planes * reach.outputs),
    )


def _backward(
    batch: int, channels: int, w: int, kw: int, dtype: DType, d: int = 1, h: int = 1, kd: int = 1, kh: int = 1,
    sd: int | None = None, sh: int | None = None, sw: int | None = None, pd: int = 0, ph: int = 0, pw: int = 0,
    pd_end: int | None = None, ph_end: int | None = None, pw_end: int | None = None,
    divisor: int = 0, ceil: bool = False, count_padding: bool = True,
) -> Work:  # fmt: skip
    """Return the least work of spreading each output's gradient over its window.

    Counts: one product per output, one addition per pair after the first of each position. The input is not read.
    """
    reach = _reach((d, kd, sd, pd, pd_end), (h, kh, sh, ph, ph_end), (w, kw, sw, pw, pw_end), ceil=ceil)
    planes = batch * channels
    return Work(
        flop={unit(dtype): planes * (reach.live_output_count + reach.pair_count - reach.touched_count)},
        read_bytes=dtype.bytes(planes * reach.live_output_count),
        write_bytes=dtype.bytes(planes * reach.size),
    )


def _reach(*dimensions: tuple[int, int, int | None, int, int | None], ceil: bool) -> Taps:
    rows = ((n, k, k if s is None else s, p, end, 1) for n, k, s, p, end in dimensions)
    return windows(*rows, ceil=ceil)


def _divisors(arguments: dict[str, Any]) -> Any:
    """Return what each output's sum is divided by: positions that hang over the end never count."""
    if arguments["divisor"]:
        return float(arguments["divisor"])
    size, steps = sliding.extents(arguments), sliding.outputs(arguments)
    inside = sliding.padded(arguments, np.ones(size))
    if arguments["count_padding"]:
        sides = zip(size, sliding.extents(arguments, "p"), sliding.extents(arguments, "p", "_end"), strict=True)
        border = tuple(slice(0, n + begin + end) for n, begin, end in sides)
        inside[border] = 1.0
    return sum(inside[place] for _, place in sliding.tap_slices(arguments, steps))


def _reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    x, steps = sliding.padded(arguments, arrays["input"]), sliding.outputs(arguments)
    return {"output": sum(x[place] for _, place in sliding.tap_slices(arguments, steps)) / _divisors(arguments)}


def _backward_reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    grad = arrays["grad_output"] / _divisors(arguments)
    spread = np.zeros_like(sliding.padded(arguments, arrays["input"]))
    for _, place in sliding.tap_slices(arguments, grad.shape[2:]):
        spread[place] += grad
    return {"grad_input": sliding.inner(arguments, spread)}


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch
    import torch.nn.functional as F  # noqa: N812

    x, begin, end = tensors["input"], sliding.extents(arguments, "p"), sliding.extents(arguments, "p", "_end")
    run: Any = F.avg_pool2d if len(begin) == 2 else F.avg_pool3d
    window, divisor = [sliding.extents(arguments, "k"), sliding.extents(arguments, "s")], arguments["divisor"] or None
    ceil, count = arguments["ceil"], arguments["count_padding"]
    if begin == end:
        return {"output": run(x, *window, begin, ceil, count, divisor)}
    # PyTorch pads both ends alike, so pad by hand, and divide by the share of each window that counts.
    sides = [side for pair in zip(reversed(begin), reversed(end), strict=True) for side in pair]
    # Where it adds windows at the end, it takes that padding for input, and adds one more.
    inside = (..., *(slice(count) for count in sliding.outputs(arguments)))
    y = run(F.pad(x, sides), *window, 0, ceil, True, divisor)[inside]
    if count or divisor:
        return {"output": y}
    return {"output": y / run(F.pad(torch.ones_like(x), sides), *window, 0, ceil, True)[inside]}


def _from_aten(site: AtenSite) -> Match:
    """Match average pooling and its gradient."""
    x = site.args["self"]
    choices = {
        "divisor": int(site.args.get("divisor_override") or 0),
        "count_padding": bool(site.args["count_include_pad"]),
    }
    arguments = sliding.pooled(site, x) | choices
    if "grad_output" in site.args:
        return Match(arguments=arguments, phase="backward", touched_bytes={"self": 0})
    return Match(arguments=arguments, touched_bytes=sliding.touched(arguments, x, "self"))


def _from_onnx(site: OnnxSite) -> Match:
    """Match AveragePool, and LpPool, of whose powers and roots as little is counted as a mean takes."""
    x = site.tensor(0)
    arguments = sliding.onnx_pooled(site, x)
    dilations = [arguments.pop(name) for name in ("dd", "dh", "dw") if name in arguments]
    if any(extent != 1 for extent in dilations):
        raise NotModelledError(f"{site.name}: dilations are not modelled")
    choices = {"count_padding": bool(site.attributes.get("count_include_pad", 0))}
    return Match(arguments=arguments | choices, touched_bytes=sliding.touched(arguments, x, "0"))


OPERATOR = Operator(
    forward=avg_pool,
    family="reduction",
    backward=_backward,
    tolerance=Tolerance(kind="reduction", reduction="kd kh kw"),
    inputs=sliding.pooled_input,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    same={**sliding.ENDS, "sd": "kd", "sh": "kh", "sw": "kw"},
    aten={f"aten.avg_pool{name}.default": _from_aten for name in ("1d", "2d", "2d_backward", "3d", "3d_backward")},
    onnx={"AveragePool": _from_onnx, "LpPool": _from_onnx},
)
