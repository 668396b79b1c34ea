"""State-space scan of Mamba-2: one decay per head and token, so that chunks become matrix products."""

from functools import partial
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.attention.linear_attention import backward_products
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.axis_checks import required_multiple
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.state_chains import chain, in_fp32, run, run_back
from nearpeak.ops.shared.state_work import Operands, backward_work, forward_work


@free_when_empty
def ssd_scan(
    batch: int, tokens: int, heads: int, dim: int, state: int, dtype: DType, groups: int = 1,
    state_dtype: DType | None = None, softplus: bool = True, skip: bool = True, begun: bool = False,
    ended: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of S_t = exp(dt_t A) S_{t-1} + dt_t B_t x_t^T, y_t = S_t^T C_t + D x_t.

    Shapes: X, Y [batch,tokens,heads,dim]; dt [batch,tokens,heads]; A, D [heads]; B, C [batch,tokens,groups,state];
    S [batch,heads,state,dim].
    Counts: the least products of all recurrent, chunked and quadratic forms: 4 * state * dim FLOP per head and token
    through the state, or 2 * state per group and 2 * dim per head for a pair of tokens, whichever mixture is less. One
    product per element of dt X, two FLOP for the skip; per dt one product with A, a running sum and an exponential.
    Applying the decays, which chunked forms fold into the operands, is not counted.

    Args:
        groups: groups of heads that share B and C.
        softplus: dt = softplus(dt + bias), with a bias per head: 1 FLOP and 2 special functions per dt.
        skip: D is given.
        begun: a first state is given, as in a decode step.
        ended: the final state is wanted.

    Source: Dao and Gu 2024, arXiv:2405.21060; least mixture of forms derived.

    >>> ssd_scan(1, 1, 2, 64, 128, DType(name="bf16", bits_count=16), begun=True, ended=True).flop["matrix.bf16"]
    65536
    """
    steps, operands = _sizes(batch, tokens, heads, dim, state, dtype, groups, state_dtype, softplus + skip)
    step, pair = 2 * heads * state * dim, 2 * (groups * state + heads * dim)
    flop = {
        f"matrix.{dtype.name}": batch * chain(tokens, step, step, pair, begun=begun, ended=ended),
        unit(dtype): operands.outputs * (3 if skip else 1) + steps * (3 if softplus else 2),
    }
    return forward_work(operands, flop, steps * (3 if softplus else 1), begun=begun, ended=ended)


@free_when_empty
def _backward(
    batch: int, tokens: int, heads: int, dim: int, state: int, dtype: DType, groups: int = 1,
    state_dtype: DType | None = None, softplus: bool = True, skip: bool = True, begun: bool = False,
    ended: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of the gradients of X, dt, A, B, C, D, the bias of dt and the first state.

    Counts: the products of linear attention's gradient: 10 * state * dim FLOP per head and token through states and
    their gradients, of which 2 * state * dim form the states again. Per element of X 3 FLOP (gradients of X and dt),
    4 more for the skip; per dt 6.

    Args:
        begun: a first state was given and has a gradient.
        ended: the final state has a gradient.
    """
    steps, operands = _sizes(batch, tokens, heads, dim, state, dtype, groups, state_dtype, softplus + skip)
    products, repeated = backward_products(tokens, heads, groups, state, dim, begun=begun, ended=ended)
    vector = operands.outputs * (7 if skip else 3) + 6 * steps
    flop = {f"matrix.{dtype.name}": batch * products, unit(dtype): vector}
    again = {f"matrix.{dtype.name}": batch * repeated}
    return backward_work(operands, flop, steps * (3 if softplus else 1), again=again, begun=begun, ended=ended)


def _sizes(
    batch: int, tokens: int, heads: int, dim: int, state: int, dtype: DType, groups: int, state_dtype: DType | None,
    options: int,
) -> tuple[int, Operands]:  # fmt: skip
    """Return the number of dt, and the operands; `options` is the number of bias and D that are present."""
    required_multiple("ssd_scan", {"groups": groups}, heads=heads)
    steps, shared = batch * tokens * heads, 2 * batch * tokens * groups * state
    others = steps + shared + heads * (1 + options)
    return steps, Operands(dtype, state_dtype or dtype, steps * dim, others, batch * heads * state * dim)


def _inputs(
    batch: int, tokens: int, heads: int, dim: int, state: int, dtype: str, groups: int, state_dtype: str,
    softplus: bool, skip: bool, begun: bool, **_: Any,
) -> dict[str, Tensor]:  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {"x": (batch, tokens, heads, dim), "dt": (batch, tokens, heads), "a": (heads,)}
    shapes |= dict.fromkeys(("b", "c"), (batch, tokens, groups, state))
    shapes |= ({"bias": (heads,)} if softplus else {}) | ({"d": (heads,)} if skip else {})
    tensors = {name: Tensor(shape=shape, dtype=dtype) for name, shape in shapes.items()}
    return tensors | ({"state": Tensor(shape=(batch, heads, state, dim), dtype=state_dtype)} if begun else {})


def _valid(drawn: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return states that decay: ones that grow soon leave every format."""
    return {"a": -np.abs(drawn["a"])}


def _operands(arrays: dict[str, Any], heads: int, groups: int) -> tuple[Any, ...]:
    """Return dt and linear attention's q, k, v and g."""
    dt = arrays["dt"]
    if "bias" in arrays:
        dt = np.logaddexp(0.0, dt + arrays["bias"])
    b, c = (np.repeat(arrays[name], heads // groups, 2) for name in ("b", "c"))
    return dt, c, b, arrays["x"] * dt[..., None], (dt * arrays["a"])[..., None]


def _reference(arrays: dict[str, Any], heads: int, groups: int, ended: bool, **_: Any) -> dict[str, Any]:
    _dt, *operands = _operands(arrays, heads, groups)
    y, final, _before = run(np, *operands, state=arrays.get("state"))
    y = y + arrays["d"][:, None] * arrays["x"] if "d" in arrays else y
    return {"y": y} | ({"final": final} if ended else {})


def _backward_reference(arrays: dict[str, Any], heads: int, groups: int, **_: Any) -> dict[str, Any]:
    dt, *operands = _operands(arrays, heads, groups)
    _y, final, before = run(np, *operands, state=arrays.get("state"))
    grad, x = arrays["grad_y"], arrays["x"]
    dc, db, dv, dg, _w, dstate = run_back(np, (grad, arrays.get("grad_final", 0 * final)), before, *operands)
    ddt = (dv * x).sum(-1) + dg[..., 0] * arrays["a"]
    gradients = {"grad_x": dv * dt[..., None], "grad_a": (dg[..., 0] * dt).sum((0, 1))}
    gradients |= {
        name: g.reshape(*g.shape[:2], groups, heads // groups, g.shape[-1]).sum(3)
        for name, g in (("grad_b", db), ("grad_c", dc))
    }  # fmt: skip
    if "d" in arrays:
        gradients["grad_x"] = gradients["grad_x"] + arrays["d"][:, None] * grad
        gradients["grad_d"] = (grad * x).sum((0, 1, 3))
    if "bias" in arrays:
        ddt = ddt * -np.expm1(-dt)  # the logistic function of softplus's argument
        gradients["grad_bias"] = ddt.sum((0, 1))
    return gradients | {"grad_dt": ddt} | ({"grad_state": dstate} if "state" in arrays else {})


def _torch_call(
    tensors: dict[str, Any], heads: int, groups: int, ended: bool, dtype: str, state_dtype: str, **_: Any
) -> dict[str, Any]:  # fmt: skip
    call = partial(_by_torch, heads=heads, groups=groups, ended=ended)
    return in_fp32(call, tensors, dtype, state_dtype)


def _by_torch(torch: Any, tensors: dict[str, Any], *, heads: int, groups: int, ended: bool) -> dict[str, Any]:
    x, dt = tensors["x"], tensors["dt"]
    if "bias" in tensors:
        dt = torch.nn.functional.softplus(dt + tensors["bias"])
    b, c = (tensors[name].repeat_interleave(heads // groups, 2) for name in ("b", "c"))
    y, final, _before = run(torch, c, b, x * dt[..., None], (dt * tensors["a"])[..., None], state=tensors.get("state"))
    y = y + tensors["d"][:, None] * x if "d" in tensors else y
    return {"y": y} | ({"final": final} if ended else {})


def _from_capture(site: AtenSite) -> Match:
    """Match the scan that captures keep whole, and its gradient."""
    args = site.args
    x, b, state = args["x"], args["b"], args["state"]
    (batch, tokens, heads, dim), (groups, size) = x.shape, b.shape[2:]
    arguments: dict[str, Value] = {
        "batch": batch, "tokens": tokens, "heads": heads, "dim": dim, "state": size, "groups": groups,
        "dtype": x.dtype, "state_dtype": "fp32" if state is None else state.dtype, "softplus": args["bias"] is not None,
        "skip": args["d"] is not None, "begun": state is not None, "ended": args["ended"],
    }  # fmt: skip
    if "grads" not in args:
        return Match(arguments=arguments)
    return Match(arguments=arguments | {"ended": len(args["grads"]) > 1}, phase="backward")


OPERATOR = Operator(
    forward=ssd_scan,
    family="attention",
    backward=_backward,
    degree_count=2,
    tolerance=Tolerance(kind="normalisation", reduction="tokens state", positive=("dt",), steps_count=2),
    inputs=_inputs,
    valid=_valid,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten=dict.fromkeys(("nearpeak.ssd_scan.default", "nearpeak.ssd_scan_backward.default"), _from_capture),
)
