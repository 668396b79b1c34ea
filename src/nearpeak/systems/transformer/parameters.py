"""Parameters of a transformer, by part."""

from dataclasses import dataclass

from nearpeak.core.systems.transformer import TransformerShape


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCounts:
    """Parameters of the parts of a transformer."""

    embedding: int
    """Embedding, learned positions included."""
    head: int
    """Output head, 0 where it is the embedding; the norm before it included."""
    attention: int
    """Attention of one layer."""
    norms: int
    """Norms of one layer."""
    dense: int
    """Dense feed-forward part of one layer."""
    expert: int
    """One routed expert."""
    shared: int
    """Router and shared experts of one layer."""
    expert_count: int
    """Routed experts of one layer."""
    dense_layer_count: int
    """Layers with a dense feed-forward part."""
    expert_layer_count: int
    """Layers with experts."""

    @property
    def dense_layer(self) -> int:
        """One layer without experts."""
        return self.attention + self.norms + self.dense

    @property
    def expert_layer(self) -> int:
        """One layer with experts, all of them included."""
        return self.attention + self.norms + self.shared + self.expert_count * self.expert

    @property
    def experts(self) -> int:
        """All routed experts of all layers."""
        return self.expert_layer_count * self.expert_count * self.expert

    @property
    def total(self) -> int:
        """All parameters."""
        layers = self.dense_layer_count * self.dense_layer + self.expert_layer_count * self.expert_layer
        return self.embedding + layers + self.head


def parameter_counts(shape: TransformerShape) -> ParameterCounts:
    """Return the parameters of a transformer by part.

    Counts: weights and biases of all projections, norms, embedding and learned positions; no buffers.
    """
    experts = shape.experts
    norm = shape.hidden * (2 if shape.norm == "layer_norm" and shape.has_norm_bias else 1)
    matrices = 3 if shape.is_gated else 2
    embedding = shape.vocabulary * shape.hidden
    if shape.positions == "learned":
        embedding += shape.position_count * shape.hidden
    bias = shape.has_bias or shape.has_ffn_bias
    expert = shared = 0
    if experts:
        expert = matrices * shape.hidden * experts.width
        expert += shape.has_bias * ((matrices - 1) * experts.width + shape.hidden)
        shared = matrices * shape.hidden * experts.shared_width + experts.count * (shape.hidden + shape.has_bias)
    return ParameterCounts(
        embedding=embedding, head=norm + (0 if shape.is_tied else shape.vocabulary * shape.hidden),
        attention=_attention(shape), norms=shape.norm_count * norm,
        dense=matrices * shape.hidden * shape.ffn + bias * ((matrices - 1) * shape.ffn + shape.hidden),
        expert=expert, shared=shared, expert_count=experts.count if experts else 0,
        dense_layer_count=shape.dense_layer_count, expert_layer_count=shape.expert_layer_count,
    )  # fmt: skip


def parameter_count(shape: TransformerShape) -> int:
    """Return all parameters of a transformer, tied ones once.

    >>> from nearpeak.frontends.huggingface.transformer_models import shape_of
    >>> parameter_count(shape_of("llama-3-8b"))
    8030261248
    """
    return parameter_counts(shape).total


def _attention(shape: TransformerShape) -> int:
    latent, hidden, heads = shape.latent, shape.hidden, shape.head_count
    if latent:
        query = heads * (latent.key_width + latent.rotary_width)
        queries = hidden * latent.query_rank + latent.query_rank * (1 + query) if latent.query_rank else hidden * query
        keys = hidden * (latent.cache_rank + latent.rotary_width) + latent.cache_rank
        values = latent.cache_rank * heads * (latent.key_width + latent.value_width)
        return queries + keys + values + heads * latent.value_width * hidden
    query, key = heads * shape.head_width, shape.kv_head_count * shape.head_width
    count = hidden * (query + 2 * key) + query * hidden
    count += (shape.has_bias or shape.has_qkv_bias) * (query + 2 * key) + shape.has_bias * hidden
    return count + shape.has_sinks * heads + shape.has_qk_norm * 2 * shape.head_width
