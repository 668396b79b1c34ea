"""Scaled dot-product attention: prefill, decode against a cache, grouped queries, causal or masked."""

from math import prod
from typing import Any

import numpy as np

from nearpeak.core.dtype import DType, dtype_of
from nearpeak.core.tensor import Tensor
from nearpeak.core.work import Work
from nearpeak.errors import SpecError
from nearpeak.ops._arrays import minimum, unless_empty, where
from nearpeak.ops._checks import required_at_most, required_multiple
from nearpeak.ops._operator import AtenSite, Match, Numerics, Operator


def attention(
    batch: int,
    heads: int,
    q: int,
    kv: int,
    dim: int,
    dtype: DType,
    kv_heads: int | None = None,
    v_dim: int | None = None,
    mask_elements: int = 0,
    causal: bool = False,
    mask: str = "none",
    dropout: bool = False,
) -> Work:
    """Return the least work of O = softmax(Q K^T / sqrt(dim)) V.

    Shapes: Q [batch, heads, q, dim]; K [batch, kv_heads, kv, dim]; V [batch, kv_heads, kv, v_dim].
    Counts: 2 * (dim + v_dim) FLOP per live score; one exponential per live score and one division per row. Scaling,
    masking, the row's maximum and sum are not counted. Keys that no query may see are not read. Values of a mask are
    unknown, so every score stays live; random bits of dropout are made on chip.

    Args:
        q: queries; 1 is decode.
        kv: keys, cached ones included.
        mask_elements: elements of the mask as stored; 0 stands for q * kv.
        causal: query i sees keys 0 to i (counted from the first key, as PyTorch's is_causal does).
        mask: `none`, `bool` (one byte per element) or `float` (added to the scores, in `dtype`).

    Source: Vaswani et al. 2017, arXiv:1706.03762, eq. 1; Dao 2023, arXiv:2307.08691, section 3.

    >>> attention(1, 1, 2, 2, 4, DType(name="bf16", bits_count=16)).read_bytes
    48
    """
    groups = heads if kv_heads is None else kv_heads
    width = dim if v_dim is None else v_dim
    _check(heads, groups, batch * heads * q * kv, mask_elements)
    outputs = batch * heads * q * width
    scores = unless_empty(outputs, batch * heads * _live(q, kv, causal=causal))
    keys = unless_empty(scores, batch * groups * _seen(q, kv, causal=causal))
    stored = unless_empty(scores, where(mask_elements == 0, q * kv, mask_elements))
    return Work(
        flop={f"matrix.{dtype.name}": 2 * scores * (dim + width)},
        special_count=scores + unless_empty(outputs, batch * heads * q),
        read_bytes=dtype.bytes(unless_empty(scores, batch * heads * q * dim))
        + dtype.bytes(keys * dim)
        + dtype.bytes(keys * width)
        + _mask_bytes(mask, stored, dtype),
        write_bytes=dtype.bytes(outputs),
    )


def _backward(
    batch: int,
    heads: int,
    q: int,
    kv: int,
    dim: int,
    dtype: DType,
    kv_heads: int | None = None,
    v_dim: int | None = None,
    mask_elements: int = 0,
    causal: bool = False,
    mask: str = "none",
    dropout: bool = False,
) -> Work:
    """Return the least work of the gradients of Q, K and V.

    Counts: five products per live score, of which Q K^T only repeats the forward pass; one exponential per live score.
    Reads Q, K, V and the output's gradient dO: the row sums of O * dO equal those of P * dP. The row statistics that
    implementations keep are not counted, nor is what forming them again would cost.

    Source: Dao 2023, arXiv:2307.08691, algorithm 2.
    """
    groups = heads if kv_heads is None else kv_heads
    width = dim if v_dim is None else v_dim
    _check(heads, groups, batch * heads * q * kv, mask_elements)
    read = batch * heads * q * dim
    written = dtype.bytes(read) + dtype.bytes(batch * groups * kv * dim) + dtype.bytes(batch * groups * kv * width)
    scores = batch * heads * unless_empty(dim + width, _live(q, kv, causal=causal))
    keys = unless_empty(scores, batch * groups * _seen(q, kv, causal=causal))
    stored = unless_empty(scores, where(mask_elements == 0, q * kv, mask_elements))
    unit = f"matrix.{dtype.name}"
    return Work(
        flop={unit: 2 * scores * (3 * dim + 2 * width)},
        recompute_flop={unit: 2 * scores * dim},
        special_count=scores,
        read_bytes=dtype.bytes(unless_empty(scores, read))
        + dtype.bytes(keys * dim)
        + dtype.bytes(keys * width)
        + dtype.bytes(unless_empty(scores, batch * heads * q * width))
        + _mask_bytes(mask, stored, dtype),
        write_bytes=written,
    )


