"""Scaled dot-product attention: prefill, decode, grouped and latent keys, windows, chunks, masks, biases, sinks."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.errors import SpecError
from nearpeak.ops.shared.attention_calls import FUSED, attention_call
from nearpeak.ops.shared.attention_nodes import NODES
from nearpeak.ops.shared.attention_reference import Weights, gradients_of, torch_attention, weights_of
from nearpeak.ops.shared.attention_work import Heads, backward_work, forward_work
from nearpeak.ops.shared.definition.argument_cache import tensor_of, value_of
from nearpeak.ops.shared.definition.array_arithmetic import maximum, minimum, unless_empty, where
from nearpeak.ops.shared.definition.axis_checks import required_at_most, required_multiple
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import Explicit, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.live_pairs import Band, Live, band_live, band_mask, mask_of

MASKS = ("none", "bool", "float", "alibi", "known")


@free_when_empty
def attention(
    batch: int, heads: int, q: int, kv: int, dim: int, dtype: DType, kv_dtype: DType | None = None,
    kv_heads: int | None = None, v_dim: int | None = None, left: int = 0, right: int = 0, chunk: int = 0,
    mask_elements: int = 0, live_pairs: int = 0, live_keys: int = 0, live_queries: int = 0, causal: bool = False,
    align: str = "upper_left", mask: str = "none", latent: bool = False, softcap: bool = False, sinks: bool = False,
    dropout: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of O = softmax(Q K^T / sqrt(dim)) V.

    Shapes: Q [batch, heads, q, dim]; K [batch, kv_heads, kv, dim]; V [batch, kv_heads, kv, v_dim].
    Counts: 2 * (dim + v_dim) FLOP per live pair of query and key; one exponential per live pair and one division per
    live row. Scaling, masking, biases, the row's maximum and sum are not counted. Keys that no query sees and queries
    that see no key are not read. Random bits of dropout are made on chip.

    Args:
        q: queries; 1 is decode.
        kv: keys, cached ones included.
        kv_dtype: format of keys and values as stored, e.g. fp8; products are formed in `dtype`.
        left: keys up to its own position that a query sees, its own included (a sliding window); 0 stands for all.
        right: keys from its own position on that a query sees, its own included; 0 stands for all.
        chunk: positions of one chunk, beyond which no query sees; 0 stands for one chunk of all.
        mask_elements: elements of the mask as stored; 0 stands for q * kv.
        live_pairs: with mask=known, live pairs of all heads of the batch together.
        live_keys: with mask=known, keys that a query sees, of all key heads of the batch together.
        live_queries: with mask=known, queries that see a key, of all heads of the batch together.
        causal: a query sees no key after its own position.
        align: `upper_left`, query i is aligned with key i, as in PyTorch's is_causal; `lower_right`, the last
            query with the last key, as in decode and FlashAttention.
        mask: `none`; `bool` (one byte per element) or `float` (added to the scores, in `dtype`), whose values are
            unknown, so that they hide no pair; `alibi`, a slope in fp32 for each head; `known`, computed by the
            program itself, not read, and counted pair by pair.
        latent: the values are the first v_dim features of the keys and stored once (MLA in its absorbed form).
        softcap: scores are capped by a tanh, as in Gemma 2: one special function more per live pair.
        sinks: a logit for each head joins the softmax without a value, as in gpt-oss.

    Raises:
        SpecError: axes contradict each other.

    Source: Vaswani et al. 2017, arXiv:1706.03762, eq. 1; Dao 2023, arXiv:2307.08691, section 3, and algorithm 2 for the
    gradients; windows: Beltagy et al. 2020, arXiv:2004.05150, section 3.1; ALiBi: Press et al. 2022, arXiv:2108.12409;
    sinks: Xiao et al. 2024, arXiv:2309.17453, eq. 2; soft cap: Gemma Team 2024, arXiv:2408.00118, section 2; MLA:
    DeepSeek-AI 2024, arXiv:2405.04434, section 2.1.

    >>> attention(1, 1, 2, 2, 4, DType(name="bf16", bits_count=16)).read_bytes
    48
    """
    widths = _heads(heads, kv_heads, dim, v_dim, dtype, kv_dtype, latent)
    groups = heads if kv_heads is None else kv_heads
    plane = band_live(q, kv, Band(left, right, chunk, causal, align))
    live = _live(batch, heads, groups, q, kv, plane, mask, Live(live_pairs, live_keys, live_queries))
    read = _mask_bytes(mask, _read(batch * heads, q, kv, mask_elements, plane), heads, dtype)
    return forward_work(
        widths, live, batch * heads * q, softcap=softcap, sinks=sinks * heads, more_bytes=unless_empty(live.pairs, read)
    )


