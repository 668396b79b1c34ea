"""Attention as its kernels meet it: sequences, heads, keys in reach, and which kernels libraries have for that."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak.core.dtype import DTYPES
from nearpeak.core.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.predict._form import CaseColumns
from nearpeak.predict._kernel_kin import multiplies_in_pairs

_PAIRED_WIDTHS, _WIDTHS = (64, 128, 256, 512), (32, 64, 96, 128, 192, 256)
"""Widths that libraries build kernels for, with paired multiprocessors and without; others run on a generic kernel."""
_MOST_DECODED = 16
"""Queries of a sequence up to which decode kernels run: one new token, or a few speculated ones."""


def columns_of(target: Target, cases: CaseColumns) -> list[Any]:
    """Return what the compiled kernel reads of each case, in its order, masks that are read and dropout aside."""
    batch, q, kv = _SEQUENCES[cases.op](cases.axes)
    heads, dim = _axis(cases, "heads"), _axis(cases, "dim")
    groups, width = _axis(cases, "kv_heads", heads), _axis(cases, "v_dim", dim)
    window, causal, kv = _band(cases, q, kv)
    stored = dim if cases.attributes.get("latent") else dim + width
    paired = multiplies_in_pairs(target)
    # Paired kernels give each query head tiles of its own; others put the heads of a key head into one tile where that
    # saves time (FlashAttention-3, FlashInfer).
    known = np.isin(dim, _PAIRED_WIDTHS if paired else _WIDTHS) | (dim != width)
    # A sequence of one token is a prefill, except where decode kernels take it: paired ones, for 16-bit queries.
    lone = (q == 1) & (dim <= 128) & paired & (DTYPES[cases.dtypes["dtype"]].bits_count == 16)
    decodes = (q <= _MOST_DECODED) & ((q < kv) | lone)
    rows = 256.0 if paired else 128.0
    packs = float(not paired)
    return [batch, heads, groups, q, kv, dim, width, stored, window, causal, packs, 1.0 - known, decodes * 1.0, rows]


def _axis(cases: CaseColumns, name: str, default: Any = 0) -> Any:
    return np.asarray(cases.axes.get(name, default), dtype=np.float64)


def _band(cases: CaseColumns, q: Any, kv: Any) -> tuple[Any, Any, Any]:
    """Return the window that queries see, whether they see no later key, and the keys in their reach."""
    attributes = cases.attributes
    served = cases.op == "paged_attention"
    causal = np.asarray(float(served or bool(attributes.get("causal"))))
    if attributes.get("causal") and attributes.get("align", "upper_left") == "upper_left" and cases.op == "attention":
        kv = np.minimum(q, kv)
    left, right, chunk = (_axis(cases, name) for name in ("left", "right", "chunk"))
    window = left + np.where(left > 0, np.where(causal > 0, 0.0, right), 0.0)
    # A chunk holds half of its positions on average.
    window = np.where((chunk > 0) & (window == 0), np.ceil(chunk / 2), window)
    return np.where(window >= kv, 0.0, window), np.maximum(causal, window > 0), kv


def _whole(axes: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return tuple(np.asarray(axes[name], dtype=np.float64) for name in ("batch", "q", "kv"))  # type: ignore[return-value]


def _paged(axes: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    batch, tokens = (np.asarray(axes[name], dtype=np.float64) for name in ("batch", "tokens"))
    return batch, np.asarray(axes.get("q", 1), dtype=np.float64), np.ceil(tokens / batch)


def _packed(axes: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    tokens, count = (np.asarray(axes.get(name, 1), dtype=np.float64) for name in ("tokens", "sequences"))
    return count, np.ceil(tokens / count), np.ceil(np.asarray(axes.get("kv_tokens", tokens), dtype=np.float64) / count)


_SEQUENCES = {"attention": _whole, "paged_attention": _paged, "varlen_attention": _packed}
"""Sequences, queries and keys of each by operator."""


def device_figures(target: Target, dtypes: Mapping[str, str]) -> Any:
    """Return the figures of the device that the compiled kernel reads, in its order.

    Raises:
        NotModelledError: it is no GPU, or states no rate, bandwidth or cache.
    """
    dtype, stored = DTYPES[dtypes["dtype"]], DTYPES[dtypes.get("kv_dtype") or dtypes["dtype"]]
    units = [unit for unit in dtype.matrix_units if unit in target.peaks]
    if target.kind != "gpu" or not units:
        raise NotModelledError(
            f"{target.name}: no prediction of attention in {dtype.name}; GPUs that state its rate only"
        )
    if None in (target.dram.bandwidth_bytes_per_s, target.l2.capacity_bytes):
        raise NotModelledError(f"{target.name}: predict needs the memory bandwidth and the capacity of its last cache")
    peak = max((target.peaks[unit] for unit in units), key=lambda peak: peak.flop_per_s)
    return np.array([
        peak.flop_per_s, target.sm_count, target.dram.bandwidth_bytes_per_s, target.l2.capacity_bytes, peak.clock_hz,
        target.special_per_clock or 16.0, stored.bits_count / 8, dtype.bits_count / 8,
    ])  # fmt: skip
