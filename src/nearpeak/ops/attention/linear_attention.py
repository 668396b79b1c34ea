"""Linear attention over a sequence or one token: ungated, with retention, gated per head or per channel."""

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.gated_heads import backward_reference, inputs, operands_of, reference, torch_call, valid
from nearpeak.ops.shared.state_chains import chain
from nearpeak.ops.shared.state_work import backward_work, forward_work


@free_when_empty
def linear_attention(
    batch: int, tokens: int, heads: int, key_dim: int, dim: int, dtype: DType, key_heads: int | None = None,
    state_dtype: DType | None = None, decay: str = "none", begun: bool = False, ended: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of S_t = exp(g_t) S_{t-1} + k_t v_t^T, o_t = S_t^T q_t, over all tokens in order.

    Shapes: Q, K [batch,tokens,key_heads,key_dim]; V, O [batch,tokens,heads,dim]; S [batch,heads,key_dim,dim];
    g in logarithms, [heads], [batch,tokens,heads] or [batch,tokens,key_heads,key_dim]. Queries arrive scaled.
    Counts: the least products of all recurrent, chunked and quadratic forms: 4 * key_dim * dim FLOP per head and token
    through the state, or 2 * (key_dim + dim) per head and pair of tokens, whichever mixture is less. One exponential
    and one running sum per gate; applying the decays, which chunked forms fold into the operands, is not counted.

    Args:
        key_heads: heads of queries and keys, each shared by heads / key_heads value heads.
        decay: none, constant (retention), head (one gate per head and token) or channel (one per row of the state).
        begun: a first state is given, as in a decode step.
        ended: the final state is wanted.

    Source: Katharopoulos et al. 2020, arXiv:2006.16236; Sun et al. 2023, arXiv:2307.08621 (retention); Yang et al.
    2024, arXiv:2312.06635 (gated, chunked); least mixture of forms derived.

    >>> linear_attention(1, 1, 2, 64, 64, DType(name="bf16", bits_count=16), begun=True, ended=True).flop["matrix.bf16"]
    32768
    """
    shared, gates, operands = operands_of(
        "linear_attention", batch, tokens, heads, key_heads, key_dim, dim, dtype, state_dtype, decay
    )
    step, pair = 2 * heads * key_dim * dim, 2 * (shared * key_dim + heads * dim)
    products = batch * chain(tokens, step, step, pair, begun=begun, ended=ended)
    running = 0 if decay in ("none", "constant") else gates
    flop = {f"matrix.{dtype.name}": products, unit(dtype): running}
    return forward_work(operands, flop, gates, begun=begun, ended=ended)


@free_when_empty
def _backward(
    batch: int, tokens: int, heads: int, key_dim: int, dim: int, dtype: DType, key_heads: int | None = None,
    state_dtype: DType | None = None, decay: str = "none", begun: bool = False, ended: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of the gradients of Q, K, V, the gates and the first state.

    Counts: dQ from the states, which are formed again, dK and dV from the gradient of the states: 10 * key_dim * dim
    FLOP per head and token, of which 2 * key_dim * dim repeat the forward pass; or 6 * key_dim + 4 * dim per head and
    pair. Two products and one sum per gate in addition to its running sum.

    Args:
        begun: a first state was given and has a gradient.
        ended: the final state has a gradient.
    """
    shared, gates, operands = operands_of(
        "linear_attention", batch, tokens, heads, key_heads, key_dim, dim, dtype, state_dtype, decay
    )
    products, repeated = backward_products(tokens, heads, shared, key_dim, dim, begun=begun, ended=ended)
    matrix, running = f"matrix.{dtype.name}", 0 if decay in ("none", "constant") else 2 * gates
    flop, again = {matrix: batch * products, unit(dtype): running}, {matrix: batch * repeated}
    return backward_work(operands, flop, gates, again=again, begun=begun, ended=ended)


def backward_products(
    tokens: int, heads: int, shared: int, key_dim: int, dim: int, *, begun: bool, ended: bool
) -> tuple[int, int]:
    """Return the least FLOP of all gradients of one sequence, and how many of them repeat the forward pass.

    Two chains: states forward, read by dQ, and their gradients backward, read by dK and by dV. The product dO V^T of
    a pair serves both, so each chain is charged half of it.
    """
    step, keys, values = 2 * heads * key_dim * dim, shared * key_dim, heads * dim
    backward = {"begun": ended, "ended": begun}
    queries = chain(tokens, step, step, 2 * keys + values, begun=begun, ended=False)
    others = chain(tokens, step, 2 * step, 4 * keys + 3 * values, **backward)
    # Without what the forward pass could have stored: the states, and the scores of the pairs.
    least = chain(tokens, 0, step, 2 * keys + values, begun=begun, ended=False)
    least += chain(tokens, step, 2 * step, 2 * keys + 3 * values, **backward)
    return queries + others, queries + others - least


OPERATOR = Operator(
    forward=linear_attention,
    family="attention",
    backward=_backward,
    degree_count=2,
    tolerance=Tolerance(kind="normalisation", reduction="tokens key_dim", steps_count=2),
    inputs=inputs,
    valid=valid,
    reference=reference,
    backward_reference=backward_reference,
    torch_call=torch_call,
    same={"key_heads": "heads"},
)
