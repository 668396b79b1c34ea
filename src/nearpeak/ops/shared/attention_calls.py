"""Matching of PyTorch's fused attention calls to cases: known masks, grouped, latent and paged keys."""

from collections.abc import Sequence
from math import prod
from typing import Any

from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.ops.shared.definition.operator import AtenSite, Match
from nearpeak.ops.shared.live_pairs import Band, Live, band_live

WHOLE = ("nearpeak.attention.default", "nearpeak.attention_backward.default")
"""Attention as captures keep it."""

_KERNELS = (
    "flash_attention_for_cpu", "flash_attention", "efficient_attention", "cudnn_attention",
    "fused_attention_overrideable",
)  # fmt: skip
FUSED = (
    *WHOLE,
    *(f"aten._scaled_dot_product_{kernel}{phase}.default" for kernel in _KERNELS for phase in ("", "_backward")),
)
"""Calls of attention over whole tensors: as captures keep it, and as PyTorch's devices run it."""

KNOWN_MASK = "known_mask"
"""Argument that captures add to a call whose mask the program computes: the counts of `Live`."""

_MASKS = ("mask", "attn_mask", "attn_bias")


def attention_call(site: AtenSite) -> Match:
    """Match fused attention, forward or backward, with its mask as stored or as known."""
    query, key, value = (_four(site.args[name]) for name in ("query", "key", "value"))
    stored, counted = [site.args.get(name) for name in _MASKS], site.args.get(KNOWN_MASK)
    mask = next((tensor for tensor in stored if tensor is not None and tensor.elements), None)
    groups = 1 if key.strides is not None and key.strides[1] == 0 else key.shape[1]
    same = value.buffer == key.buffer >= 0 and (value.offset, value.strides) == (key.offset, key.strides)
    latent = same and value.shape[:3] == key.shape[:3] and value.shape[3] <= key.shape[3]
    arguments: dict[str, Any] = {
        "batch": query.shape[0], "heads": query.shape[1], "kv_heads": groups, "q": query.shape[2], "kv": key.shape[2],
        "dim": query.shape[3], "v_dim": value.shape[3], "dtype": query.dtype, "latent": latent,
        "dropout": float(site.args["dropout_p"] or 0.0) > 0, **_seen(site, mask, counted, query, key),
    }  # fmt: skip
    if arguments["mask"] == "known":
        keys = int(arguments["live_keys"])
    else:
        live = band_live(arguments["q"], arguments["kv"], Band(0, 0, 0, arguments["causal"], "upper_left"))
        keys = int(arguments["batch"] * arguments["kv_heads"] * live.keys)
    touched = {
        name: dtype_of(tensor.dtype).bytes(keys * tensor.shape[3])
        for name, tensor in (("key", key), ("value", value))
        if keys * tensor.shape[3] < tensor.distinct
    }
    touched |= {"value": 0} if latent else {}
    touched |= {"mask": 0} if counted is not None else {}
    if not any(name in site.args for name in ("grad", "grad_out", "grad_out_")):
        return Match(arguments=arguments, touched_bytes=touched)
    # The row sums of O * dO can be formed from P and dP, and the row statistics from the scores.
    formed_again = {name: 0 for name in ("out", "output", "logsumexp") if name in site.args}
    mask_grad = site.args.get("mask_requires_grad") or (site.args.get("grad_input_mask") or [False])[-1]
    wanted = bool(mask_grad) and arguments["mask"] == "float"
    return Match(arguments=arguments | {"grad_mask": wanted}, phase="backward", touched_bytes=touched | formed_again)


def _seen(
    site: AtenSite, mask: Tensor | None, counted: Sequence[int] | None, query: Tensor, key: Tensor
) -> dict[str, Any]:
    """Return the arguments that say which pairs are alive."""
    if counted is not None:  # is_causal is counted in
        return {"mask": "known", **{f"live_{name}": n for name, n in zip(Live._fields, counted, strict=True)}}
    elements = 0 if mask is None else min(mask.distinct, prod(query.shape[:3]) * key.shape[2])
    mask_kind = "none" if mask is None else ("bool" if mask.dtype == "bool" else "float")
    return {"causal": bool(site.args["is_causal"]), "mask": mask_kind, "mask_elements": elements}


def _four(tensor: Tensor) -> Tensor:
    """Return the tensor as [batch, heads, positions, dim]; a batch of single heads counts as heads."""
    missing = 4 - len(tensor.shape)
    strides = None if tensor.strides is None else (1,) * missing + tensor.strides
    return Tensor(
        shape=(1,) * missing + tensor.shape, dtype=tensor.dtype, strides=strides, buffer=tensor.buffer,
        offset=tensor.offset,
    )  # fmt: skip
