"""Attention over sequences of unequal length that are packed without padding."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops.shared.attention_reference import Weights, gradients_of, weights_of
from nearpeak.ops.shared.attention_work import Heads, backward_work, forward_work
from nearpeak.ops.shared.definition.array_arithmetic import ceil_div, maximum, where
from nearpeak.ops.shared.definition.axis_checks import required_at_most, required_multiple
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.live_pairs import Band, Live, band_live, band_mask

LENGTHS = "known_lengths"
"""Argument that captures add to a call whose offsets have known values: offsets of queries and of keys."""


@free_when_empty
def varlen_attention(
    tokens: int, heads: int, dim: int, dtype: DType, sequences: int = 1, kv_tokens: int | None = None,
    kv_heads: int | None = None, v_dim: int | None = None, left: int = 0, right: int = 0, live_pairs: int = 0,
    live_keys: int = 0, live_queries: int = 0, causal: bool = False, cross: bool = False, lengths: str = "data",
) -> Work:  # fmt: skip
    """Return the least work of attention within each of several sequences whose tokens lie one behind the other.

    Shapes: Q [tokens, heads, dim]; K [kv_tokens, kv_heads, dim]; V [kv_tokens, kv_heads, v_dim]; offsets of the
    sequences in int32 [sequences + 1], those of the keys too when `cross`.
    Counts: as attention. How long each sequence is, is data: of all lengths that add up to `tokens`, equal ones leave
    the fewest pairs, and these count unless the lengths are known (assumption A9). When `cross`, several sequences may
    leave no pair at all. The last query of a sequence is aligned with its last key.

    Args:
        left: keys up to its own position that a query sees, its own included; 0 stands for all.
        right: keys from its own position on that a query sees, its own included; 0 stands for all.
        live_pairs: with lengths=known, live pairs of one head.
        live_keys: with lengths=known, keys of one head that a query sees.
        live_queries: with lengths=known, queries of one head that see a key.
        cross: keys have lengths of their own.
        lengths: `data`, or `known` and counted.

    Source: Dao 2023, arXiv:2307.08691, section 3, and algorithm 2 for the gradients; equal lengths: pairs are convex in
    the length.

    >>> varlen_attention(8, 1, 4, DType(name="bf16", bits_count=16), sequences=2, causal=True).flop
    {'matrix.bf16': 320}
    """
    widths, groups, kv = _sizes(tokens, heads, dim, dtype, kv_tokens, kv_heads, v_dim, cross)
    live = _live(tokens, kv, sequences, Band(left, right, 0, causal, "lower_right"), cross, lengths,
                 Live(live_pairs, live_keys, live_queries))  # fmt: skip
    total = Live(heads * live.pairs, groups * live.keys, heads * live.queries)
    offsets = 4 * (1 + cross) * (sequences + 1)
    return forward_work(widths, total, tokens * heads, softcap=False, sinks=0, more_bytes=offsets)


@free_when_empty
def _backward(
    tokens: int, heads: int, dim: int, dtype: DType, sequences: int = 1, kv_tokens: int | None = None,
    kv_heads: int | None = None, v_dim: int | None = None, left: int = 0, right: int = 0, live_pairs: int = 0,
    live_keys: int = 0, live_queries: int = 0, causal: bool = False, cross: bool = False, lengths: str = "data",
) -> Work:  # fmt: skip
    """Return the least work of the gradients of Q, K and V, counted as those of attention.

    Source: Dao 2023, arXiv:2307.08691, algorithm 2.
    """
    widths, groups, kv = _sizes(tokens, heads, dim, dtype, kv_tokens, kv_heads, v_dim, cross)
    live = _live(tokens, kv, sequences, Band(left, right, 0, causal, "lower_right"), cross, lengths,
                 Live(live_pairs, live_keys, live_queries))  # fmt: skip
    total = Live(heads * live.pairs, groups * live.keys, heads * live.queries)
    offsets = 4 * (1 + cross) * (sequences + 1)
    return backward_work(
        widths, total, tokens * heads, kv * groups, softcap=False, sinks=0, more_bytes=offsets, bias_bytes=0
    )


def _sizes(
    tokens: int, heads: int, dim: int, dtype: DType,
    kv_tokens: int | None, kv_heads: int | None, v_dim: int | None, cross: bool,
) -> tuple[Heads, int, int]:  # fmt: skip
    groups, width = heads if kv_heads is None else kv_heads, dim if v_dim is None else v_dim
    kv = tokens if kv_tokens is None else kv_tokens
    required_at_most("varlen_attention", {"heads": heads}, kv_heads=groups)
    required_multiple("varlen_attention", {"kv_heads": groups}, heads=heads)
    if not cross and np.any(kv != tokens):
        raise SpecError("varlen_attention: kv_tokens contradicts tokens; only with cross=True have keys their own")
    return Heads(dim, width, dtype, dtype), groups, kv


def _live(tokens: int, kv: int, sequences: int, band: Band, cross: bool, lengths: str, known: Live) -> Live:
    """Return what is alive for one head."""
    if lengths not in ("data", "known"):
        raise SpecError(f"varlen_attention: lengths={lengths!r} is not one of data, known")
    if lengths == "known":
        required_at_most("varlen_attention", {"tokens*kv_tokens": tokens * kv}, live_pairs=known.pairs)
        required_at_most("varlen_attention", {"kv_tokens": kv, "live_pairs": known.pairs}, live_keys=known.keys)
        required_at_most("varlen_attention", {"tokens": tokens, "live_pairs": known.pairs}, live_queries=known.queries)
        return known
    if any(np.any(count != 0) for count in known):
        raise SpecError("varlen_attention: live_pairs, live_keys and live_queries belong to lengths=known")
    whole = band_live(tokens, kv, band)
    if cross:
        return Live(*(where(sequences <= 1, count, 0 * count) for count in whole))
    parts = maximum(sequences, 1)
    short, longer = tokens // parts, tokens % parts
    pairs = (parts - longer) * band_live(short, short, band).pairs
    return Live(pairs + longer * band_live(short + 1, short + 1, band).pairs, kv, tokens)


def _inputs(**arguments: Any) -> dict[str, Tensor]:
    tokens, heads, dim, dtype = (arguments[name] for name in ("tokens", "heads", "dim", "dtype"))
    kv, groups = arguments["kv_tokens"], arguments["kv_heads"]
    names = ("offsets", "kv_offsets") if arguments["cross"] else ("offsets",)
    return {
        "query": Tensor(shape=(tokens, heads, dim), dtype=dtype),
        "key": Tensor(shape=(kv, groups, dim), dtype=dtype),
        "value": Tensor(shape=(kv, groups, arguments["v_dim"]), dtype=dtype),
        **{name: Tensor(shape=(arguments["sequences"] + 1,), dtype="int32") for name in names},
    }


def _mask(arrays: dict[str, Any], **arguments: Any) -> Any:
    """Return the mask of the packed tokens."""
    band = Band(arguments["left"], arguments["right"], 0, arguments["causal"], "lower_right")
    live = np.zeros((arguments["tokens"], arguments["kv_tokens"]), dtype=bool)
    starts = arrays["offsets"].tolist()
    kv_starts = arrays["kv_offsets"].tolist() if arguments["cross"] else starts
    for (a, b), (c, d) in zip(pairwise(starts), pairwise(kv_starts), strict=True):
        live[a:b, c:d] = band_mask(b - a, d - c, band)
    return live


def _valid(drawn: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    """Return the offsets in order, from 0 to the end of the last sequence."""
    ends = {"offsets": arguments["tokens"], "kv_offsets": arguments["kv_tokens"]}
    return {name: _parted(drawn[name], end) for name, end in ends.items() if name in drawn}


def _parted(drawn: Any, end: int) -> Any:
    """Return `end` parted at half of each number drawn: of many sequences, the first and the last are empty by chance.

    They are not where the number drawn for them is odd: the first ones have a token each then. What goes wrong there
    shows in some draws only.

    >>> [_parted(np.array([first, 4, 0, 0, 0, 7]), 9).tolist() for first in (6, 5)]
    [[0, 0, 0, 0, 2, 9], [0, 1, 2, 3, 3, 9]]
    """
    inner = np.sort((drawn[1:-1] + 1) // 2)
    least = np.minimum(np.arange(1, len(inner) + 1), _FIRST) * (drawn[0] % 2)
    return np.array([0, *np.minimum(np.maximum(np.minimum(inner, end - drawn[-1] % 2), least), end), end])


_FIRST = 3
"""Sequences at the start that have tokens in some draws."""


def _batched(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the packed tensors as one batch, heads first."""
    packed = ("query", "key", "value", "grad_output")
    return {name: arrays[name].swapaxes(0, 1)[None] for name in packed if name in arrays}


