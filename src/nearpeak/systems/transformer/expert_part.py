"""Mixture-of-experts part of a transformer layer: router, exchange of tokens, grouped products, shared experts."""

from dataclasses import dataclass, replace

from nearpeak.core.systems.rank_program import RankCall
from nearpeak.core.systems.transformer import Experts, TransformerShape
from nearpeak.core.work.dtype import dtype_of
from nearpeak.systems.transformer.expert_rows import ExpertRows, busiest_expert_rows
from nearpeak.systems.transformer.feed_forward import activation_calls, split_feed_forward
from nearpeak.systems.transformer.layout import Layout
from nearpeak.systems.transformer.pass_calls import Axes, PassCalls, collective, dynamic, joined, kernel, pointwise
from nearpeak.systems.transformer.projections import (
    Projection,
    projection_calls,
    quantisation,
    split_rows,
)
from nearpeak.systems.transformer.token_batch import Batch, row_count

_COUNT_BYTES = 8
"""Bytes of one count of tokens (int64 in PyTorch)."""
_COUNT_KERNELS = 8
"""Kernels that turn the choice of experts into the sizes of an exchange: sums by expert and by rank, copies.
Source: NVIDIA/Megatron-LM, core/transformer/moe/token_dispatcher.py (MoEAlltoAllTokenDispatcher.preprocess)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Routed:
    """Extents of the routed experts on one rank."""

    experts: Experts
    """Experts of the model."""
    own: int
    """Tokens that the rank routes."""
    sent: int
    """Rows that the rank sends and gets back."""
    rows: ExpertRows
    """Rows of its own experts."""
    width: int
    """Inner width of an expert on the rank."""


def expert_calls(shape: TransformerShape, layout: Layout, batch: Batch) -> PassCalls:
    """Return the calls of the mixture-of-experts part on the busiest rank, collectives included, norms not.

    Rows: each rank routes its own tokens; with `all_to_all` they are sent to the ranks of their experts and back
    (per_token rows a token); with `all_reduce` all tokens are present and partial results are summed.

    Raises:
        AssertionError: the shape has no experts.
    """
    experts = shape.experts
    assert experts is not None
    rows = row_count(batch, layout.cp)
    is_sent = layout.sends_tokens
    rank_rows = split_rows(rows, layout) if is_sent else rows
    group = rank_rows * layout.ep * layout.etp if is_sent else rank_rows
    routed = _Routed(
        experts=experts, own=rank_rows, sent=rank_rows * experts.per_token,
        rows=busiest_expert_rows(experts, group, layout.ep, layout.expert_load), width=experts.width // layout.etp,
    )  # fmt: skip
    parts = (_dispatch(shape, routed, layout), _grouped(shape, routed, layout), _combine(shape, routed, layout))
    shared = _shared(shape, experts, layout, rows)
    return joined(*shared, _router(shape, routed, layout), dynamic(joined(_counts(routed, layout), *parts)))


def _router(shape: TransformerShape, routed: _Routed, layout: Layout) -> PassCalls:
    """Return the product of the router, its softmax in fp32 and the choice of experts."""
    experts, rank_rows = routed.experts, routed.own
    product = projection_calls(
        Projection(name="experts.router", rows=rank_rows, inputs=shape.hidden, outputs=experts.count,
                   has_bias=shape.has_bias),
        layout.formats, accumulates=layout.fused("accumulate"),
    )  # fmt: skip
    soft: Axes = {"rows": rank_rows, "columns": experts.count, "dtype": "fp32"}
    chosen = kernel("experts.choice", "topk", rows=rank_rows, columns=experts.count, k=experts.per_token, dtype="fp32")
    spread = () if layout.fused("experts") else (
        pointwise("experts.mask", rank_rows * experts.count, "fp32", "mul", operands=2, times=2),
    )  # fmt: skip
    return joined(
        product,
        PassCalls(
            forward=(kernel("experts.scores", "softmax", "forward", soft), chosen, *spread),
            backward=(kernel("experts.scores", "softmax", "backward", soft),),
        ),
    )


def _counts(routed: _Routed, layout: Layout) -> PassCalls:
    """Return the counting of the rows of each expert, and its exchange between ranks.

    The host reads the counts before it launches what they size: NVIDIA/Megatron-LM, token_dispatcher.py,
    `cuda_sync_point`.
    """
    counted = kernel("experts.counts", "reduce", outputs=routed.experts.count, reduced=routed.own, dtype="fp32",
                     kernel_count=_COUNT_KERNELS if layout.sends_tokens and layout.ep > 1 else 1)  # fmt: skip
    if not layout.sends_tokens or layout.ep == 1:
        return PassCalls(forward=(replace(counted, is_read=True),))
    size = layout.ep * routed.experts.count * _COUNT_BYTES
    gathered = replace(collective("experts.counts", "all_gather", size, "ep"), is_read=True)
    return PassCalls(forward=(counted, gathered))


def _dispatch(shape: TransformerShape, routed: _Routed, layout: Layout) -> PassCalls:
    """Return what brings each token's row to its experts; backward, the gradients of a token's rows are added."""
    hidden, dtype = shape.hidden, layout.formats.activation
    moved = routed.sent if layout.sends_tokens else routed.rows.total
    permuted = kernel("experts.permute", "gather", rows=moved, width=hidden, table_rows=routed.own,
                      touched_rows=min(routed.own, moved), dtype=dtype)  # fmt: skip
    added = kernel("experts.permute", "scatter", rows=moved, width=hidden, table_rows=routed.own, dtype=dtype,
                   touched_rows=min(routed.own, moved), accumulate=True)  # fmt: skip
    forward, backward = [permuted], [added]
    exchange, again = _exchange(routed, hidden, layout, "dispatch")
    forward += exchange
    backward[:0] = again
    return PassCalls(forward=tuple(forward), backward=tuple(backward))


def _exchange(routed: _Routed, hidden: int, layout: Layout, name: str) -> tuple[list[RankCall], list[RankCall]]:
    """Return the calls of a dispatch in the forward pass, and of its gradient in order of the backward pass."""
    if not layout.sends_tokens:
        return [], []
    number_format = dtype_of(layout.formats.activation)
    forward: list[RankCall] = []
    backward: list[RankCall] = []
    sort = kernel("experts.sort", "gather", rows=routed.rows.total, width=hidden, table_rows=routed.rows.total,
                  touched_rows=routed.rows.total, dtype=layout.formats.activation)  # fmt: skip
    if layout.ep > 1:
        sent = collective(f"experts.{name}", "all_to_all", number_format.bytes(routed.sent * hidden), "ep")
        if layout.fused("dispatch") and sent.transfer:
            sent = replace(sent, transfer=replace(sent.transfer, copy_count=routed.experts.per_token))
        forward.append(sent)
        backward.insert(0, sent)
    if layout.etp > 1:
        size = number_format.bytes(routed.rows.total * hidden)
        forward.append(collective(f"experts.{name}", "all_gather", size, "tp"))
        backward.insert(0, collective(f"experts.{name}", "reduce_scatter", size, "tp"))
    if layout.ep > 1 and len(routed.rows.rows) > 1:
        forward.append(sort)
        backward.insert(0, sort)
    return forward, backward


def _combine(shape: TransformerShape, routed: _Routed, layout: Layout) -> PassCalls:
    """Return what brings the results back and adds the rows of each token by their weights."""
    hidden, dtype = shape.hidden, layout.formats.activation
    if not layout.sends_tokens:
        moved = routed.rows.total
        calls = [kernel("experts.unpermute", "scatter", rows=moved, width=hidden, table_rows=routed.own,
                        touched_rows=min(routed.own, moved), dtype=dtype, accumulate=True)]  # fmt: skip
        if layout.ep * layout.etp > 1:
            size = dtype_of(dtype).bytes(routed.own * hidden)
            calls.append(collective("experts.reduce", "all_reduce", size, "tp" if layout.tp > 1 else "ep"))
        return PassCalls(forward=tuple(calls))
    back, forth = _exchange(routed, hidden, layout, "combine")
    # A combine is a dispatch the other way: its forward pass is a dispatch's gradient.
    added = kernel("experts.unpermute", "scatter", rows=routed.sent, width=hidden, table_rows=routed.own,
                   touched_rows=min(routed.own, routed.sent), dtype=dtype, accumulate=True)  # fmt: skip
    spread = kernel("experts.unpermute", "gather", rows=routed.sent, width=hidden, table_rows=routed.own,
                    touched_rows=min(routed.own, routed.sent), dtype=dtype)  # fmt: skip
    return PassCalls(forward=(*forth, added), backward=(spread, *back))


def _grouped(shape: TransformerShape, routed: _Routed, layout: Layout) -> PassCalls:
    """Return the grouped products of the experts and the activation between them."""
    first = 2 * routed.width if shape.is_gated else routed.width
    return joined(
        _grouped_product("experts.up", routed.rows, shape.hidden, first, layout),
        activation_calls("experts.activation", shape, routed.rows.total * routed.width, layout),
        _grouped_product("experts.down", routed.rows, routed.width, shape.hidden, layout),
    )


def _grouped_product(name: str, rows: ExpertRows, inputs: int, outputs: int, layout: Layout) -> PassCalls:
    """Return one product per expert and its gradients; an expert layer whose rank has no rows is empty."""
    formats, scheme, total = layout.formats, layout.formats.expert, rows.total
    if not total:
        return PassCalls()
    groups, dtype = len(rows.rows), scheme or formats.activation
    gradient = "fp8_block_1x128" if scheme == "fp8_block" else dtype
    written = formats.gradient if formats.gradient and layout.fused("accumulate") else formats.activation
    # Without a grouped kernel each expert's product, and each quantisation of its rows, is a kernel of its own.
    launches = 1 if layout.fused("grouped") else sum(count > 0 for count in rows.rows)
    quantised = {
        part: tuple(
            replace(call, kernel_count=call.kernel_count * launches)
            for call in quantisation(f"{name}.{part}", count, width, scheme, formats, is_weight=part == "weight")
        )
        if scheme
        else ()
        for part, count, width in (
            ("input", total, inputs), ("gradient", total, outputs), ("weight", groups * outputs, inputs)
        )
    }  # fmt: skip
    narrow_out = None if scheme and written == "bf16" else written
    summed = pointwise(f"{name}.accumulate", groups * inputs * outputs, formats.gradient or written, "add", operands=2,
                       b_dtype=formats.activation)  # fmt: skip
    is_summed = formats.gradient and not layout.fused("accumulate")
    common: Axes = {"groups": groups, "load": rows.load}
    return PassCalls(
        forward=(
            *quantised["input"],
            kernel(name, "grouped_gemm", "forward", common, m=total, n=outputs, k=inputs, dtype=dtype,
                   kernel_count=launches),
        ),
        backward=(
            *quantised["gradient"],
            kernel(name, "grouped_gemm", "forward", common, m=total, n=inputs, k=outputs, dtype=dtype,
                   kernel_count=launches),
        ),
        weight=(
            kernel(name, "grouped_gemm", m=outputs, n=inputs, k=total, groups=groups, dtype=gradient, split="k",
                   out_dtype=narrow_out, kernel_count=launches),
            *((summed,) if is_summed else ()),
        ),
        step=quantised["weight"],
    )  # fmt: skip


def _shared(shape: TransformerShape, experts: Experts, layout: Layout, rows: int) -> tuple[PassCalls, ...]:
    """Return the calls of the shared experts, a dense feed-forward part beside the routed ones."""
    if not experts.shared_width:
        return ()
    summed = pointwise(
        "experts.shared.add", split_rows(rows, layout) * shape.hidden, layout.formats.activation, "add", operands=2
    )
    return (
        split_feed_forward("experts.shared", shape, rows, experts.shared_width // layout.tp, layout),
        PassCalls(forward=(summed,), backward=(summed,)),
    )