def _check(heads: int, kv_heads: int, scores: int, mask_elements: int) -> None:
    required_at_most("attention", {"heads": heads}, kv_heads=kv_heads)
    required_multiple("attention", {"kv_heads": kv_heads}, heads=heads)
    required_at_most("attention", {"batch*heads*q*kv": scores}, mask_elements=mask_elements)


def _live(q: int, kv: int, *, causal: bool) -> int:
    """Return the pairs of query and key that the mask leaves.

    >>> _live(3, 5, causal=True), _live(5, 3, causal=True)
    (6, 12)
    """
    seen = minimum(q, kv)
    return seen * (seen + 1) // 2 + (q - seen) * kv if causal else q * kv


def _seen(q: int, kv: int, *, causal: bool) -> int:
    """Return the keys that at least one query sees."""
    every = minimum(q, kv) if causal else kv
    return where(q == 0, 0, every)


def _mask_bytes(mask: str, elements: int, dtype: DType) -> int:
    sizes = {"none": 0, "bool": elements, "float": dtype.bytes(elements)}
    if mask not in sizes:
        raise SpecError(f"attention: mask={mask!r} is not one of {', '.join(sizes)}")
    return sizes[mask]


def _inputs(**arguments: Any) -> dict[str, Tensor]:
    b, heads, q, kv, dim = (arguments[name] for name in ("batch", "heads", "q", "kv", "dim"))
    groups, width, dtype = arguments["kv_heads"], arguments["v_dim"], arguments["dtype"]
    tensors = {
        "query": Tensor(shape=(b, heads, q, dim), dtype=dtype),
        "key": Tensor(shape=(b, groups, kv, dim), dtype=dtype),
        "value": Tensor(shape=(b, groups, kv, width), dtype=dtype),
    }
    if arguments["mask"] == "none":
        return tensors
    stored = Tensor(shape=_mask_shape(**arguments), dtype="bool" if arguments["mask"] == "bool" else dtype)
    return {**tensors, "mask": stored}


def _mask_shape(batch: int, heads: int, q: int, kv: int, mask_elements: int, **_: Any) -> tuple[int, ...]:
    """Return the shape of a mask with that many elements that broadcasts over the scores."""
    wanted = mask_elements or q * kv
    for shape in ((1, 1, q, kv), (batch, 1, q, kv), (batch, 1, 1, kv), (1, heads, q, kv), (batch, heads, q, kv)):
        if np.prod(shape) == wanted:
            return shape
    raise SpecError(f"attention: no mask over [{batch}, {heads}, {q}, {kv}] has {wanted} elements")


def _reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    _, weights, value = _weights(arrays, **arguments)
    return {"output": weights @ value}


def _weights(arrays: dict[str, Any], **arguments: Any) -> tuple[Any, Any, Any]:
    """Return keys per query head, attention weights and values per query head."""
    share = arguments["heads"] // arguments["kv_heads"]
    key, value = (np.repeat(arrays[name], share, axis=1) for name in ("key", "value"))
    scores = arrays["query"] @ key.swapaxes(-1, -2) / np.sqrt(arguments["dim"])
    if arguments["causal"]:
        scores = np.where(np.tri(arguments["q"], arguments["kv"], dtype=bool), scores, -np.inf)
    if arguments["mask"] == "float":
        scores = scores + arrays["mask"]
    if arguments["mask"] == "bool":
        scores = np.where(arrays["mask"], scores, -np.inf)
    peak = scores.max(axis=-1, keepdims=True)
    raised = np.exp(scores - np.where(np.isfinite(peak), peak, 0.0))
    total = raised.sum(axis=-1, keepdims=True)
    # A row without any visible key gives zeros, as PyTorch defines it.
    return key, np.divide(raised, total, out=np.zeros_like(raised), where=total > 0), value


