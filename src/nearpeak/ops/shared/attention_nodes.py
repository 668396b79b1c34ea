"""Matching of attention nodes of ONNX and onnxruntime to cases."""

from collections.abc import Mapping
from typing import Any

from nearpeak.core.work.tensor import Tensor
from nearpeak.errors import NotModelledError
from nearpeak.ops.shared.definition.operator import Match, Matcher, OnnxSite


def standard_attention(site: OnnxSite) -> Match:
    """Match Attention of operator set 23: heads apart, or side by side in the last dimension; keys may have a past."""
    attributes = site.attributes
    query, key, value = (site.tensor(position) for position in range(3))
    q_heads, kv_heads = (int(attributes.get(name) or 0) for name in ("q_num_heads", "kv_num_heads"))
    (batch, heads, q, dim), (_, groups, kv, _) = _four(site, query, q_heads), _four(site, key, kv_heads)
    past = site.optional(4)
    return Match(
        arguments={
            "batch": batch, "heads": heads, "kv_heads": groups, "q": q, "kv": kv + (past.shape[-2] if past else 0),
            "dim": dim, "v_dim": _four(site, value, kv_heads)[3], "dtype": query.dtype,
            "causal": bool(attributes.get("is_causal")), "softcap": bool(attributes.get("softcap")),
            **_mask(site.optional(3)),
        }
    )  # fmt: skip


def multi_head_attention(site: OnnxSite) -> Match:
    """Match onnxruntime's MultiHeadAttention, with queries, keys and values apart."""
    query, key, value = (site.tensor(position) for position in range(3))
    heads = int(site.attributes.get("num_heads") or 0)
    batch, _, q, dim = _four(site, query, heads)
    (_, _, kv, _), width = _four(site, key, heads), _four(site, value, heads)[3]
    past = site.optional(6)
    return Match(
        arguments={
            "batch": batch, "heads": heads, "q": q, "kv": kv + (past.shape[-2] if past else 0), "dim": dim,
            "v_dim": width, "dtype": query.dtype, "causal": bool(site.attributes.get("unidirectional")),
            "align": "lower_right", **_mask(site.optional(5)),
        }
    )  # fmt: skip


def group_query_attention(site: OnnxSite) -> Match:
    """Match onnxruntime's GroupQueryAttention; without a stated length, what a shared cache holds is data."""
    heads, groups = (int(site.attributes.get(name) or 0) for name in ("num_heads", "kv_num_heads"))
    query, key = site.tensor(0), site.optional(1)
    # Without keys of their own, queries, keys and values lie side by side.
    batch, _, q, dim = _four(site, query, heads + (0 if key else 2 * groups))
    window = int(site.attributes.get("local_window_size", -1))
    return Match(
        arguments={
            "batch": batch, "heads": heads, "kv_heads": groups, "q": q, "kv": _total(site, q), "dim": dim,
            "dtype": query.dtype, "causal": True, "align": "lower_right", "left": max(0, window),
            "softcap": bool(site.attributes.get("softcap")), **_mask(site.optional(10)),
        }
    )  # fmt: skip


def _total(site: OnnxSite, q: int) -> int:
    """Return the keys that a query may see, those of the cache and its own."""
    stated, past = site.constants.get(6), site.optional(3)
    if stated:
        return int(stated[0])
    present = site.outputs[1] if len(site.outputs) > 1 else None
    if past is None:
        return q
    if present is None or present.shape[2] != past.shape[2] + q:
        raise NotModelledError(f"{site.name}: how full the cache is, is data")
    return present.shape[2]


def fused_attention(site: OnnxSite) -> tuple[Match, ...]:
    """Match onnxruntime's Attention: the projection to queries, keys and values, then attention itself."""
    x, weight = site.tensor(0), site.tensor(1)
    heads = int(site.attributes.get("num_heads") or 0)
    sizes = site.attributes.get("qkv_hidden_sizes") or (weight.shape[1] // 3,) * 3
    if len(x.shape) != 3 or not heads:
        raise NotModelledError(f"{site.name}: shapes are not known")
    batch, q, hidden = x.shape
    past, bias = site.optional(4), site.optional(2)
    project = Match(
        op="gemm",
        arguments={
            "m": batch * q, "n": weight.shape[1], "k": hidden, "dtype": x.dtype,
            "bias_elements": bias.elements if bias else 0,
        },
    )  # fmt: skip
    attend = Match(
        arguments={
            "batch": batch, "heads": heads, "q": q, "kv": q + (past.shape[-2] if past else 0),
            "dim": sizes[0] // heads, "v_dim": sizes[2] // heads, "dtype": x.dtype,
            "causal": bool(site.attributes.get("unidirectional")), "align": "lower_right", **_mask(site.optional(5)),
        }
    )  # fmt: skip
    return project, attend


def _four(site: OnnxSite, tensor: Tensor, stated_heads: int) -> tuple[int, int, int, int]:
    """Return batch, heads, positions and features of a head."""
    if len(tensor.shape) == 4:
        batch, heads, positions, dim = tensor.shape
        return batch, heads, positions, dim
    if len(tensor.shape) != 3 or not stated_heads:
        raise NotModelledError(f"{site.name}: the layout of its inputs is not modelled")
    batch, positions, hidden = tensor.shape
    return batch, stated_heads, positions, hidden // stated_heads


def _mask(mask: Tensor | None) -> dict[str, Any]:
    if mask is None:
        return {}
    return {"mask": "bool" if mask.dtype == "bool" else "float", "mask_elements": mask.distinct}


NODES: Mapping[str, Matcher] = {
    "Attention": standard_attention,
    "com.microsoft.MultiHeadAttention": multi_head_attention,
    "com.microsoft.GroupQueryAttention": group_query_attention,
    "com.microsoft.Attention": fused_attention,
}
"""Attention nodes and how they are matched."""
