"""Shape of a transformer: the extents from which the kernels of any of its parallel layouts follow."""

from dataclasses import dataclass

from nearpeak.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Extents of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""

    query_rank: int
    """Width of the compressed queries; 0 where they are not compressed."""
    cache_rank: int
    """Width of the compressed keys and values."""
    rotary_width: int
    """Width of the part of each head that is rotated."""
    key_width: int
    """Width of the part of each key head that is not rotated."""
    value_width: int
    """Width of each value head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Extents of mixture-of-experts layers."""

    count: int
    """Routed experts of a layer."""
    per_token: int
    """Experts that each token takes."""
    width: int
    """Inner width of one expert."""
    shared_width: int = 0
    """Inner width of all shared experts of a layer together."""
    dense_layer_count: int = 0
    """Leading layers that have a dense feed-forward part instead."""
    layer_step: int = 1
    """Of the layers after them, one in so many has experts; the others are dense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerShape:
    """Extents of a decoder-only or encoder-only transformer."""

    name: str
    """Model name."""
    layer_count: int
    """Transformer layers."""
    hidden: int
    """Width of the residual stream."""
    head_count: int
    """Query heads."""
    kv_head_count: int
    """Key and value heads."""
    head_width: int
    """Width of one head."""
    ffn: int
    """Inner width of the dense feed-forward part."""
    is_gated: bool
    """Whether the feed-forward part has a gate (three matrices) or not (two)."""
    vocabulary: int
    """Rows of the embedding."""
    is_tied: bool = False
    """Whether the output head is the embedding."""
    norm: str = "rms_norm"
    """`rms_norm` or `layer_norm`."""
    has_bias: bool = False
    """Whether all projections add biases."""
    has_qkv_bias: bool = False
    """Whether the projections of queries, keys and values alone add biases."""
    has_ffn_bias: bool = False
    """Whether the projections of the feed-forward part alone add biases."""
    has_norm_bias: bool = True
    """Whether layer norms add biases."""
    has_qk_norm: bool = False
    """Whether queries and keys are normalised by head."""
    norm_count: int = 2
    """Norms of a layer across its hidden width."""
    is_parallel: bool = False
    """Whether attention and feed-forward part read the same input and are added at once."""
    positions: str = "rotary"
    """`rotary`, `learned` or `none` (ALiBi included)."""
    position_count: int = 0
    """Rows of learned positions, or the longest context where the source states it."""
    rotary_width: int = 0
    """Features of each head that are rotated; 0 for all."""
    activation: str = "silu"
    """Activation of the feed-forward part, `silu`, `gelu` or `relu`."""
    window: int = 0
    """Width of sliding-window attention; 0 for none."""
    has_chunks: bool = False
    """Whether the windows are chunks that no query sees beyond, in place of sliding ones."""
    window_layer_count: int = 0
    """Layers whose attention is windowed."""
    experts: Experts | None = None
    """Mixture of experts; none for a dense model."""
    latent: LatentAttention | None = None
    """Latent attention; none for heads of their own."""
    has_softcap: bool = False
    """Whether scores of attention are capped by a tanh."""
    has_sinks: bool = False
    """Whether a logit for each head joins the softmax without a value."""
    is_causal: bool = True
    """Whether attention is causal."""

    def __post_init__(self) -> None:
        """Refuse extents that no model has."""
        for name in ("layer_count", "hidden", "head_count", "kv_head_count", "head_width", "vocabulary"):
            if getattr(self, name) < 1:
                raise SpecError(f"{self.name}: {name}={getattr(self, name)} must be at least 1")
        if self.head_count % self.kv_head_count:
            raise SpecError(f"{self.name}: {self.head_count} heads are no multiple of {self.kv_head_count} key heads")

    @property
    def expert_layer_count(self) -> int:
        """Layers with experts."""
        return (self.layer_count - self.experts.dense_layer_count) // self.experts.layer_step if self.experts else 0

    @property
    def dense_layer_count(self) -> int:
        """Layers with a dense feed-forward part."""
        return self.layer_count - self.expert_layer_count

    def has_experts(self, layer: int) -> bool:
        """Return whether a layer, counted from 0, has experts.

        >>> shape = TransformerShape(
        ...     name="tiny", layer_count=4, hidden=8, head_count=2, kv_head_count=2, head_width=4, ffn=16,
        ...     is_gated=True, vocabulary=10, experts=Experts(count=4, per_token=1, width=16, layer_step=2),
        ... )
        >>> [shape.has_experts(layer) for layer in range(4)], shape.dense_layer_count
        ([False, True, False, True], 2)
        """
        if self.experts is None or layer < self.experts.dense_layer_count:
            return False
        return (layer - self.experts.dense_layer_count) % self.experts.layer_step == self.experts.layer_step - 1
