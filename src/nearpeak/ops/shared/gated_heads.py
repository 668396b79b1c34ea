"""Operands, references and gates that linear attention and the delta rule share."""

from functools import partial
from typing import Any

import numpy as np

from nearpeak.base.registry import unknown_name
from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.errors import NotModelledError
from nearpeak.ops.shared.definition.axis_checks import required_multiple
from nearpeak.ops.shared.state_chains import in_fp32, run, run_back
from nearpeak.ops.shared.state_work import Operands

DECAYS = ("none", "constant", "head", "channel")
"""Granularity of a token's decay; `constant` is retention: a fixed number per head."""


def operands_of(
    op: str, batch: int, tokens: int, heads: int, key_heads: int | None, key_dim: int, dim: int, dtype: DType,
    state_dtype: DType | None, decay: str, *, strengths: bool = False,
) -> tuple[int, int, Operands]:  # fmt: skip
    """Return the heads of queries and keys, the number of gates, and the operands read and written."""
    shared = heads if key_heads is None else key_heads
    required_multiple(op, {"key_heads": shared}, heads=heads)
    gates = gate_count(batch, tokens, heads, shared * key_dim, decay)
    others = 2 * batch * tokens * shared * key_dim + strengths * batch * tokens * heads + gates
    values, states = batch * tokens * heads * dim, batch * heads * key_dim * dim
    return shared, gates, Operands(dtype, state_dtype or dtype, values, others, states)


def gate_count(batch: int, tokens: int, heads: int, channels: int, decay: str) -> int:
    """Return the number of gates; `channels` are the rows of all heads' states that have gates of their own.

    >>> gate_count(2, 8, 4, 64, "head")
    64
    """
    if decay not in DECAYS:
        raise unknown_name("decay", decay, DECAYS)
    each = {"none": 0, "constant": heads, "head": batch * tokens * heads, "channel": batch * tokens * channels}
    return each[decay]


def inputs(
    batch: int, tokens: int, heads: int, key_dim: int, dim: int, dtype: str, key_heads: int, state_dtype: str,
    decay: str, begun: bool, *, strengths: bool = False, **_: Any,
) -> dict[str, Tensor]:  # fmt: skip
    """Return the tensors that are read; `strengths` adds the delta rule's."""
    keys = (batch, tokens, key_heads, key_dim)
    gates = {"constant": (heads,), "head": (batch, tokens, heads), "channel": keys}
    shapes: dict[str, tuple[int, ...]] = {"q": keys, "k": keys, "v": (batch, tokens, heads, dim)}
    shapes |= {"g": gates[decay]} if decay != "none" else {}
    shapes |= {"w": (batch, tokens, heads)} if strengths else {}
    tensors = {name: Tensor(shape=shape, dtype=dtype) for name, shape in shapes.items()}
    return tensors | ({"state": Tensor(shape=(batch, heads, key_dim, dim), dtype=state_dtype)} if begun else {})


def reference(arrays: dict[str, Any], ended: bool, **arguments: Any) -> dict[str, Any]:
    """Return outputs, and the final state where it is wanted, token by token."""
    return _outputs(np, arrays, ended, **arguments)


def torch_call(tensors: dict[str, Any], dtype: str, state_dtype: str, **arguments: Any) -> dict[str, Any]:
    """Return the same with PyTorch."""
    return in_fp32(partial(_outputs, **arguments), tensors, dtype, state_dtype)


def valid(drawn: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return gates by which states decay: ones that grow soon leave every format."""
    return {"g": -np.abs(drawn["g"])} if "g" in drawn else {}


def backward_reference(
    arrays: dict[str, Any], heads: int, key_heads: int, decay: str, **_: Any
) -> dict[str, Any]:  # fmt: skip
    """Return the gradients of everything that is read."""
    if not arrays["q"].shape[-1]:
        raise NotModelledError("keys without a dimension have no closed form of their gates' gradients")
    operands = _operands(np, arrays, heads, key_heads, decay)
    _o, state, before = run(np, *operands, state=arrays.get("state"))
    upstream = (arrays["grad_o"], arrays.get("grad_final", np.zeros_like(state)))
    dq, dk, dv, dg, dw, dstate = run_back(np, upstream, before, *operands)

    def gathered(x: Any) -> Any:
        return x.reshape(*x.shape[:2], key_heads, heads // key_heads, x.shape[-1]).sum(3)

    gradients = {"grad_q": gathered(dq), "grad_k": gathered(dk), "grad_v": dv} | ({} if dw is None else {"grad_w": dw})
    gates = {"constant": lambda: dg.sum((0, 1, 3)), "head": lambda: dg[..., 0], "channel": lambda: gathered(dg)}
    gradients |= {"grad_g": gates[decay]()} if decay in gates else {}
    return gradients | ({"grad_state": dstate} if "state" in arrays else {})


def _outputs(
    library: Any, arrays: dict[str, Any], ended: bool, heads: int, key_heads: int, decay: str, **_: Any
) -> dict[str, Any]:
    operands = _operands(library, arrays, heads, key_heads, decay)
    output, state, _before = run(library, *operands, state=arrays.get("state"))
    return {"o": output} | ({"final": state} if ended else {})


def _operands(library: Any, arrays: dict[str, Any], heads: int, key_heads: int, decay: str) -> tuple[Any, ...]:
    """Return q, k, v, g and w with one head of each per value head."""

    def spread(x: Any) -> Any:
        count = heads // key_heads
        return np.repeat(x, count, 2) if library is np else x.repeat_interleave(count, 2)

    q, k = spread(arrays["q"]), spread(arrays["k"])
    g = library.zeros_like(q[..., :1])  # a product with 0 is no number where q is infinite
    if decay == "channel":
        g = spread(arrays["g"])
    elif decay != "none":
        g = g + arrays["g"][..., None]
    return q, k, arrays["v"], g, arrays.get("w")
