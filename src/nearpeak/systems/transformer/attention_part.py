"""Attention of a transformer layer with its projections, of heads of their own or of latent ones."""

from nearpeak.core.systems.rank_program import RankCall
from nearpeak.core.systems.transformer import LatentAttention, TransformerShape
from nearpeak.core.work.dtype import dtype_of
from nearpeak.systems.transformer.attention_core import Heads, heads_of, serving_attention, training_attention
from nearpeak.systems.transformer.layout import Layout
from nearpeak.systems.transformer.norms import norm_calls
from nearpeak.systems.transformer.pass_calls import Axes, PassCalls, collective, joined, kernel, pointwise
from nearpeak.systems.transformer.projections import (
    Projection,
    column_input,
    projection_calls,
    row_output,
    second_gather,
    split_rows,
)
from nearpeak.systems.transformer.rotary import rotary_calls
from nearpeak.systems.transformer.token_batch import Batch, ServingBatch, TrainingBatch, row_count


def attention_calls(shape: TransformerShape, layout: Layout, batch: Batch, *, is_windowed: bool = False) -> PassCalls:
    """Return the calls of attention of one layer on one rank, projections and collectives included, norms not."""
    if shape.latent:
        return _latent_calls(shape, shape.latent, layout, batch)
    heads, rows = heads_of(shape, layout), row_count(batch, layout.cp)
    scheme = layout.formats.attention
    queries, keys = heads.queries * heads.width, heads.keys * heads.width
    has_bias = shape.has_bias or shape.has_qkv_bias
    is_one = layout.fused("qkv")
    widths = {"qkv": queries + 2 * keys} if is_one else {"queries": queries, "keys": keys, "values": keys}
    projections = [
        _product(f"attention.{name}", rows, shape.hidden, width, scheme, layout, has_bias=has_bias, is_narrow=True)
        for name, width in widths.items()
    ]
    sums = 0 if is_one else 2
    return joined(
        column_input(
            "attention.input", rows, shape.hidden, scheme, layout,
            reductions=len(projections) if layout.reduces_each_projection else 1,
        ),
        PassCalls(backward=_input_sums(rows, shape.hidden, layout, sums)),
        *projections,
        second_gather("attention.input", rows, shape.hidden, scheme, layout),
        _unfused_gradients(rows, heads, layout),
        *_qk_norms(shape, heads, rows, layout),
        *_inner(shape, heads, batch, rows, layout, is_windowed=is_windowed),
        _product("attention.output", rows, heads.queries * heads.value_width, shape.hidden, scheme, layout,
                 has_bias=shape.has_bias and layout.tp == 1),
        row_output("attention.output", rows, shape.hidden, layout),
    )  # fmt: skip


def _product(
    name: str, rows: int, inputs: int, outputs: int, scheme: str, layout: Layout, *, has_bias: bool = False,
    is_narrow: bool = False,
) -> PassCalls:  # fmt: skip
    projection = Projection(
        name=name,
        rows=rows,
        inputs=inputs,
        outputs=outputs,
        scheme=scheme,
        has_bias=has_bias,
        is_input_narrow=is_narrow,
    )
    return projection_calls(projection, layout.formats, accumulates=layout.fused("accumulate"))


def _input_sums(rows: int, width: int, layout: Layout, count: int) -> tuple[RankCall, ...]:
    """Return the sums of the gradients that several projections give one input."""
    if not count:
        return ()
    return (pointwise("attention.input.sum", rows * width, layout.formats.activation, "add", operands=2, times=count),)


def _unfused_gradients(rows: int, heads: Heads, layout: Layout) -> PassCalls:
    """Return the copies that turn the gradients of queries, keys and values into rows of their projections.

    One product for all three takes their concatenation (the gradient of a split); separate ones copy what eager PyTorch
    transposed by head.
    """
    if layout.fused("qkv"):
        elements = rows * (heads.queries * heads.width + heads.keys * (heads.width + heads.value_width))
        return PassCalls(
            backward=(kernel("attention.rows", "copy", elements=elements, dtype=layout.formats.activation),)
        )
    if layout.fused("rotary"):
        return PassCalls()
    copies = tuple(
        kernel("attention.rows", "copy", elements=rows * count * heads.width, dtype=layout.formats.activation)
        for count in (heads.keys, heads.queries)
        if count > 1
    )
    return PassCalls(backward=copies)


def _inner(
    shape: TransformerShape, heads: Heads, batch: Batch, rows: int, layout: Layout, *, is_windowed: bool
) -> tuple[PassCalls, ...]:
    """Return what lies between the projections: rotation, the writing of a served model's cache, attention."""
    turned = (heads.queries, heads.keys)
    if isinstance(batch, TrainingBatch):
        rotary = rotary_calls("attention.rotary", shape, rows, batch.sequences, turned, layout)
        return rotary, training_attention(shape, heads, batch, layout, is_windowed=is_windowed)
    stored = _stored(batch.tokens * heads.keys * (heads.width + heads.value_width), layout)
    return (
        rotary_calls("attention.rotary", shape, rows, 1, turned, layout), PassCalls(forward=(stored,)),
        serving_attention(shape, heads, batch, layout, is_windowed=is_windowed),
    )  # fmt: skip


def _qk_norms(shape: TransformerShape, heads: Heads, rows: int, layout: Layout) -> tuple[PassCalls, ...]:
    if not shape.has_qk_norm:
        return ()
    return tuple(
        norm_calls(f"attention.{name}_norm", shape, rows * count, heads.width, layout)
        for name, count in (("query", heads.queries), ("key", heads.keys))
    )


