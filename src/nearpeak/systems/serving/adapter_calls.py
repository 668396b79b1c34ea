"""Adapters (LoRA) of a served model: the two thin products beside each projection, and the memory of their slots."""

from collections.abc import Iterator

from nearpeak.core.systems.rank_program import RankCall
from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.core.work.dtype import dtype_of
from nearpeak.errors import NotModelledError
from nearpeak.ops import case
from nearpeak.systems.serving.step_calls import Rank, StepCall, layer_layout
from nearpeak.systems.transformer.layer import layer_calls, layer_kinds
from nearpeak.systems.transformer.token_batch import ServingBatch

PIECES = {"attention.qkv": 3, "attention.output": 1, "ffn.gate_up": 2, "ffn.up": 1, "ffn.down": 1}
"""Projections with an adapter, and how many adapters of their own a fused one holds: queries, keys and values; gate and
up. Routed experts have none here. Source: vLLM, lora/layers (QKVParallelLinearWithLoRA,
MergedColumnParallelLinearWithLoRA, RowParallelLinearWithLoRA)."""


def adapter_calls(rank: Rank, tokens: int, adapter_count: int) -> Iterator[StepCall]:
    """Yield the products of adapters for the tokens of one attention group, spread evenly over so many adapters.

    Counts, beside y = x Wᵀ [tokens, outputs] on one rank: shrink x Aᵀ [tokens, pieces · rank], then expand by Bᵀ
    [rank, outputs], which adds into y; one kernel each, grouped by adapter. A rank shrinks the inputs that it holds and
    expands into the outputs that it holds, so that the reduction of y carries the adapters' part too.

    Source: Hu et al. 2021, arXiv:2106.09685, section 4.1; Chen et al. 2023 (Punica), arXiv:2310.18547, section 4.
    """
    layout = rank.layout
    if not (layout.adapter_rank and layout.adapter_count):
        return
    for call, count in _projections(rank.shape, layout, tokens):
        axes, pieces = dict(call.case.axes) if call.case else {}, PIECES[call.name]
        for name, outputs, inputs in (
            ("shrink", pieces * layout.adapter_rank, axes["k"]), ("expand", axes["n"], layout.adapter_rank),
        ):  # fmt: skip
            if adapter_count == 1:
                product = case("gemm", m=tokens, n=outputs, k=inputs, dtype=layout.activation_format, layout="nt")
            else:
                product = case(
                    "grouped_gemm", m=tokens, n=outputs, k=inputs, groups=adapter_count,
                    touched_groups=adapter_count, dtype=layout.activation_format,
                )  # fmt: skip
            yield StepCall(f"{call.name}.adapter.{name}", product, count)


def adapter_bytes(shape: TransformerShape, layout: ServingLayout) -> int:
    """Return the bytes that the slots of adapters take on one rank, filled or not, in the format of activations.

    Source: vLLM, lora/layers (create_lora_weights): lora_a_stacked [max_loras, rank, inputs] and lora_b_stacked
    [max_loras, outputs, rank] of each projection, allocated before the cache is measured.

    >>> from nearpeak.frontends.huggingface.transformer_models import shape_of
    >>> adapter_bytes(shape_of("llama-3-8b"), ServingLayout(adapter_slot_count=4, adapter_rank=16)) // 4
    83886080
    """
    if not layout.adapter_rank:
        return 0
    width = 0
    for call, count in _projections(shape, layout, 1):
        axes = dict(call.case.axes) if call.case else {}
        width += count * (PIECES[call.name] * axes["k"] + axes["n"])
    if layout.pp > 1:
        width = -(-width * -(-shape.layer_count // layout.pp) // shape.layer_count)
    each = dtype_of(layout.activation_format).bytes(layout.adapter_rank * width)
    return layout.adapter_slot_count * each


def step_adapter_count(layout: ServingLayout, sequences: float) -> int:
    """Return the adapters that so many sequences use in the mean, one of A each: A(1 − (1 − 1/A)ⁿ), at most the slots.

    >>> layout = ServingLayout(adapter_slot_count=8, adapter_count=64, adapter_rank=16)
    >>> [step_adapter_count(layout, count) for count in (1, 4, 100)]
    [1, 4, 8]
    """
    count = max(layout.adapter_count, 1)
    used = float(count * (1 - (1 - 1 / count) ** sequences))
    return max(1, min(round(used), layout.adapter_slot_count or count))


def _projections(shape: TransformerShape, layout: ServingLayout, tokens: int) -> Iterator[tuple[RankCall, int]]:
    """Yield the products of one rank that have adapters, with the number of layers that run them."""
    if shape.latent is not None:
        raise NotModelledError(
            f"{shape.name}: adapters beside latent attention are not modelled; lora_rank=0 counts slots and loads alone"
        )
    batch = ServingBatch(decode_count=tokens, decode_cached_tokens=tokens)
    for (has_experts, is_windowed), count in layer_kinds(shape).items():
        calls = layer_calls(shape, layer_layout(layout), batch, has_experts=has_experts, is_windowed=is_windowed)
        for call in calls.forward:
            if call.name in PIECES and call.case is not None and call.case.op in ("gemm", "scaled_gemm"):
                yield call, count