def _weights(arrays: dict[str, Any], **arguments: Any) -> tuple[dict[str, Any], Weights]:
    batched = _batched(arrays)
    return batched, weights_of(batched, _mask(arrays, **arguments))


def _reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    _, weights = _weights(arrays, **arguments)
    return {"output": (weights.weights @ weights.value)[0].swapaxes(0, 1)}


def _backward_reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    gradients = gradients_of(*_weights(arrays, **arguments))
    del gradients["grad_bias"]
    return {name: value[0].swapaxes(0, 1) for name, value in gradients.items()}


def _torch_mask(tensors: dict[str, Any], **arguments: Any) -> Any:
    """Return what `_mask` returns, computed where the offsets lie: to be read on the host, a GPU would have to end."""
    query_offsets, key_offsets = tensors["offsets"], tensors["kv_offsets" if arguments["cross"] else "offsets"]
    (row, place, length), (column, at, kv_length) = (
        _placed(ends, arguments[name]) for ends, name in ((query_offsets, "tokens"), (key_offsets, "kv_tokens"))
    )
    at, last = at[None, :], (place + kv_length[row] - length[row])[:, None]  # aligned at the lower right
    live = row[:, None] == column[None, :]
    if arguments["left"]:
        live = live & (at > last - arguments["left"])
    if arguments["right"]:
        live = live & (at < last + arguments["right"])
    return live & (at <= last) if arguments["causal"] else live


