"""Memory of a serving engine: bytes of the KV cache per token, weights as stored, and the blocks that are left."""

from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.core.work.dtype import DTYPES
from nearpeak.core.work.scheme import SCHEMES
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.systems.training.memory.layer_parameters import (
    embedding_parameters,
    final_norm_parameters,
    layer_parameters,
    position_parameters,
)

_TENSOR_SCALED = {"fp8": "fp8_e4m3", "fp4": "fp4_e2m1"}
"""Formats of a cache whose one scale per tensor is a negligible 4 bytes per layer."""


def bytes_per_element(number_format: str) -> float:
    """Return the stored bytes of one element, its share of the block's scale (and zero point) included.

    Args:
        number_format: a number format (`bf16`, `fp8`) or a quantisation scheme (`fp8_block`, `nvfp4`).

    Raises:
        NotModelledError: neither.

    >>> bytes_per_element("bf16"), bytes_per_element("fp8"), bytes_per_element("nvfp4"), bytes_per_element("mxfp4")
    (2.0, 1.0, 0.5625, 0.53125)
    >>> bytes_per_element("int4_weight_only")
    0.53125
    """
    name = _TENSOR_SCALED.get(number_format, number_format)
    scheme = SCHEMES.get(name)
    if scheme is None:
        if name not in DTYPES:
            raise NotModelledError(
                f"no rule for the stored size of {number_format!r}; number formats: bf16, fp16, fp8, int8, int4; "
                f"schemes: {', '.join(sorted(SCHEMES))}"
            )
        return DTYPES[name].bits_count / 8
    operand, scale_bits = scheme.b, DTYPES[scheme.scale].bits_count * (2 if scheme.zeros else 1)
    block = operand.row_count * operand.column_count
    return (DTYPES[operand.dtype].bits_count + (scale_bits / block if block else 0)) / 8


