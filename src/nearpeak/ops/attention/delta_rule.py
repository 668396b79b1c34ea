"""The delta rule over a sequence or one token: ungated, gated per head (gated delta net) or per channel (Kimi)."""

from functools import partial

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.gated_heads import backward_reference, inputs, operands_of, reference, torch_call, valid
from nearpeak.ops.shared.state_chains import chain
from nearpeak.ops.shared.state_work import backward_work, forward_work


@free_when_empty
def delta_rule(
    batch: int, tokens: int, heads: int, key_dim: int, dim: int, dtype: DType, key_heads: int | None = None,
    state_dtype: DType | None = None, decay: str = "head", begun: bool = False, ended: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of S' = exp(g_t) S_{t-1}, S_t = S' + w_t k_t (v_t - S'^T k_t)^T, o_t = S_t^T q_t.

    Shapes: Q, K [batch,tokens,key_heads,key_dim]; V, O [batch,tokens,heads,dim]; w [batch,tokens,heads];
    S [batch,heads,key_dim,dim]; g as in linear_attention. Queries and keys arrive scaled and normalised.
    Counts: the least products of all recurrent, chunked and quadratic forms: 6 * key_dim * dim FLOP per head and token
    through the state (what it predicts, the correction, the output), or 4 * (key_dim + dim) per head and pair of
    different tokens and half of that for a token with itself, whichever mixture is less; two more per element of V for
    the correction. One exponential and one running sum per gate; applying decays is not counted.

    Args:
        key_heads: heads of queries and keys, each shared by heads / key_heads value heads.
        decay: none (DeltaNet), constant, head (gated delta net) or channel (Kimi delta attention).
        begun: a first state is given, as in a decode step.
        ended: the final state is wanted.

    Source: Yang et al. 2024, arXiv:2406.06484 (chunked form); Yang et al. 2024, arXiv:2412.06464 (gated); Kimi Team
    2025, arXiv:2510.26692; least mixture of forms derived.

    >>> delta_rule(1, 1, 2, 64, 64, DType(name="bf16", bits_count=16), begun=True, ended=True).flop["matrix.bf16"]
    49152
    """
    shared, gates, operands = operands_of(
        "delta_rule", batch, tokens, heads, key_heads, key_dim, dim, dtype, state_dtype, decay, strengths=True
    )
    running = 0 if decay in ("none", "constant") else gates
    # Both read the same state: each is charged half of writing it. A token predicts from earlier tokens only.
    half, pair = heads * key_dim * dim, 2 * (shared * key_dim + heads * dim)
    products = chain(tokens, half, 2 * half, pair, begun=begun, ended=ended)
    products += chain(tokens, half, 2 * half, pair, begun=begun, ended=ended, strict=True)
    flop = {f"matrix.{dtype.name}": batch * products, unit(dtype): running + 2 * operands.outputs}
    return forward_work(operands, flop, gates, begun=begun, ended=ended)


@free_when_empty
def _backward(
    batch: int, tokens: int, heads: int, key_dim: int, dim: int, dtype: DType, key_heads: int | None = None,
    state_dtype: DType | None = None, decay: str = "head", begun: bool = False, ended: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of the gradients of Q, K, V, the strengths w, the gates and the first state.

    Counts: each product of the forward pass twice, for its two operands, in the least mixture of forms:
    12 * key_dim * dim FLOP per head and token through the states and their gradients. What the forward pass kept of its
    states or scores, or forming it again, is not counted.

    Args:
        begun: a first state was given and has a gradient.
        ended: the final state has a gradient.
    """
    shared, gates, operands = operands_of(
        "delta_rule", batch, tokens, heads, key_heads, key_dim, dim, dtype, state_dtype, decay, strengths=True
    )
    products = _backward_products(tokens, heads, shared, key_dim, dim, begun=begun, ended=ended)
    flop = {f"matrix.{dtype.name}": batch * products, unit(dtype): 4 * operands.outputs}
    return backward_work(operands, flop, gates, begun=begun, ended=ended)


def _backward_products(
    tokens: int, heads: int, shared: int, key_dim: int, dim: int, *, begun: bool, ended: bool
) -> int:  # fmt: skip
    """Return the least FLOP of all gradients: for outputs and predictions a chain through the states and one back.

    The product of upstream gradient and V of a pair serves both, so each is charged half of it.
    """
    step, keys, values = 2 * heads * key_dim * dim, shared * key_dim, heads * dim
    total = 0
    for strict in (False, True):
        total += chain(tokens, 0, step, 2 * keys + values, begun=begun, ended=False, strict=strict)
        total += chain(tokens, step, step, 2 * keys + 3 * values, begun=ended, ended=begun, strict=strict)
    return total


def _from_capture(site: AtenSite) -> Match:
    """Match the rule that captures keep whole, and its gradient."""
    args = site.args
    k, v, g, state = args["k"], args["v"], args["g"], args["state"]
    (batch, tokens, key_heads, key_dim), (heads, dim) = k.shape, v.shape[2:]
    arguments: dict[str, Value] = {
        "batch": batch, "tokens": tokens, "heads": heads, "key_heads": key_heads, "key_dim": key_dim, "dim": dim,
        "dtype": v.dtype, "state_dtype": "fp32" if state is None else state.dtype,
        "decay": "head" if len(g.shape) == 3 else "channel", "begun": state is not None, "ended": args["ended"],
    }  # fmt: skip
    if "grads" not in args:
        return Match(arguments=arguments)
    return Match(arguments=arguments | {"ended": len(args["grads"]) > 1}, phase="backward")


OPERATOR = Operator(
    forward=delta_rule,
    family="attention",
    backward=_backward,
    degree_count=2,
    tolerance=Tolerance(kind="normalisation", reduction="tokens key_dim", steps_count=2),
    inputs=partial(inputs, strengths=True),
    valid=valid,
    reference=reference,
    backward_reference=backward_reference,
    torch_call=torch_call,
    aten=dict.fromkeys(("nearpeak.delta_rule.default", "nearpeak.delta_rule_backward.default"), _from_capture),
    same={"key_heads": "heads"},
)