@free_when_empty
def _backward(
    batch: int, heads: int, q: int, kv: int, dim: int, dtype: DType, kv_heads: int | None = None,
    v_dim: int | None = None, left: int = 0, right: int = 0, chunk: int = 0, mask_elements: int = 0,
    live_pairs: int = 0, live_keys: int = 0, live_queries: int = 0, causal: bool = False, align: str = "upper_left",
    mask: str = "none", latent: bool = False, softcap: bool = False, sinks: bool = False, dropout: bool = False,
    grad_mask: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of the gradients of Q, K and V, of sinks, and of a mask of floats that asks for one.

    Counts: five products per live pair, of which Q K^T only repeats the forward pass; one exponential per live pair.
    Reads Q, K, V and the output's gradient dO: the row sums of O * dO equal those of P * dP. The row statistics that
    implementations keep are not counted, nor is what forming them again would cost.

    Source: Dao 2023, arXiv:2307.08691, algorithm 2.
    """
    widths = _heads(heads, kv_heads, dim, v_dim, dtype, None, latent)
    groups = heads if kv_heads is None else kv_heads
    plane = band_live(q, kv, Band(left, right, chunk, causal, align))
    live = _live(batch, heads, groups, q, kv, plane, mask, Live(live_pairs, live_keys, live_queries))
    if grad_mask and mask != "float":
        raise SpecError(f"attention: grad_mask=True contradicts mask={mask!r}; only a mask of floats has a gradient")
    read = _mask_bytes(mask, _read(batch * heads, q, kv, mask_elements, plane), heads, dtype)
    return backward_work(
        widths, live._replace(pairs=unless_empty(dim + widths.v_dim, live.pairs)),
        batch * heads * q, batch * groups * kv, softcap=softcap, sinks=sinks * heads,
        more_bytes=unless_empty(live.pairs, read),
        bias_bytes=grad_mask * dtype.bytes(where(mask_elements == 0, q * kv, mask_elements)),
    )  # fmt: skip


def _heads(
    heads: int, kv_heads: int | None, dim: int, v_dim: int | None, dtype: DType, kv_dtype: DType | None, latent: bool
) -> Heads:
    """Return the widths, refused where they contradict each other."""
    groups, width = heads if kv_heads is None else kv_heads, dim if v_dim is None else v_dim
    required_at_most("attention", {"heads": heads}, kv_heads=groups)
    required_multiple("attention", {"kv_heads": groups}, heads=heads)
    if latent:
        required_at_most("attention", {"dim": dim}, v_dim=width)
    return Heads(dim, width, dtype, kv_dtype or dtype, latent)


def _live(batch: int, heads: int, groups: int, q: int, kv: int, plane: Live, mask: str, known: Live) -> Live:
    """Return what is alive in all heads of the batch together."""
    if mask not in MASKS:
        raise SpecError(f"attention: mask={mask!r} is not one of {', '.join(MASKS)}")
    every = Live(batch * heads * q * kv, batch * groups * kv, batch * heads * q)
    names = ("live_pairs", "live_keys", "live_queries")
    if mask == "known":
        for name, count, most in zip(names, known, every, strict=True):
            required_at_most("attention", {f"the {name[5:]} there are": most}, **{name: count})
        required_at_most("attention", {"live_pairs": known.pairs}, live_keys=known.keys, live_queries=known.queries)
        return known
    if any(np.any(count != 0) for count in known):
        raise SpecError(f"attention: live_pairs, live_keys and live_queries belong to mask=known, not to mask={mask}")
    return Live(batch * heads * plane.pairs, batch * groups * plane.keys, batch * heads * plane.queries)


def _read(planes: int, q: int, kv: int, mask_elements: int, plane: Live) -> int:
    """Return the elements of a stored mask that are read: those of live pairs of each plane."""
    required_at_most("attention", {"batch*heads*q*kv": planes * q * kv}, mask_elements=mask_elements)
    stored = where(mask_elements == 0, q * kv, mask_elements)
    inside = maximum(stored // maximum(q * kv, 1) * plane.pairs, minimum(stored, plane.keys))
    return unless_empty(plane.pairs, where(plane.pairs == q * kv, stored, inside))


def _mask_bytes(mask: str, elements: int, heads: int, dtype: DType) -> int:
    sizes = {"bool": elements, "float": dtype.bytes(elements), "alibi": 4 * heads}
    return sizes.get(mask, 0)


def _inputs(**arguments: Any) -> dict[str, Tensor]:
    b, heads, q, kv, dim = (arguments[name] for name in ("batch", "heads", "q", "kv", "dim"))
    groups, width, dtype = arguments["kv_heads"], arguments["v_dim"], arguments["dtype"]
    stored = arguments.get("kv_dtype", dtype)
    tensors = {
        "query": Tensor(shape=(b, heads, q, dim), dtype=dtype),
        "key": Tensor(shape=(b, groups, kv, dim), dtype=stored),
    }
    if not arguments["latent"]:
        tensors["value"] = Tensor(shape=(b, groups, kv, width), dtype=stored)
    if arguments["mask"] in ("bool", "float"):
        kind = "bool" if arguments["mask"] == "bool" else dtype
        tensors["mask"] = Tensor(shape=_mask_shape(**arguments), dtype=kind)
    if arguments["mask"] == "alibi":
        tensors["slope"] = Tensor(shape=(heads,), dtype="fp32")
    if arguments["sinks"]:
        tensors["sink"] = Tensor(shape=(heads,), dtype=dtype)
    return tensors


def _mask_shape(batch: int, heads: int, q: int, kv: int, mask_elements: int, **_: Any) -> tuple[int, ...]:
    """Return the shape of a mask with that many elements that broadcasts over the scores."""
    wanted = mask_elements or q * kv
    for shape in ((1, 1, q, kv), (batch, 1, q, kv), (batch, 1, 1, kv), (1, heads, q, kv), (batch, heads, q, kv)):
        if np.prod(shape) == wanted:
            return shape
    raise SpecError(f"attention: no mask over [{batch}, {heads}, {q}, {kv}] has {wanted} elements")


def _by_position(queries: Any = None, **arguments: Any) -> Any:
    """Return the mask of live pairs that the arguments alone decide, of all queries or of some."""
    if arguments["mask"] == "known":
        counts = Live(*(arguments[f"live_{name}"] for name in Live._fields))
        return mask_of(counts, *(arguments[name] for name in ("batch", "heads", "kv_heads", "q", "kv")))
    names = ("left", "right", "chunk", "causal", "align")
    return band_mask(arguments["q"], arguments["kv"], Band(*(arguments[name] for name in names)), queries)


def _explicit(**arguments: Any) -> Explicit | None:
    """Return the arguments under which the live pairs are an input, and its rows: each query is by itself then."""
    if arguments["mask"] != "none" or not any(arguments[name] for name in ("left", "right", "chunk", "causal")):
        return None
    open_ = {"left": 0, "right": 0, "chunk": 0, "causal": False, "align": "upper_left", "mask": "bool"}
    return {**arguments, **open_}, {"mask": ("q", lambda at: _by_position(at, **arguments)[None, None])}


def _distances(q: int, kv: int, align: str, **_: Any) -> Any:
    """Return how far each key lies from each query's own position."""
    return np.abs(np.arange(q)[:, None] + (kv - q if align == "lower_right" else 0) - np.arange(kv))


def _with_values(tensors: dict[str, Any], latent: bool, v_dim: int, **_: Any) -> dict[str, Any]:
    return {**tensors, "value": tensors["key"][..., :v_dim]} if latent else tensors


def _weights(arrays: dict[str, Any], **arguments: Any) -> tuple[dict[str, Any], Weights]:
    full, live, bias = _with_values(arrays, **arguments), _by_position(**arguments), 0.0
    if arguments["mask"] == "bool":
        live = live & arrays["mask"]
    if arguments["mask"] == "float":
        bias = arrays["mask"]
    if arguments["mask"] == "alibi":
        bias = -arrays["slope"][:, None, None] * _distances(**arguments)
    return full, weights_of(full, live, softcap=arguments["softcap"], bias=bias)


def _reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    _, weights = _weights(arrays, **arguments)
    return {"output": weights.weights @ weights.value}


def _backward_reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    gradients = gradients_of(*_weights(arrays, **arguments))
    scores = gradients.pop("grad_bias")
    if arguments["latent"]:
        gradients["grad_key"][..., : arguments["v_dim"]] += gradients.pop("grad_value")
    if arguments["grad_mask"]:
        summed = tuple(axis for axis, extent in enumerate(arrays["mask"].shape) if extent == 1)
        gradients["grad_mask"] = scores.sum(axis=summed, keepdims=True)
    return gradients


def _all_live(**arguments: Any) -> bool:
    return bool(_by_position(**arguments).all())


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch.nn.functional as F  # noqa: N812

    full, query = _with_values(tensors, **arguments), tensors["query"]
    if arguments["softcap"] or arguments["sinks"]:
        live, bias = _torch_masks(tensors, **arguments)
        return {"output": torch_attention(full, live, softcap=arguments["softcap"], bias=bias)}
    band = arguments["left"] or arguments["right"] or arguments["chunk"]
    unmasked = arguments["mask"] == "none" and not band
    first = unmasked and arguments["causal"] and arguments["align"] == "upper_left"
    whole = unmasked and not arguments["causal"]
    key, value = (full[name].to(query.dtype) for name in ("key", "value"))
    mask = None
    if not (first or whole):
        live, mask = _torch_masks(tensors, **arguments)
        if arguments["mask"] == "bool" or not value_of(_all_live, **arguments):
            mask = live if mask is None else mask.masked_fill(~live, float("-inf"))
    return {
        "output": F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=first, dropout_p=0.1 if arguments["dropout"] else 0.0,
            enable_gqa=arguments["heads"] != arguments["kv_heads"],
        )
    }  # fmt: skip