def _stored(elements: int, layout: Layout) -> RankCall:
    dtype, cache = layout.formats.activation, layout.formats.cache
    if cache and cache != dtype:
        return kernel("attention.cache", "cast", elements=elements, dtype=dtype, out_dtype=cache)
    return kernel("attention.cache", "copy", elements=elements, dtype=dtype)


def _latent_calls(shape: TransformerShape, latent: LatentAttention, layout: Layout, batch: Batch) -> PassCalls:
    """Return the calls of latent attention: compressed on each rank, expanded by head (DeepSeek-V2, section 2.1)."""
    heads, rows = heads_of(shape, layout), row_count(batch, layout.cp)
    rank_rows, scheme = split_rows(rows, layout), layout.formats.attention
    query_inputs = latent.query_rank or shape.hidden
    key = latent.cache_rank + latent.rotary_width
    parts = [_product("attention.keys_down", rank_rows, shape.hidden, key, scheme, layout)]
    if latent.query_rank:
        parts.append(_product("attention.queries_down", rank_rows, shape.hidden, latent.query_rank, scheme, layout))
        parts.append(PassCalls(backward=_input_sums(rank_rows, shape.hidden, layout, 1)))
        parts.append(norm_calls("attention.query_norm", shape, rank_rows, latent.query_rank, layout))
    parts.append(norm_calls("attention.key_norm", shape, rank_rows, latent.cache_rank, layout))
    parts.append(_gathered(rows, latent.query_rank + key, layout))
    parts.append(_product("attention.queries_up", rows, query_inputs, heads.queries * heads.width, scheme, layout))
    sequences = batch.sequences if isinstance(batch, TrainingBatch) else 1
    turned = (heads.queries, 1)
    parts.append(rotary_calls("attention.rotary", shape, rows, sequences, turned, layout, width=latent.rotary_width))
    parts.append(
        _expanded(shape, latent, heads, batch, rows, layout)
        if isinstance(batch, TrainingBatch)
        else _served(shape, latent, heads, batch, layout)
    )
    parts.append(_product("attention.output", rows, heads.queries * heads.value_width, shape.hidden, scheme, layout))
    return joined(*parts, row_output("attention.output", rows, shape.hidden, layout))  # fmt: skip


def _gathered(rows: int, width: int, layout: Layout) -> PassCalls:
    """Return the collectives on the compressed tensors, which are split by sequence or whole on each rank."""
    if layout.tp == 1:
        return PassCalls()
    size = dtype_of(layout.formats.activation).bytes(rows * width)
    if layout.sequence_parallel:
        return PassCalls(
            forward=(collective("attention.latent", "all_gather", size, "tp"),),
            backward=(collective("attention.latent", "reduce_scatter", size, "tp"),),
        )
    return PassCalls(backward=(collective("attention.latent", "all_reduce", size, "tp"),))


def _expanded(
    shape: TransformerShape, latent: LatentAttention, heads: Heads, batch: TrainingBatch, rows: int, layout: Layout
) -> PassCalls:
    """Return the expansion of keys and values of a training batch, and attention over them."""
    width = heads.queries * (latent.key_width + latent.value_width)
    up = _product("attention.keys_up", rows, latent.cache_rank, width, layout.formats.attention, layout)
    elements = rows * heads.queries * heads.width
    put = (kernel("attention.concatenate", "copy", elements=elements, dtype=layout.formats.activation, times=2),)
    return joined(
        up, PassCalls(forward=put, backward=put), training_attention(shape, heads, batch, layout, is_windowed=False)
    )


def _served(
    shape: TransformerShape, latent: LatentAttention, heads: Heads, batch: ServingBatch, layout: Layout
) -> PassCalls:
    """Return attention of a serving step: prefills over expanded keys, decodes over the compressed cache."""
    dtype, scheme = layout.formats.activation, layout.formats.attention
    cached = latent.cache_rank + latent.rotary_width
    parts = [PassCalls(forward=(_stored(batch.tokens * cached, layout),))]
    if batch.prefills:
        keys = sum(new + prefix for new, prefix in batch.prefills)
        width = heads.queries * (latent.key_width + latent.value_width)
        alone = ServingBatch(prefills=batch.prefills, page=batch.page)
        parts += [
            _product("attention.keys_up", keys, latent.cache_rank, width, scheme, layout),
            serving_attention(shape, heads, alone, layout, is_windowed=False),
        ]
    if batch.decode_count:
        count, rows = heads.queries, batch.decode_tokens
        absorbed = Heads(queries=count, keys=1, width=cached, value_width=latent.cache_rank, is_latent=True)
        alone = ServingBatch(
            decode_count=batch.decode_count, decode_cached_tokens=batch.decode_cached_tokens, queries=batch.queries,
            page=batch.page,
        )  # fmt: skip
        into: Axes = {"batch": count, "m": rows, "dtype": dtype}
        into_keys = kernel("attention.absorb_keys", "gemm", "forward", into, n=latent.cache_rank, k=latent.key_width)
        from_values = kernel(
            "attention.absorb_values", "gemm", "forward", into, n=latent.value_width, k=latent.cache_rank
        )
        core = serving_attention(shape, absorbed, alone, layout, is_windowed=False)
        parts += [PassCalls(forward=(into_keys,)), core, PassCalls(forward=(from_values,))]
    return joined(*parts)
