"""Parameters that one rank holds of each part of a transformer, on columns of tensor- and expert-parallel degrees."""

from dataclasses import dataclass
from functools import lru_cache

from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.ops.shared.definition.array_arithmetic import ceil_div, maximum
from nearpeak.systems.training.programs.rank_parameters import layer_tensors
from nearpeak.systems.transformer.layout import FUSIONS, Layout

_WHOLE = Layout(fusions=FUSIONS["none"])
"""One rank, with tensors apart so that heads of keys can be split no further than to one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerParameters:
    """Parameter counts of one transformer layer on one rank."""

    attention: int
    """Projections of attention, with their biases."""
    feed_forward: int
    """Dense feed-forward part, or shared experts."""
    experts: int
    """Routed experts that the rank holds."""
    replicated: int
    """Norms, router and compressed projections: the same on every tensor-parallel rank."""

    @property
    def dense(self) -> int:
        """All but routed experts."""
        return self.attention + self.feed_forward + self.replicated


def layer_parameters(
    shape: TransformerShape, *, has_experts: bool, tp: int = 1, ep: int = 1, etp: int = 1
) -> LayerParameters:
    """Return the parameters of one layer on one rank; degrees may be NumPy columns.

    Args:
        has_experts: whether the layer's feed-forward part is a mixture of experts.

    >>> from nearpeak.core.systems.transformer import TransformerShape
    >>> gpt = TransformerShape(name="gpt", layer_count=1, hidden=64, head_count=4, kv_head_count=4, head_width=16,
    ...                        ffn=256, is_gated=False, vocabulary=100)
    >>> layer_parameters(gpt, has_experts=False).dense - 12 * 64 * 64
    128
    """
    counts = _counts(shape, has_experts and shape.experts is not None)
    return LayerParameters(
        attention=counts["attention"] // tp + maximum(counts["keys"] // tp, counts["key head"]),
        feed_forward=counts["feed_forward"] // tp,
        experts=ceil_div(counts["experts"], ep * etp),
        replicated=counts["replicated"],
    )


@lru_cache(maxsize=256)
def _counts(shape: TransformerShape, has_experts: bool) -> dict[str, int]:
    """Return the parameters of a layer on one rank by the way in which they are split; `key head` is the least part."""
    counts = dict.fromkeys(("attention", "keys", "key head", "feed_forward", "experts", "replicated"), 0)
    for tensor in layer_tensors(shape, _WHOLE, has_experts=has_experts):
        if tensor.is_expert:
            counts["experts"] += tensor.elements
        elif tensor.is_replicated:
            counts["replicated"] += tensor.elements
        elif tensor.name.startswith(("attention.keys", "attention.values")) and not shape.latent:
            counts["keys"] += tensor.elements
            counts["key head"] += tensor.elements // shape.kv_head_count
        else:
            counts["attention" if tensor.name.startswith("attention") else "feed_forward"] += tensor.elements
    return counts


def embedding_parameters(shape: TransformerShape, *, tp: int = 1, padding: int = 1) -> int:
    """Return the parameters of the embedding's shard, or of the output head's, which is as large.

    Args:
        padding: rows are rounded up to a multiple of this times `tp`.

    >>> from nearpeak.core.systems.transformer import TransformerShape
    >>> gpt = TransformerShape(name="gpt", layer_count=1, hidden=64, head_count=4, kv_head_count=4, head_width=16,
    ...                        ffn=256, is_gated=False, vocabulary=100)
    >>> embedding_parameters(gpt, tp=2, padding=64)
    4096
    """
    return vocabulary_rows(shape, tp=tp, padding=padding) * shape.hidden


def vocabulary_rows(shape: TransformerShape, *, tp: int = 1, padding: int = 1) -> int:
    """Return the rows of the vocabulary on one rank, padding included."""
    return ceil_div(shape.vocabulary, padding * tp) * padding


def position_parameters(shape: TransformerShape) -> int:
    """Return the parameters of learned positions."""
    return shape.position_count * shape.hidden if shape.positions == "learned" else 0


def final_norm_parameters(shape: TransformerShape) -> int:
    """Return the parameters of the norm before the output head."""
    return shape.hidden * (2 if shape.norm == "layer_norm" and shape.has_norm_bias else 1)
