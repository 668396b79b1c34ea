"""Calls of one whole transformer layer, of the model's ends, and of all layers of a stage."""

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.systems.transformer.adapters import adapted
from nearpeak.systems.transformer.attention_part import attention_calls
from nearpeak.systems.transformer.expert_part import expert_calls
from nearpeak.systems.transformer.feed_forward import feed_forward_calls
from nearpeak.systems.transformer.layout import Layout
from nearpeak.systems.transformer.norms import branch_calls, norm_calls, residual_calls, residual_norm_calls
from nearpeak.systems.transformer.pass_calls import PassCalls, joined, of_batch
from nearpeak.systems.transformer.projections import split_rows
from nearpeak.systems.transformer.token_batch import Batch, row_count


@lru_cache(maxsize=4096)
def layer_calls(
    shape: TransformerShape, layout: Layout, batch: Batch, *, has_experts: bool = False, is_windowed: bool = False
) -> PassCalls:
    """Return the kernels and collectives that one layer runs on one rank, by pass.

    Order: norm, attention, residual, norm, feed-forward part or experts, residual; both parts behind one norm in
    parallel layers.

    Args:
        layout: degrees, formats and fusions; `validated` says whether the degrees divide.
        batch: training sequences (three passes) or a serving step (forward pass alone).
        has_experts: whether the layer has experts instead of a dense feed-forward part.
        is_windowed: whether its attention is windowed.

    >>> from nearpeak.frontends.huggingface.transformer_models import shape_of
    >>> from nearpeak.systems.transformer.token_batch import TrainingBatch
    >>> calls = layer_calls(shape_of("llama-3-8b"), Layout(tp=8), TrainingBatch(sequences=1, length=4096))
    >>> [call.transfer.kind for call in calls.forward if call.transfer]
    ['all_reduce', 'all_reduce']
    """
    rows, hidden = split_rows(row_count(batch, layout.cp), layout), shape.hidden
    attention = attention_calls(shape, layout, batch, is_windowed=is_windowed)
    inner_name = "experts" if has_experts else "ffn"
    inner = expert_calls(shape, layout, batch) if has_experts else feed_forward_calls(shape, layout, batch)

    def branch(name: str) -> PassCalls:
        return branch_calls(f"{name}.residual", rows, hidden, layout)

    def residual(name: str) -> PassCalls:
        return residual_calls(f"{name}.residual", rows, hidden, layout)

    def after(name: str) -> tuple[PassCalls, ...]:
        norm = norm_calls(f"{name}.norm_after", shape, rows, hidden, layout)
        return (norm,) if shape.norm_count == 4 else ()

    first = residual_norm_calls("attention.norm", shape, rows, hidden, layout)
    if shape.is_parallel:
        second = norm_calls(f"{inner_name}.norm", shape, rows, hidden, layout)
        norms = (first, second)[: shape.norm_count]
        parts = joined(
            branch("attention"), branch("ffn"), *norms, attention, inner, residual("ffn"), residual("attention")
        )
        return of_batch(adapted(parts, layout), batch)
    parts = joined(
        branch("attention"), first, attention, *after("attention"), residual("attention"),
        branch("ffn"), residual_norm_calls(f"{inner_name}.norm", shape, rows, hidden, layout), inner,
        *after("ffn"), residual("ffn"),
    )  # fmt: skip
    return of_batch(adapted(parts, layout), batch)


def layer_kinds(shape: TransformerShape, first: int = 0, count: int | None = None) -> Mapping[tuple[bool, bool], int]:
    """Return how many layers of a range are of each kind: (has experts, is windowed).

    Windowed layers are spread evenly over the model, as all sources that state a number of them spread them.

    >>> from nearpeak.frontends.huggingface.transformer_models import shape_of
    >>> dict(layer_kinds(shape_of("deepseek-v3"))), dict(layer_kinds(shape_of("gemma-3-27b")))
    ({(False, False): 3, (True, False): 58}, {(False, False): 10, (False, True): 52})
    """
    layers = range(first, first + (shape.layer_count if count is None else count))
    return Counter((shape.has_experts(layer), is_windowed(shape, layer)) for layer in layers)


def is_windowed(shape: TransformerShape, layer: int) -> bool:
    """Return whether the attention of a layer, counted from 0, is windowed."""
    share, whole = shape.window_layer_count, shape.layer_count
    return bool(shape.window) and (layer + 1) * share // whole > layer * share // whole
