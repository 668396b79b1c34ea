"""Selective state-space scan of Mamba, in which every channel has a state and decays of its own."""

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
from nearpeak.ops.shared.state_chains import in_fp32, run, run_back
from nearpeak.ops.shared.state_work import Operands, backward_work, forward_work


@free_when_empty
def selective_scan(
    batch: int, tokens: int, channels: int, state: int, dtype: DType, state_dtype: DType | None = None,
    softplus: bool = True, skip: bool = True, gate: bool = False, begun: bool = False, ended: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of S_t = exp(dt_t A) * S_{t-1} + dt_t x_t B_t, y_t = S_t C_t + D x_t, times silu(z_t).

    Shapes: X, dt, z, Y [batch,tokens,channels]; A [channels,state]; B, C [batch,tokens,state]; D [channels];
    S [batch,channels,state].
    Counts: in the recurrent form, which no pairing of tokens beats as each channel decays on its own: 6 FLOP and an
    exponential per token and element of the state (argument, decay, update 2, output 2); per token and channel 1 for
    dt x, 2 for the skip, 2 and two special functions for the gate. All are vector work.

    Args:
        softplus: dt = softplus(dt + bias), with a bias per channel: 1 FLOP and 2 special functions per dt.
        skip: D is given.
        gate: z is given.
        begun: a first state is given, as in a decode step.
        ended: the final state is wanted.

    Source: Gu and Dao 2023, arXiv:2312.00752.

    >>> selective_scan(1, 1, 8, 16, DType(name="bf16", bits_count=16), skip=False, softplus=False).flop
    {'vector.fp32': 776}
    """
    steps, states = batch * tokens * channels, batch * channels * state
    others = steps * (1 + gate) + 2 * batch * tokens * state + channels * (state + softplus + skip)
    operands = Operands(dtype, state_dtype or dtype, steps, others, states)
    flop = {unit(dtype): steps * (6 * state + 1 + 2 * skip + 2 * gate + softplus)}
    return forward_work(operands, flop, steps * (state + 2 * softplus + 2 * gate), begun=begun, ended=ended)


@free_when_empty
def _backward(
    batch: int, tokens: int, channels: int, state: int, dtype: DType, state_dtype: DType | None = None,
    softplus: bool = True, skip: bool = True, gate: bool = False, begun: bool = False, ended: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of the gradients of X, dt, A, B, C, D, z, the bias of dt and the first state.

    Counts: per token and element of the state 4 FLOP and an exponential to form it again, and 15: its gradient 3, those
    of C, B, x dt, A and dt 2 each, of the decay 2; per token and channel 3, 4 more for the skip, 6 for the gate.

    Args:
        begun: a first state was given and has a gradient.
        ended: the final state has a gradient.
    """
    steps, states = batch * tokens * channels, batch * channels * state
    others = steps * (1 + gate) + 2 * batch * tokens * state + channels * (state + softplus + skip)
    operands = Operands(dtype, state_dtype or dtype, steps, others, states)
    again = {unit(dtype): 4 * steps * state}
    flop = {unit(dtype): steps * ((4 + 15) * state + 3 + 4 * skip + 6 * gate + 2 * softplus)}
    special_count = steps * (state + 2 * softplus + 2 * gate)
    return backward_work(operands, flop, special_count, again=again, begun=begun, ended=ended)


def _inputs(
    batch: int, tokens: int, channels: int, state: int, dtype: str, state_dtype: str, softplus: bool, skip: bool,
    gate: bool, begun: bool, **_: Any,
) -> dict[str, Tensor]:  # fmt: skip
    each = (batch, tokens, channels)
    shapes: dict[str, tuple[int, ...]] = {"x": each, "dt": each, "a": (channels, state)}
    shapes |= dict.fromkeys(("b", "c"), (batch, tokens, state))
    shapes |= ({"bias": (channels,)} if softplus else {}) | ({"d": (channels,)} if skip else {})
    shapes |= {"z": each} if gate else {}
    tensors = {name: Tensor(shape=shape, dtype=dtype) for name, shape in shapes.items()}
    return tensors | ({"state": Tensor(shape=(batch, channels, state), dtype=state_dtype)} if begun else {})


def _valid(drawn: dict[str, Any], softplus: bool, **_: Any) -> dict[str, Any]:
    """Return states that decay, at steps forward: ones that grow soon leave every format."""
    return {"a": -np.abs(drawn["a"])} | ({} if softplus else {"dt": np.abs(drawn["dt"])})


def _operands(arrays: dict[str, Any], dt: Any) -> tuple[Any, ...]:
    """Return q, k, v and g of a recurrence with one head per channel and one column per state."""
    spread = 0 * arrays["x"][..., None]
    b, c = (arrays[name][:, :, None] + spread for name in ("b", "c"))
    return c, b, (dt * arrays["x"])[..., None], dt[..., None] * arrays["a"]


def _step_sizes(arrays: dict[str, Any]) -> Any:
    return np.logaddexp(0.0, arrays["dt"] + arrays["bias"]) if "bias" in arrays else arrays["dt"]


def _scanned(library: Any, arrays: dict[str, Any], dt: Any) -> tuple[Any, Any, list[Any]]:
    """Return outputs before the gate, the final state, and the states before each token."""
    first = arrays["state"][..., None] if "state" in arrays else None
    y, final, before = run(library, *_operands(arrays, dt), state=first)
    y = y[..., 0] + (arrays["d"] * arrays["x"] if "d" in arrays else 0.0)
    return y, final, before


def _reference(arrays: dict[str, Any], ended: bool, **_: Any) -> dict[str, Any]:
    y, final, _before = _scanned(np, arrays, _step_sizes(arrays))
    y = y * arrays["z"] / (1 + np.exp(-arrays["z"])) if "z" in arrays else y
    return {"y": y} | ({"final": final[..., 0]} if ended else {})


def _backward_reference(arrays: dict[str, Any], **_: Any) -> dict[str, Any]:
    dt, x, grad = _step_sizes(arrays), arrays["x"], arrays["grad_y"]
    y, final, before = _scanned(np, arrays, dt)
    gradients: dict[str, Any] = {}
    if "z" in arrays:
        z, logistic = arrays["z"], 1 / (1 + np.exp(-arrays["z"]))
        gradients["grad_z"] = grad * y * logistic * (1 + z * (1 - logistic))
        grad = grad * z * logistic
    last = arrays["grad_final"][..., None] if "grad_final" in arrays else 0 * final
    dc, db, dv, dg, _w, dstate = run_back(np, (grad[..., None], last), before, *_operands(arrays, dt))
    ddt = dv[..., 0] * x + (dg * arrays["a"]).sum(-1)
    gradients |= {"grad_x": dv[..., 0] * dt, "grad_a": (dg * dt[..., None]).sum((0, 1))}
    gradients |= {"grad_b": db.sum(2), "grad_c": dc.sum(2)}
    if "d" in arrays:
        gradients["grad_x"] = gradients["grad_x"] + arrays["d"] * grad
        gradients["grad_d"] = (grad * x).sum((0, 1))
    if "bias" in arrays:
        ddt = ddt * -np.expm1(-dt)  # the logistic function of softplus's argument
        gradients["grad_bias"] = ddt.sum((0, 1))
    return gradients | {"grad_dt": ddt} | ({"grad_state": dstate[..., 0]} if "state" in arrays else {})


def _torch_call(
    tensors: dict[str, Any], ended: bool, dtype: str, state_dtype: str, **_: Any
) -> dict[str, Any]:  # fmt: skip
    return in_fp32(partial(_by_torch, ended=ended), tensors, dtype, state_dtype)


def _by_torch(torch: Any, tensors: dict[str, Any], *, ended: bool) -> dict[str, Any]:
    functional = torch.nn.functional
    dt = functional.softplus(tensors["dt"] + tensors["bias"]) if "bias" in tensors else tensors["dt"]
    y, final, _before = _scanned(torch, tensors, dt)
    y = y * functional.silu(tensors["z"]) if "z" in tensors else y
    return {"y": y} | ({"final": final[..., 0]} if ended else {})


def _from_capture(site: AtenSite) -> Match:
    """Match the scan that captures keep whole, and its gradient; there channels come before tokens."""
    args = site.args
    x, a = args["x"], args["a"]
    batch, channels, tokens = x.shape
    arguments: dict[str, Value] = {
        "batch": batch, "tokens": tokens, "channels": channels, "state": a.shape[-1], "dtype": x.dtype,
        "state_dtype": "fp32", "softplus": args["bias"] is not None, "skip": args["d"] is not None,
        "gate": args["z"] is not None, "ended": args["ended"],
    }  # fmt: skip
    if "grads" not in args:
        return Match(arguments=arguments)
    return Match(arguments=arguments | {"ended": len(args["grads"]) > 1}, phase="backward")


def _from_update(site: AtenSite) -> Match:
    """Match a decode step that updates the state in place; with heads it is one of Mamba-2."""
    args = site.args
    x, b, state = args["x"], args["b"], args["state"]
    arguments: dict[str, Value] = {
        "batch": x.shape[0], "tokens": 1, "state": state.shape[-1], "dtype": x.dtype, "state_dtype": state.dtype,
        "softplus": args["bias"] is not None, "skip": args["d"] is not None, "begun": True, "ended": True,
    }  # fmt: skip
    if len(x.shape) == 2:
        return Match(arguments=arguments | {"channels": x.shape[1], "gate": args["z"] is not None})
    heads, dim = x.shape[1:]
    return Match(op="ssd_scan", arguments=arguments | {"heads": heads, "dim": dim, "groups": b.shape[1]})


OPERATOR = Operator(
    forward=selective_scan,
    family="attention",
    backward=_backward,
    tolerance=Tolerance(kind="normalisation", reduction="tokens state", steps_count=2),
    inputs=_inputs,
    valid=_valid,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten={
        "nearpeak.selective_scan.default": _from_capture,
        "nearpeak.selective_scan_backward.default": _from_capture,
        "nearpeak.selective_state_update.default": _from_update,
    },
)
