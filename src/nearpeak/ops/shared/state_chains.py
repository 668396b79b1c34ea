"""Linear recurrences of a matrix state: their least FLOP, and their values in NumPy or PyTorch."""

# S_t = exp(g_t) * S_{t-1} + k_t (w_t * (v_t - k_t^T exp(g_t) S_{t-1}))^T for the delta rule, without the correction
# k_t^T S and without w_t for plain linear attention and state-space models; o_t = S_t^T q_t. Per token and head
# q, k, g have the state's rows (g may have one entry for all of them), v and o its columns, w is one number.

from collections.abc import Callable, Mapping
from typing import Any

from nearpeak.ops.shared.definition.array_arithmetic import maximum, minimum
from nearpeak.ops.shared.torch_names import in_wider, torch_dtype

OUTPUTS = ("y", "o")
"""Names of the results that have a value per token; all others are states."""


def chain(tokens: int, write: int, read: int, pair: int, *, begun: bool, ended: bool, strict: bool = False) -> int:
    """Return the least FLOP of carrying every token's contribution to every later token.

    A contribution travels through a state, written once per token and read once per token, or directly from token to
    token, at a cost per pair. Every chunked, recurrent or quadratic form is a mixture of the two. The last tokens need
    not be written when the final state is not wanted, the first ones need not read when no state is given; all others
    write and read, or are paired with all tokens that follow or precede them.

    Args:
        write: FLOP to add one token to the state.
        read: FLOP to apply the state to one token.
        pair: FLOP per pair of tokens.
        begun: a first state is given.
        ended: the final state is wanted.
        strict: a token is not paired with itself.

    Source: derived; with u unwritten and r unread tokens the cost is convex up to u + r = tokens and linear from there
    to u = r = tokens, so that the minimum lies at one of the two.

    >>> chain(1024, 4096, 4096, 256, begun=True, ended=True), chain(2, 4096, 4096, 256, begun=False, ended=False)
    (8388608, 768)
    """
    pairs = tokens * (tokens + 1) // 2 - strict * tokens
    direct = pair * pairs + begun * tokens * read + ended * tokens * write
    saved = (not begun) * _saved(tokens, read, pair, strict) + (not ended) * _saved(tokens, write, pair, strict)
    return minimum(direct, tokens * (write + read) - saved)


def _saved(tokens: int, amount: int, pair: int, strict: bool) -> int:
    """Return the most that pairing the first or last tokens saves, when each saves `amount` and pairs cost `pair`."""
    count = minimum(tokens, amount // maximum(pair, 1) + strict)
    return amount * count - pair * (count * (count + 1) // 2 - strict * count)


def run(np: Any, q: Any, k: Any, v: Any, g: Any, w: Any = None, *, state: Any = None) -> tuple[Any, Any, list[Any]]:
    """Return outputs [batch,tokens,heads,columns], the final state and the states before each token.

    Args:
        np: the library of the operands, `numpy` or `torch`.
        w: strength of the delta rule's correction [batch,tokens,heads]; none for plain recurrences.
    """
    if state is None:
        state = (
            np.zeros_like(k[:, 0, :, :, None] * v[:, 0, :, None, :])
            if k.shape[1]
            else np.zeros((k.shape[0], *k.shape[2:], v.shape[-1]), dtype=v.dtype)
        )
    outputs, before = [], []
    strengths = [None] * k.shape[1] if w is None else by_token(w)
    for qt, kt, vt, gt, wt in zip(*map(by_token, (q, k, v, g)), strengths, strict=True):
        before.append(state)
        decayed = np.exp(gt)[..., None] * state
        new = vt if wt is None else wt[..., None] * (vt - (decayed * kt[..., None]).sum(-2))
        state = decayed + kt[..., None] * new[..., None, :]
        outputs.append((state * qt[..., None]).sum(-2))
    return np.stack(outputs, 1) if outputs else v * 1, state, before


def by_token(x: Any) -> Any:
    """Return x[:, t] for every token t.

    PyTorch's gradient of `unbind` is one stack; that of each x[:, t] is as large as x, so that they took the square of
    the tokens.
    """
    return x.unbind(1) if hasattr(x, "unbind") else [x[:, t] for t in range(x.shape[1])]


def in_fp32(
    call: Callable[..., dict[str, Any]], tensors: Mapping[str, Any], dtype: str, state_dtype: str
) -> dict[str, Any]:
    """Return the results of `call` on PyTorch tensors widened to at least fp32, cast to the formats of the case.

    Kernels hold the state in fp32 from the first token to the last. A state that is rounded at every
    token, or decays by a rounded factor, is off by more with every token: at 512 tokens of bf16, without decay or of a
    selective scan, by 1.3 to 9 times what a right kernel may be.

    Source: selective_scan_ref of mamba_ssm and fused_recurrent of flash-linear-attention widen all that they read.
    """
    import torch

    results = call(torch, in_wider(torch, tensors, "fp32"))
    formats = {name: torch_dtype(torch, dtype if name in OUTPUTS else state_dtype) for name in results}
    return {name: result.to(formats[name]) for name, result in results.items()}


def run_back(
    np: Any, grads: tuple[Any, Any], before: list[Any], q: Any, k: Any, v: Any, g: Any, w: Any = None
) -> tuple[Any, ...]:
    """Return the gradients of q, k, v, g, w (none without it) and the first state.

    Args:
        grads: gradients of the outputs and of the final state.
        before: the states before each token, as `run` gives them.
    """
    upstream, dstate = grads
    gradients: dict[str, list[Any]] = {name: [] for name in "qkvgw"}
    for t in range(k.shape[1] - 1, -1, -1):
        decay, kt = np.exp(g[:, t])[..., None], k[:, t, ..., None]
        decayed = decay * before[t]
        wt = 1.0 if w is None else w[:, t, :, None]
        error = v[:, t] if w is None else v[:, t] - (decayed * kt).sum(-2)
        state = decayed + kt * (wt * error)[..., None, :]
        gradients["q"].append((state * upstream[:, t, :, None]).sum(-1))
        dstate = dstate + q[:, t, ..., None] * upstream[:, t, :, None]
        dnew = (dstate * kt).sum(-2)
        dk = (dstate * (wt * error)[..., None, :]).sum(-1)
        gradients["v"].append(wt * dnew)
        if w is not None:
            gradients["w"].append((dnew * error).sum(-1))
            dk = dk - (decayed * (wt * dnew)[..., None, :]).sum(-1)
            dstate = dstate - kt * (wt * dnew)[..., None, :]
        gradients["k"].append(dk)
        dg = (dstate * decayed).sum(-1)
        gradients["g"].append(dg if g.shape[-1] == dg.shape[-1] else dg.sum(-1, keepdims=True))
        dstate = decay * dstate
    operands = zip("qkvgw", (q, k, v, g, w), strict=True)  # of no tokens, these have no element either
    return (*(np.stack(gradients[name][::-1], 1) if gradients[name] else operand for name, operand in operands), dstate)