def _placed(ends: Any, tokens: int) -> tuple[Any, Any, Any]:
    """Return each token's sequence and its place in it, and the length of each sequence."""
    import torch

    every = torch.arange(tokens, device=ends.device, dtype=ends.dtype)
    row = torch.searchsorted(ends[1:].contiguous(), every, right=True)
    return row, every - ends[row], ends[1:] - ends[:-1]


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch.nn.functional as F  # noqa: N812

    query, key, value = _batched(tensors).values()
    output = F.scaled_dot_product_attention(
        query, key, value, attn_mask=_torch_mask(tensors, **arguments),
        enable_gqa=arguments["heads"] != arguments["kv_heads"],
    )  # fmt: skip
    return {"output": output[0].transpose(0, 1)}


def _from_aten(site: AtenSite) -> Match:
    """Match torch.nn.attention.varlen; keys in pages belong to paged attention."""
    query, key, value = (site.args[name] for name in ("query", "key", "value"))
    if site.args.get("block_table") is not None:
        return _paged(site)
    if site.args.get("seqused_k") is not None:
        raise NotModelledError("varlen_attention: caches without pages are not matched")
    q_offsets, kv_offsets = site.args["cu_seq_q"], site.args["cu_seq_k"]
    left, right = site.args.get("window_size") or (-1, -1)
    causal = bool(site.args["is_causal"]) or right == 0
    cross = kv_offsets.buffer != q_offsets.buffer or key.shape[0] != query.shape[0]
    arguments: dict[str, Any] = {
        "tokens": query.shape[0], "heads": query.shape[1], "dim": query.shape[2], "dtype": query.dtype,
        "sequences": q_offsets.shape[0] - 1, "kv_tokens": key.shape[0], "kv_heads": key.shape[1],
        "v_dim": value.shape[2], "left": max(0, left + 1), "right": 0 if causal else max(0, right + 1),
        "causal": causal, "cross": cross,
    }  # fmt: skip
    arguments |= _counted(site.args.get(LENGTHS), arguments)
    if "grad_out" not in site.args:
        return Match(arguments=arguments)
    return Match(arguments=arguments, phase="backward", touched_bytes=dict.fromkeys(("out", "lse", "rng_state"), 0))


def _paged(site: AtenSite) -> Match:
    """Match packed queries over keys in pages, whose lengths must be known, and equal those of the queries."""
    query, key, value = (site.args[name] for name in ("query", "key", "value"))
    known, left = site.args.get(LENGTHS), (site.args.get("window_size") or (-1, -1))[0]
    if known is None or len(set(_diff(known[0]).tolist())) != 1 or left >= 0:
        raise NotModelledError("paged_attention: lengths of the sequences are not known, or queries not equally many")
    q, page = int(_diff(known[0])[0]), key.shape[1]
    if q > 1 and not site.args["is_causal"]:
        raise NotModelledError("paged_attention: several new tokens that see those after them are not modelled")
    tokens, pages = sum(known[1]), sum(ceil_div(length, page) for length in known[1])
    size = dtype_of(key.dtype).bytes(tokens * key.shape[2] * key.shape[3])
    return Match(
        op="paged_attention",
        arguments={
            "batch": len(known[1]), "heads": query.shape[1], "tokens": tokens, "pages": pages, "dim": query.shape[2],
            "v_dim": value.shape[3], "dtype": query.dtype, "kv_dtype": key.dtype, "q": q, "page": page,
            "kv_heads": key.shape[2],
        },
        touched_bytes={"key": size, "value": size * value.shape[3] // key.shape[3], "block_table": 4 * pages},
    )  # fmt: skip


def _counted(offsets: Sequence[Sequence[int]] | None, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return what known offsets leave alive."""
    if offsets is None:
        return {}
    band = Band(arguments["left"], arguments["right"], 0, arguments["causal"], "lower_right")
    queries, keys = (_diff(part) for part in offsets)
    live = band_live(queries, keys, band)
    return {"lengths": "known", **{f"live_{n}": int(np.sum(c)) for n, c in zip(Live._fields, live, strict=True)}}


def _diff(offsets: Sequence[int]) -> Any:
    return np.diff(np.asarray(offsets, dtype=np.int64))


OPERATOR = Operator(
    forward=varlen_attention,
    family="attention",
    backward=_backward,
    tolerance=Tolerance(
        kind="normalisation",
        reduction="kv_tokens dim",
        below={"offsets": "2*tokens", "kv_offsets": "2*kv_tokens"},
        gates="always",
        steps_count=2,
        special="unspecified",
        rounds=("large", "deep", "gaps"),
    ),
    inputs=_inputs,
    valid=_valid,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    same={"kv_tokens": "tokens", "kv_heads": "heads", "v_dim": "dim"},
    aten={"torch_attn._varlen_attn.default": _from_aten, "torch_attn._varlen_attn_backward.default": _from_aten},
)