def cache_token_bytes(
    shape: TransformerShape, *, number_format: str = "bf16", tp: int = 1, layer_count: int | None = None
) -> int:
    """Return the bytes of KV cache that one token takes on one rank.

    Heads are split over `tp` down to one; the compressed cache of latent attention is the same on every rank.

    Args:
        layer_count: layers on the rank; all of the model where none.

    Source: Kwon et al. 2023, arXiv:2309.06180, section 3; DeepSeek-V2, arXiv:2405.04434, section 2.1.

    >>> from nearpeak.core.systems.transformer import TransformerShape
    >>> cache_token_bytes(TransformerShape(name="llama-3-8b", layer_count=32, hidden=4096, head_count=32,
    ...     kv_head_count=8, head_width=128, ffn=14336, is_gated=True, vocabulary=128256))
    131072
    """
    layers = shape.layer_count if layer_count is None else layer_count
    if shape.latent:
        elements = shape.latent.cache_rank + shape.latent.rotary_width
    else:
        elements = 2 * max(shape.kv_head_count // tp, 1) * shape.head_width
    return round(layers * elements * bytes_per_element(number_format))


def weight_bytes(shape: TransformerShape, *, number_format: str = "bf16", tp: int = 1, pp: int = 1, ep: int = 1) -> int:
    """Return the bytes of weights on the fullest rank: products in `number_format`, all else in bf16.

    Embedding, output head, norms and router stay in bf16, as published checkpoints of quantised models have them.

    Args:
        ep: ranks that share the experts, inside or across tensor-parallel groups; where it is 1, experts are split
            over `tp` as dense parts are.

    >>> from nearpeak.core.systems.transformer import TransformerShape
    >>> weight_bytes(TransformerShape(name="llama-3-8b", layer_count=32, hidden=4096, head_count=32,
    ...     kv_head_count=8, head_width=128, ffn=14336, is_gated=True, vocabulary=128256))
    16060522496
    """
    if pp > shape.layer_count:
        raise SpecError(f"pp={pp}: {shape.name} has {shape.layer_count} layers; at most as many stages")
    product_bytes = bytes_per_element(number_format)
    total = 0.0
    for has_experts, layers in ((False, shape.dense_layer_count), (True, shape.expert_layer_count)):
        if not layers:
            continue
        part = layer_parameters(shape, has_experts=has_experts, tp=tp, ep=ep, etp=tp if ep == 1 else 1)
        products = part.attention + part.feed_forward + part.experts
        total += layers * (products * product_bytes + part.replicated * 2)
    ends = embedding_parameters(shape, tp=tp) + position_parameters(shape)
    head = 0 if shape.is_tied and pp == 1 else embedding_parameters(shape, tp=tp)
    final_norm = final_norm_parameters(shape)
    if pp == 1:
        return round(total + 2 * (ends + head + final_norm))
    share = -(-shape.layer_count // pp) / shape.layer_count
    return round(total * share + 2 * max(ends, head + final_norm))


def profile_bytes(shape: TransformerShape, *, token_budget: int, sequence_count: int, tp: int = 1) -> int:
    """Return the peak of the engine's profile run: activations of one layer at the token budget, then the sampler.

    One layer at a time is alive: residual and normed input, then the widest part (feed-forward or attention). The
    sampler holds the logits of all sequences in fp32, a sorted copy, its int64 order, and the probabilities.

    Source: vLLM V1, GPUModelRunner.profile_run: a forward pass at max_num_batched_tokens, then the sampler at
    max_num_seqs with top-k and top-p on.
    """
    hidden = shape.hidden
    gates = 3 if shape.is_gated else 2
    heads = shape.head_count // tp
    attention = heads * shape.head_width * 2 + 2 * max(shape.kv_head_count // tp, 1) * shape.head_width
    feed_forward = gates * shape.ffn // tp
    if shape.experts:
        experts = shape.experts
        feed_forward = max(feed_forward, experts.per_token * (3 * experts.width // tp + hidden))
    layer = token_budget * 2 * (2 * hidden + max(attention, feed_forward))
    sampler = sequence_count * shape.vocabulary * (4 + 4 + 8 + 4) + token_budget * hidden * 2
    return int(max(layer, sampler))


def cache_blocks(
    *,
    device_bytes: int,
    utilisation: float,
    weights_bytes: int,
    profile_peak_bytes: int,
    token_bytes: int,
    graph_bytes: int = 0,
    context_bytes: int = 0,
    block_tokens: int = 16,
) -> int:
    """Return the blocks of KV cache that an engine allocates on one rank.

    Args:
        utilisation: share of the device that the engine may fill, `gpu_memory_utilization`.
        graph_bytes: what captured graphs hold, where the engine counts it before the cache.
        context_bytes: driver context and communication buffers, outside the framework's allocator.

    Raises:
        SpecError: nothing is left.

    Source: vLLM V1, Worker.determine_available_memory.

    >>> cache_blocks(device_bytes=25_250_627_584, utilisation=0.9, weights_bytes=16_060_522_496,
    ...              profile_peak_bytes=1_237_000_000, token_bytes=131_072)
    2588
    """
    if not 0 < utilisation <= 1:
        raise SpecError(f"utilisation {utilisation:g}: a share of the device's memory, above 0 and at most 1")
    used = weights_bytes + profile_peak_bytes + graph_bytes + context_bytes
    blocks = int((utilisation * device_bytes - used) // (block_tokens * token_bytes))
    if blocks < 1:
        short = used + block_tokens * token_bytes - utilisation * device_bytes
        peak_bytes, room_bytes = used - weights_bytes, utilisation * device_bytes
        raise SpecError(
            f"no room for a KV cache: weights {weights_bytes / 1e9:.2f} GB and peak {peak_bytes / 1e9:.2f} GB of "
            f"{room_bytes / 1e9:.2f} GB; {short / 1e9:.2f} GB short of one block"
        )
    return blocks
