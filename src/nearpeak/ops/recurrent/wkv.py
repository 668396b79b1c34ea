"""The WKV operator of RWKV-4: a decaying weighted average over all previous tokens, per channel."""

from functools import partial
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.state_chains import by_token, in_fp32
from nearpeak.ops.shared.state_work import Operands, backward_work, forward_work

STATES = ("num", "den", "top")
"""Numerator and denominator, both divided by the exponential of `top`."""


@free_when_empty
def wkv(
    batch: int,
    tokens: int,
    channels: int,
    dtype: DType,
    state_dtype: DType | None = None,
    begun: bool = False,
    ended: bool = False,
) -> Work:
    """Return the least work of y_t = (n + e^{u + k_t} v_t) / (d + e^{u + k_t}), n' = e^{-e^w} n + e^{k_t} v_t.

    Shapes: K, V, Y [batch,tokens,channels]; w (decay), u (bonus) [channels]; n, d and their scale [batch,channels].
    Counts: per token and channel 10 FLOP (output 2 sums, 1 product and 1 sum of the exponent; update of n 3, of d 2, 1
    for the decay's exponent), 2 exponentials and a division. Keeping the exponents small is not counted.

    Args:
        begun: a first state is given, as in a decode step.
        ended: the final state is wanted.

    Source: Peng et al. 2023, arXiv:2305.13048, section 3.

    >>> wkv(1, 4, 8, DType(name="fp32", bits_count=32)).special_count
    96
    """
    steps, states = batch * tokens * channels, batch * channels * len(STATES)
    operands = Operands(dtype, state_dtype or dtype, steps, steps + 2 * channels, states)
    return forward_work(operands, {unit(dtype): 10 * steps}, 3 * steps, begun=begun, ended=ended)


@free_when_empty
def _backward(batch: int, tokens: int, channels: int, dtype: DType) -> Work:
    """Return the least work of the gradients of K, V, w and u, without a first or final state.

    Counts: per token and channel 6 FLOP, 2 exponentials and a division to form the states again, and 16: gradients of
    quotient 3, of k, v and u 5, of both states 4, of w 4.
    """
    steps = batch * tokens * channels
    operands = Operands(dtype, dtype, steps, steps + 2 * channels, 0)
    flop, again = {unit(dtype): 22 * steps}, {unit(dtype): 6 * steps}
    return backward_work(operands, flop, 3 * steps, again=again, begun=False, ended=False)


def _inputs(
    batch: int, tokens: int, channels: int, dtype: str, state_dtype: str, begun: bool, **_: Any
) -> dict[str, Tensor]:  # fmt: skip
    tensors = {name: Tensor(shape=(batch, tokens, channels), dtype=dtype) for name in "kv"}
    tensors |= {name: Tensor(shape=(channels,), dtype=dtype) for name in "wu"}
    return tensors | {name: Tensor(shape=(batch, channels), dtype=state_dtype) for name in STATES if begun}


def _run(library: Any, arrays: dict[str, Any], ended: bool) -> dict[str, Any]:
    k, v, u = arrays["k"], arrays["v"], arrays["u"]
    decay, scale = library.exp(-library.exp(arrays["w"])), 1.0
    n = d = library.zeros_like(k[:, 0])
    if "top" in arrays:
        scale = library.exp(arrays["top"])
        n, d = arrays["num"] * scale, arrays["den"] * scale
    outputs = []
    for kt, vt in zip(by_token(k), by_token(v), strict=True):
        bonus, weight = library.exp(u + kt), library.exp(kt)
        outputs.append((n + bonus * vt) / (d + bonus))
        n, d = decay * n + weight * vt, decay * d + weight
    results = {"y": library.stack(outputs, 1)}
    return results | ({"num": n, "den": d, "top": library.zeros_like(n)} if ended else {})


def _torch_call(
    tensors: dict[str, Any], ended: bool, dtype: str, state_dtype: str, **_: Any
) -> dict[str, Any]:  # fmt: skip
    # A sum of two exponents of 6 leaves the range of fp16, too: e^11.1 is 65,504 (IEEE 754-2019).
    return in_fp32(partial(_run, ended=ended), tensors, dtype, state_dtype)


def _backward_reference(arrays: dict[str, Any], **_: Any) -> dict[str, Any]:
    k, v, u = arrays["k"], arrays["v"], arrays["u"]
    decay = np.exp(-np.exp(arrays["w"]))
    n = d = np.zeros_like(k[:, 0])
    before = []
    for t in range(k.shape[1]):
        before.append((n, d))
        weight = np.exp(k[:, t])
        n, d = decay * n + weight * v[:, t], decay * d + weight
    dn, dd, ddecay, du = (np.zeros_like(n) for _ in range(4))
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    for t in range(k.shape[1] - 1, -1, -1):
        (n, d), weight, bonus = before[t], np.exp(k[:, t]), np.exp(u + k[:, t])
        share = arrays["grad_y"][:, t] / (d + bonus)
        y = (n + bonus * v[:, t]) / (d + bonus)
        extra = share * bonus * (v[:, t] - y)
        dk[:, t] = extra + weight * (dn * v[:, t] + dd)
        dv[:, t] = share * bonus + weight * dn
        du, ddecay = du + extra, ddecay + dn * n + dd * d
        dn, dd = decay * dn + share, decay * dd - share * y
    slope = -np.exp(arrays["w"]) * decay
    return {"grad_k": dk, "grad_v": dv, "grad_u": du.sum(0), "grad_w": (ddecay * slope).sum(0)}


def _from_capture(site: AtenSite) -> Match:
    """Match the average that captures keep whole, and its gradient."""
    k, first = site.args["k"], site.args["num"]
    batch, tokens, channels = k.shape
    arguments: dict[str, Value] = {"batch": batch, "tokens": tokens, "channels": channels, "dtype": k.dtype}
    if "grads" in site.args:
        return Match(arguments=arguments, phase="backward")
    state_dtype = "fp32" if first is None else first.dtype
    more: dict[str, Value] = {"state_dtype": state_dtype, "begun": first is not None, "ended": site.args["ended"]}
    return Match(arguments=arguments | more)


OPERATOR = Operator(
    forward=wkv,
    family="attention",
    backward=_backward,
    tolerance=Tolerance(
        kind="normalisation", reduction="tokens", steps_count=2, gates="always", forward_only=("begun", "ended")
    ),
    inputs=_inputs,
    reference=lambda arrays, ended, **_: _run(np, arrays, ended),
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten=dict.fromkeys(("nearpeak.wkv.default", "nearpeak.wkv_backward.default"), _from_capture),
)