def _backward_reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    key, weights, value = _weights(arrays, **arguments)
    upstream = arrays["grad_output"]
    products = upstream @ value.swapaxes(-1, -2)
    inner = weights * (products - (weights * products).sum(axis=-1, keepdims=True)) / np.sqrt(arguments["dim"])
    return {
        "grad_query": inner @ key,
        "grad_key": _summed(inner.swapaxes(-1, -2) @ arrays["query"], arguments["kv_heads"]),
        "grad_value": _summed(weights.swapaxes(-1, -2) @ upstream, arguments["kv_heads"]),
    }


def _summed(array: Any, groups: int) -> Any:
    """Add up the gradients of the query heads that share a key head."""
    return array.reshape(len(array), groups, -1, *array.shape[2:]).sum(axis=2)


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch.nn.functional as F  # noqa: N812

    output = F.scaled_dot_product_attention(
        tensors["query"],
        tensors["key"],
        tensors["value"],
        attn_mask=tensors.get("mask"),
        dropout_p=0.1 if arguments["dropout"] else 0.0,
        is_causal=arguments["causal"],
        enable_gqa=arguments["heads"] != arguments["kv_heads"],
    )
    return {"output": output}


def _from_aten(site: AtenSite) -> Match:
    """Match fused attention, forward or backward, with its mask as stored."""
    query, key, value = (_four(site.args[name]) for name in ("query", "key", "value"))
    mask = site.args.get("mask", site.args.get("attn_mask"))
    groups = 1 if key.strides is not None and key.strides[1] == 0 else key.shape[1]
    arguments: dict[str, Any] = {
        "batch": query.shape[0], "heads": query.shape[1], "kv_heads": groups, "q": query.shape[2], "kv": key.shape[2],
        "dim": query.shape[3], "v_dim": value.shape[3], "dtype": query.dtype, "causal": bool(site.args["is_causal"]),
        "dropout": float(site.args["dropout_p"] or 0.0) > 0, "mask": _mask_kind(mask),
        "mask_elements": 0 if mask is None else min(mask.distinct, prod(query.shape[:3]) * key.shape[2]),
    }  # fmt: skip
    seen = arguments["batch"] * groups * _seen(query.shape[2], key.shape[2], causal=arguments["causal"])
    touched = {
        name: dtype_of(tensor.dtype).bytes(seen * tensor.shape[3])
        for name, tensor in (("key", key), ("value", value))
        if seen * tensor.shape[3] < tensor.distinct
    }
    if "grad" not in site.args and "grad_out" not in site.args:
        return Match(arguments=arguments, touched_bytes=touched)
    # The row sums of O * dO can be formed from P and dP, and the row statistics from the scores.
    formed_again = {name: 0 for name in ("out", "output", "logsumexp") if name in site.args}
    return Match(arguments=arguments, phase="backward", touched_bytes=touched | formed_again)


def _four(tensor: Tensor) -> Tensor:
    """Return the tensor as [batch, heads, positions, dim]; a batch of single heads counts as heads."""
    missing = 4 - len(tensor.shape)
    strides = None if tensor.strides is None else (1,) * missing + tensor.strides
    return Tensor(shape=(1,) * missing + tensor.shape, dtype=tensor.dtype, strides=strides, buffer=tensor.buffer)


def _mask_kind(mask: Tensor | None) -> str:
    if mask is None:
        return "none"
    return "bool" if mask.dtype == "bool" else "float"


_FUSED = (
    "nearpeak.attention.default",
    "nearpeak.attention_backward.default",
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
)

OPERATOR = Operator(
    forward=attention,
    backward=_backward,
    source="Vaswani et al. 2017, arXiv:1706.03762, eq. 1; backward as Dao 2023, arXiv:2307.08691, algorithm 2",
    numerics=Numerics(kind="normalisation", reduction="kv dim"),
    inputs=_inputs,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    same={"kv_heads": "heads", "v_dim": "dim"},
    aten=dict.fromkeys(_FUSED, _from_aten),
)
