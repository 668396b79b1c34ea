"""Parameter tensors of the parts of a transformer on one rank, as a layout splits them."""

from dataclasses import dataclass, replace
from functools import lru_cache

from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.systems.transformer.layout import Layout, padded_vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterTensor:
    """One parameter tensor on one rank."""

    name: str
    """Part of the model."""
    elements: int
    """Its elements on the rank."""
    rows: int = 1
    """Extent of its first dimension, along which fully_shard splits it; 1 where it is split as a whole."""
    is_replicated: bool = False
    """Whether all tensor-parallel ranks hold it alike."""
    is_expert: bool = False
    """Whether it belongs to routed experts, whose replicas are fewer."""
    is_trained: bool = True
    """Whether it has a gradient."""

    def padded_elements(self, shards: int) -> int:
        """Return its elements once its rows are padded to equal shares.

        >>> ParameterTensor(name="embedding", elements=250 * 64, rows=250).padded_elements(4)
        16128
        """
        return -(-self.rows // shards) * shards * (self.elements // self.rows) if self.rows > 1 else self.elements


@lru_cache(maxsize=1024)
def layer_tensors(shape: TransformerShape, layout: Layout, *, has_experts: bool) -> tuple[ParameterTensor, ...]:
    """Return the parameter tensors of one layer in the order in which transformers defines them.

    Order: attention's projections with their biases, norms of queries and keys, feed-forward part or router, experts
    and shared experts, norms of the layer. Experts count as one tensor per projection.
    """
    inner = _expert_tensors(shape, layout) if has_experts else _ffn_tensors(shape, shape.ffn, "ffn", layout)
    attention = _latent_tensors(shape, layout) if shape.latent else _attention_tensors(shape, layout)
    return _adapted((*attention, *inner, *_norm("norm", shape, shape.hidden) * shape.norm_count), layout)


def _adapted(tensors: tuple[ParameterTensor, ...], layout: Layout) -> tuple[ParameterTensor, ...]:
    """Return frozen tensors with the two of each adapter behind them; the tensors themselves without adapters."""
    adapters = layout.adapters
    if adapters is None:
        return tensors
    frozen = tuple(replace(tensor, is_trained=False) for tensor in tensors)
    widths = [
        (f"{tensor.name}.adapter", width)
        for tensor in tensors
        if tensor.name in adapters.targets
        for width in (tensor.elements // tensor.rows, tensor.rows)
    ]
    return (*frozen, *(ParameterTensor(name=name, elements=adapters.rank * width) for name, width in widths))


def embedding_tensors(shape: TransformerShape, layout: Layout) -> tuple[ParameterTensor, ...]:
    """Return the parameter tensors of the embedding."""
    rows = padded_vocabulary(shape, layout) // layout.vocabulary_ranks
    tensors = [ParameterTensor(name="embedding", elements=rows * shape.hidden, rows=rows)]
    if shape.positions == "learned":
        count = shape.position_count * shape.hidden
        tensors.append(
            ParameterTensor(name="embedding.positions", elements=count, rows=shape.position_count, is_replicated=True)
        )
    return _adapted(tuple(tensors), layout)


def head_tensors(shape: TransformerShape, layout: Layout, *, holds_embedding: bool) -> tuple[ParameterTensor, ...]:
    """Return the parameter tensors of the last norm and the output head.

    Args:
        holds_embedding: whether the rank holds the embedding too; a tied head elsewhere keeps a copy of it.
    """
    norm = _norm("head.norm", shape, shape.hidden)
    if shape.is_tied and holds_embedding:
        return _adapted(norm, layout)
    rows = padded_vocabulary(shape, layout) // layout.vocabulary_ranks
    head = ParameterTensor(name="head", elements=rows * shape.hidden, rows=rows)
    return _adapted((*norm, head), layout)


def _norm(name: str, shape: TransformerShape, width: int) -> tuple[ParameterTensor, ...]:
    count = 2 if shape.norm == "layer_norm" and shape.has_norm_bias else 1
    return (ParameterTensor(name=name, elements=width, rows=width, is_replicated=True),) * count


def _weight(name: str, inputs: int, outputs: int, *, bias: int = 0, is_bias_replicated: bool = False,
            is_replicated: bool = False) -> tuple[ParameterTensor, ...]:  # fmt: skip
    weight = ParameterTensor(name=name, elements=inputs * outputs, rows=outputs, is_replicated=is_replicated)
    if not bias:
        return (weight,)
    return weight, ParameterTensor(
        name=f"{name}.bias", elements=bias, rows=bias, is_replicated=is_bias_replicated or is_replicated
    )


def _attention_tensors(shape: TransformerShape, layout: Layout) -> tuple[ParameterTensor, ...]:
    query = shape.head_count // layout.tp * shape.head_width
    key = max(shape.kv_head_count // layout.tp, 1) * shape.head_width
    is_biased = shape.has_bias or shape.has_qkv_bias
    widths = {"qkv": query + 2 * key} if layout.fused("qkv") else {"queries": query, "keys": key, "values": key}
    tensors = [
        tensor for name, width in widths.items()
        for tensor in _weight(f"attention.{name}", shape.hidden, width, bias=is_biased * width)
    ]  # fmt: skip
    tensors += _weight("attention.output", query, shape.hidden, bias=shape.has_bias * shape.hidden,
                       is_bias_replicated=True)  # fmt: skip
    if shape.has_qk_norm:
        tensors += _norm("attention.query_norm", shape, shape.head_width) * 2
    if shape.has_sinks:
        tensors.append(ParameterTensor(name="attention.sinks", elements=shape.head_count // layout.tp))
    return tuple(tensors)


def _latent_tensors(shape: TransformerShape, layout: Layout) -> tuple[ParameterTensor, ...]:
    latent, hidden, heads = shape.latent, shape.hidden, shape.head_count // layout.tp
    assert latent is not None
    query = heads * (latent.key_width + latent.rotary_width)
    tensors: list[ParameterTensor] = []
    if latent.query_rank:
        tensors += _weight("attention.queries_down", hidden, latent.query_rank, is_replicated=True)
        tensors += _norm("attention.query_norm", shape, latent.query_rank)
    tensors += _weight("attention.queries_up", latent.query_rank or hidden, query)
    tensors += _weight("attention.keys_down", hidden, latent.cache_rank + latent.rotary_width, is_replicated=True)
    tensors += _norm("attention.key_norm", shape, latent.cache_rank)
    tensors += _weight("attention.keys_up", latent.cache_rank, heads * (latent.key_width + latent.value_width))
    tensors += _weight("attention.output", heads * latent.value_width, hidden)
    return tuple(tensors)


def _ffn_tensors(shape: TransformerShape, width: int, name: str, layout: Layout) -> tuple[ParameterTensor, ...]:
    inner, hidden = width // layout.tp, shape.hidden
    is_biased = shape.has_bias or shape.has_ffn_bias
    if not shape.is_gated:
        firsts = {"up": inner}
    else:
        firsts = {"gate_up": 2 * inner} if layout.fused("gate_up") else {"gate": inner, "up": inner}
    tensors = [
        tensor for part, size in firsts.items()
        for tensor in _weight(f"{name}.{part}", hidden, size, bias=is_biased * size)
    ]  # fmt: skip
    return (*tensors, *_weight(f"{name}.down", inner, hidden, bias=is_biased * hidden, is_bias_replicated=True))


def _expert_tensors(shape: TransformerShape, layout: Layout) -> tuple[ParameterTensor, ...]:
    experts, hidden = shape.experts, shape.hidden
    assert experts is not None
    local, width = experts.count // layout.ep, experts.width // layout.etp
    first = (2 if shape.is_gated else 1) * width
    tensors = [
        *_weight("experts.router", hidden, experts.count, bias=shape.has_bias * experts.count, is_replicated=True),
        ParameterTensor(name="experts.up", elements=local * first * (hidden + shape.has_bias), is_expert=True),
        ParameterTensor(name="experts.down", elements=local * hidden * (width + shape.has_bias), is_expert=True),
    ]
    if experts.shared_width:
        tensors += _ffn_tensors(shape, experts.shared_width, "experts.shared", layout)
    return tuple(tensors)
