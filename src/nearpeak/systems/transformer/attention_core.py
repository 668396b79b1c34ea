"""Attention between projections: flash attention or its eager kernels, split by context, or over a paged cache."""

from dataclasses import dataclass, replace
from math import ceil

from nearpeak.core.systems.rank_program import RankCall
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.core.work.dtype import dtype_of
from nearpeak.systems.transformer.layout import Layout
from nearpeak.systems.transformer.pass_calls import Axes, PassCalls, collective, kernel, pointwise
from nearpeak.systems.transformer.token_batch import ServingBatch, TrainingBatch

FLASH_BACKWARD_KERNELS = 3
"""Kernels of a flash-attention gradient: row sums of dO · O, the gradients, the conversion of dQ.

Source: Dao-AILab/flash-attention, csrc/flash_attn/src/flash_bwd_launch_template.h.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Heads of one rank."""

    queries: int
    """Query heads."""
    keys: int
    """Key heads, replicated where the degree is larger than their number."""
    width: int
    """Features of a query or key head."""
    value_width: int
    """Features of a value head."""
    is_latent: bool = False
    """Whether keys and values are one compressed tensor (latent attention in its absorbed form)."""


def heads_of(shape: TransformerShape, layout: Layout) -> Heads:
    """Return the heads of one tensor-parallel rank."""
    latent = shape.latent
    if latent:
        count = shape.head_count // layout.tp
        width = latent.key_width + latent.rotary_width
        return Heads(queries=count, keys=count, width=width, value_width=latent.value_width)
    keys = max(shape.kv_head_count // layout.tp, 1)
    return Heads(queries=shape.head_count // layout.tp, keys=keys, width=shape.head_width, value_width=shape.head_width)


def training_attention(
    shape: TransformerShape, heads: Heads, batch: TrainingBatch, layout: Layout, *, is_windowed: bool
) -> PassCalls:
    """Return the calls of attention over whole sequences, forward and backward, on one context-parallel rank."""
    if not layout.fused("attention"):
        return _eager(shape, heads, batch, layout)
    if layout.cp > 1 and layout.cp_kind != "all_to_all":
        return _context_parallel(shape, heads, batch, layout, is_windowed=is_windowed)
    if layout.cp > 1:
        exchanged = _exchanges(heads, batch, layout)
        part = replace(heads, queries=heads.queries // layout.cp, keys=max(heads.keys // layout.cp, 1))
        inner = _flash(shape, part, batch, layout, is_windowed=is_windowed)
        return PassCalls(
            forward=(*exchanged[:-1], *inner.forward, exchanged[-1]),
            backward=(exchanged[-1], *inner.backward, *exchanged[:-1]),
        )
    return _flash(shape, heads, batch, layout, is_windowed=is_windowed)


def _traits(shape: TransformerShape, layout: Layout, *, is_windowed: bool) -> Axes:
    traits: Axes = {"dtype": layout.formats.activation}
    if shape.is_causal:
        traits["causal"] = True
    if is_windowed and shape.window:
        traits["chunk" if shape.has_chunks else "left"] = shape.window
        if not shape.is_causal:
            traits["right"] = shape.window
    for name in ("softcap", "sinks"):
        if getattr(shape, f"has_{name}"):
            traits[name] = True
    if layout.has_dropout:
        traits["dropout"] = True
    if shape.positions == "none":
        traits["mask"] = "alibi"
    return traits


def _flash(
    shape: TransformerShape, heads: Heads, batch: TrainingBatch, layout: Layout, *, is_windowed: bool
) -> PassCalls:
    axes: Axes = {
        "batch": batch.sequences, "heads": heads.queries, "kv_heads": heads.keys, "q": batch.length,
        "kv": batch.length, "dim": heads.width, "v_dim": heads.value_width,
        **_traits(shape, layout, is_windowed=is_windowed),
    }  # fmt: skip
    return _both("attention", axes)


def _both(name: str, axes: Axes, times: int = 1) -> PassCalls:
    return PassCalls(
        forward=(kernel(name, "attention", "forward", axes, times=times),),
        backward=(
            kernel(name, "attention", "backward", axes, times=times, kernel_count=FLASH_BACKWARD_KERNELS),
        ),
    )  # fmt: skip


def _context_parallel(
    shape: TransformerShape, heads: Heads, batch: TrainingBatch, layout: Layout, *, is_windowed: bool
) -> PassCalls:
    """Return attention whose sequence is split in zig-zag halves: keys travel round a ring, or are gathered.

    A rank holds chunks i and 2 cp - 1 - i of the sequence, so that each of the cp - 1 hops costs all queries of the
    rank against half the keys of another one, whatever i is. A hop moves keys and values; backward, their gradients
    as well.

    Source: Liu et al. 2023, arXiv:2310.01889; zig-zag halves: Llama Team 2024, arXiv:2407.21783, section 3.3.2.
    """
    length, cp = batch.length // layout.cp, layout.cp
    traits = _traits(shape, layout, is_windowed=is_windowed)
    axes: Axes = {
        "batch": batch.sequences, "heads": heads.queries, "kv_heads": heads.keys, "q": length, "dim": heads.width,
        "v_dim": heads.value_width,
    }  # fmt: skip
    local = _both("attention", {**axes, "kv": length, **traits})
    full = {key: value for key, value in traits.items() if key not in ("causal", "left", "chunk")}
    other_length = length // 2 if shape.is_causal else length
    others = _both("attention.hop", {**axes, "kv": other_length, **full}, times=cp - 1)
    size = dtype_of(layout.formats.activation).bytes(
        batch.sequences * length * heads.keys * (heads.width + heads.value_width)
    )
    if layout.cp_kind == "all_gather":
        gather = collective("attention.keys", "all_gather", size * cp, "cp")
        scatter = collective("attention.keys", "reduce_scatter", size * cp, "cp")
        return PassCalls(
            forward=(gather, *local.forward, *others.forward),
            backward=(gather, *local.backward, *others.backward, scatter),
        )
    hop = collective("attention.keys", "send", size, "cp", is_beside=True)
    # The result of each hop is merged into the running one: two are read, one is written.
    elements = batch.sequences * length * heads.queries * heads.value_width
    merged = pointwise("attention.merge", elements, layout.formats.activation, "lerp", operands=2, times=cp - 1)
    return PassCalls(
        forward=(*(hop,) * (cp - 1), *local.forward, *others.forward, merged),
        backward=(*(hop,) * (2 * cp - 1), *local.backward, *others.backward),
    )


def _exchanges(heads: Heads, batch: TrainingBatch, layout: Layout) -> tuple[RankCall, ...]:
    """Return the exchanges of queries, keys, values and results between splits by sequence and by head.

    Source: Jacobs et al. 2023, arXiv:2309.14509, section 3.2.
    """
    rows = batch.sequences * (batch.length // layout.cp)
    widths = (
        ("queries", heads.queries * heads.width), ("keys", heads.keys * heads.width),
        ("values", heads.keys * heads.value_width), ("result", heads.queries * heads.value_width),
    )  # fmt: skip
    number_format = dtype_of(layout.formats.activation)
    return tuple(
        collective(f"attention.{name}", "all_to_all", number_format.bytes(rows * width), "cp") for name, width in widths
    )


def _eager(shape: TransformerShape, heads: Heads, batch: TrainingBatch, layout: Layout) -> PassCalls:
    """Return attention as two batched products with scores in memory between them."""
    dtype, planes, length = layout.formats.activation, batch.sequences * heads.queries, batch.length
    rows, scores = planes * length, planes * length * length
    product: Axes = {"batch": planes, "m": length, "dtype": dtype}
    forward = [kernel("attention.scores", "gemm", "forward", product, n=length, k=heads.width, layout="nt")]
    backward = [
        kernel("attention.scores", "gemm", "forward", product, n=heads.width, k=length),
        kernel("attention.scores", "gemm", "forward", product, n=heads.width, k=length, layout="tn"),
    ]
    soft, soft_back = (
        kernel("attention.softmax", "softmax", phase, rows=rows, columns=length, dtype=dtype)
        for phase in ("forward", "backward")
    )
    scaled = pointwise("attention.scale", scores, dtype, "mul")
    masked = pointwise("attention.mask", scores, dtype, "add", operands=2) if shape.is_causal else None
    if layout.fused("softmax"):
        forward.append(soft)
        backward.insert(0, soft_back)
    else:
        forward += [scaled, *([masked] if masked else []), soft]
        backward[:0] = [soft_back, *([scaled] if masked else []), scaled]
    if layout.has_dropout:
        forward.append(kernel("attention.dropout", "dropout", elements=scores, dtype=dtype))
        backward.insert(0, kernel("attention.dropout", "dropout", "backward", elements=scores, dtype=dtype))
    moved = kernel("attention.heads", "copy", elements=rows * heads.value_width, dtype=dtype)
    forward.append(kernel("attention.values", "gemm", "forward", product, n=heads.value_width, k=length))
    backward[:0] = [
        moved,
        kernel("attention.values", "gemm", "forward", product, n=length, k=heads.value_width, layout="nt"),
        kernel("attention.values", "gemm", "forward", product, n=heads.value_width, k=length, layout="tn"),
    ]
    forward.append(moved)  # heads lie beside one another in a row of the result
    return PassCalls(forward=tuple(forward), backward=tuple(backward))


def serving_attention(
    shape: TransformerShape, heads: Heads, batch: ServingBatch, layout: Layout, *, is_windowed: bool
) -> PassCalls:
    """Return the calls of attention of a serving step: one over all prefills, one over all decodes."""
    calls: list[RankCall] = []
    if batch.prefills:
        calls.append(_prefill(shape, heads, batch, layout, is_windowed=is_windowed))
    if batch.decode_count:
        calls.append(_decode(shape, heads, batch, layout, is_windowed=is_windowed))
    return PassCalls(forward=tuple(calls))


def _prefill(
    shape: TransformerShape, heads: Heads, batch: ServingBatch, layout: Layout, *, is_windowed: bool
) -> RankCall:
    """Return attention of new tokens over their prefixes and themselves, pairs counted sequence by sequence."""
    window = shape.window if is_windowed and shape.window else 0
    keys = sum(new + (min(prefix, window - 1) if window else prefix) for new, prefix in batch.prefills)
    pairs = sum(live_pairs(new, prefix, window) for new, prefix in batch.prefills)
    return kernel(
        "attention.prefill", "varlen_attention", tokens=batch.prefill_tokens, heads=heads.queries, dim=heads.width,
        dtype=layout.formats.activation, sequences=len(batch.prefills), kv_tokens=keys, kv_heads=heads.keys,
        v_dim=heads.value_width, live_pairs=pairs, live_keys=keys, live_queries=batch.prefill_tokens, cross=True,
        lengths="known",
    )  # fmt: skip


def live_pairs(new: int, prefix: int, window: int = 0) -> int:
    """Return the pairs of new tokens and tokens that they see, in a causal window where one is given.

    >>> live_pairs(4, 0), live_pairs(4, 10), live_pairs(4, 10, window=3), live_pairs(4, 0, window=3)
    (10, 50, 12, 9)
    """
    if not window:
        return new * prefix + new * (new + 1) // 2
    short = min(max(window - prefix, 0), new)  # queries that see fewer than a window
    return short * prefix + short * (short + 1) // 2 + (new - short) * window


def _decode(
    shape: TransformerShape, heads: Heads, batch: ServingBatch, layout: Layout, *, is_windowed: bool
) -> RankCall:
    tokens, pages = batch.decode_cached_tokens, batch.page_count
    if is_windowed and shape.window:
        tokens = min(tokens, batch.decode_count * (shape.window + batch.queries - 1))
        pages = min(pages, batch.decode_count * (ceil(shape.window / batch.page) + 1))
        pages = min(max(pages, ceil(tokens / batch.page)), tokens)
    return kernel(
        "attention.decode", "paged_attention", batch=batch.decode_count, heads=heads.queries, tokens=tokens,
        pages=pages, dim=heads.width, dtype=layout.formats.activation, kv_dtype=layout.formats.cache or None,
        q=batch.queries, page=batch.page, kv_heads=heads.keys, v_dim=heads.value_width,
        latent=heads.is_latent or None,
    )  # fmt: skip