def _torch_masks(tensors: dict[str, Any], **arguments: Any) -> tuple[Any, Any]:
    """Return the live pairs, and what is added to the scores (none for nothing)."""
    import torch

    query = tensors["query"]
    live = tensor_of(query.device, _by_position, **arguments)
    if arguments["mask"] == "bool":
        return live & tensors["mask"], None
    if arguments["mask"] == "alibi":
        distance = tensor_of(query.device, _distances, **arguments)
        slope = tensors["slope"].to(torch.promote_types(tensors["slope"].dtype, query.dtype))
        return live, (-slope[:, None, None] * distance).to(query.dtype)
    return live, tensors["mask"] if arguments["mask"] == "float" else None


OPERATOR = Operator(
    forward=attention,
    family="attention",
    backward=_backward,
    tolerance=Tolerance(
        kind="normalisation",
        reduction="kv dim",
        special="unspecified",
        positive=("slope",),  # Press et al. 2022, arXiv:2108.12409: what is far away counts less
        steps_count=2,
        gates="always",
        rounds=("large", "deep"),
    ),
    inputs=_inputs,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    explicit=_explicit,
    same={"kv_heads": "heads", "v_dim": "dim"},
    aten=dict.fromkeys(FUSED, attention_call),
    onnx=NODES,
)
