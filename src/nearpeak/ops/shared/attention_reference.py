"""Reference attention in float64 NumPy and in plain PyTorch, one batch of heads at a time."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

SOFT_CAP = 50.0
"""Limit of capped scores; the value of Gemma 2."""


class Weights(NamedTuple):
    """Results of the forward pass that the backward pass needs."""

    key: Any
    """Keys, one for each query head."""
    value: Any
    """Values, one for each query head."""
    weights: Any
    """Share of each key in the output of each query."""
    slope: Any
    """Derivative of the capped score by the score; 1 where nothing is capped."""
    sunk: Any
    """Share of each query that goes to its head's sink; none without sinks."""


def weights_of(arrays: Mapping[str, Any], live: Any, *, softcap: bool = False, bias: Any = 0.0) -> Weights:
    """Return the attention weights of query [batch, heads, q, dim] over key and value [batch, groups, kv, ...].

    A query without any live key gives zeros, as PyTorch defines it.
    """
    query, share = arrays["query"], arrays["query"].shape[1] // arrays["key"].shape[1]
    key, value = (np.repeat(arrays[name].astype(np.float64), share, axis=1) for name in ("key", "value"))
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    slope: Any = 1.0
    if softcap:
        bent = np.tanh(scores / SOFT_CAP)
        scores, slope = SOFT_CAP * bent, 1 - bent**2
    scores = np.where(live, scores + bias, -np.inf)
    sink = arrays["sink"][:, None, None] if "sink" in arrays else None
    peak = scores.max(axis=-1, keepdims=True, initial=-np.inf if sink is None else sink.min())
    peak = np.where(np.isfinite(peak), peak, 0.0)
    raised = np.exp(scores - peak)
    sunk = None if sink is None else np.exp(sink - peak) * np.isfinite(scores).any(axis=-1, keepdims=True)
    total = raised.sum(axis=-1, keepdims=True) + (0.0 if sunk is None else sunk)
    shares = [
        None if part is None else np.divide(part, total, out=np.zeros_like(part), where=total > 0)
        for part in (raised, sunk)
    ]
    return Weights(key, value, shares[0], slope, shares[1])


def gradients_of(arrays: Mapping[str, Any], forward: Weights) -> dict[str, Any]:
    """Return the gradients of query, key, value, scores (`grad_bias`) and sinks, from `grad_output`."""
    query, upstream, weights = arrays["query"], arrays["grad_output"], forward.weights
    groups = arrays["key"].shape[1]
    products = upstream @ forward.value.swapaxes(-1, -2)
    row = (weights * products).sum(axis=-1, keepdims=True)
    scores = weights * (products - row)
    inner = scores * forward.slope / np.sqrt(query.shape[-1])
    gradients = {
        "grad_query": inner @ forward.key,
        "grad_key": _summed(inner.swapaxes(-1, -2) @ query, groups),
        "grad_value": _summed(weights.swapaxes(-1, -2) @ upstream, groups),
        "grad_bias": scores,
    }
    if forward.sunk is not None:
        gradients["grad_sink"] = -(forward.sunk * row).sum(axis=(0, 2, 3))
    return gradients


def _summed(array: Any, groups: int) -> Any:
    """Add up the gradients of the query heads that share a key head."""
    batch, heads, *rest = array.shape
    return array.reshape(batch, groups, heads // max(groups, 1), *rest).sum(axis=2)


def torch_attention(tensors: Mapping[str, Any], live: Any, *, softcap: bool = False, bias: Any = None) -> Any:
    """Return attention as PyTorch's own operators compute it, with capped scores and sinks, which SDPA lacks."""
    import torch

    query, share = tensors["query"], tensors["query"].shape[1] // tensors["key"].shape[1]
    key, value = (tensors[name].to(query.dtype).repeat_interleave(share, 1) for name in ("key", "value"))
    # Scaled first: a product of large fp16 numbers is beyond the format, the score that it becomes is not.
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
    if softcap:
        scores = SOFT_CAP * torch.tanh(scores / SOFT_CAP)
    if bias is not None:
        scores = scores + bias
    scores = scores.masked_fill(~live, float("-inf"))
    if "sink" in tensors:
        sink = tensors["sink"][None, :, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, sink], dim=-1)
    weights = scores.softmax(dim=-1)
    return weights[..., : key.shape[-2]] @ value
