"""Sequences of attention as its kernels meet them: heads, queries, keys in reach."""

import math
from typing import NamedTuple

from nearpeak.core.case import Case
from nearpeak.core.dtype import DTYPES
from nearpeak.core.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.predict._kernel_kin import multiplies_in_pairs

SOURCE_BYTES = 2.0
"""Bytes of an element as the projection before attention leaves it."""
_MOST_DECODED = 16
"""Queries of a sequence up to which decode kernels run."""
_PAIRED_WIDTHS, _WIDTHS = (64, 128, 256, 512), (32, 64, 96, 128, 192, 256)
"""Widths that libraries build kernels for, with paired multiprocessors and without."""


class Sequences(NamedTuple):
    """Equal sequences."""

    batch: float
    heads: float
    kv_heads: float
    q: float
    kv: float
    dim: float
    v_dim: float
    stored: float
    """Elements of a key and value that the cache keeps."""
    window: float
    """Keys that a query sees; 0 for all."""
    causal: bool
    element_bytes: float
    kv_bytes: float


def sequences_of(case: Case) -> Sequences:
    """Return the sequences of a case, those of a batch alike.

    Raises:
        NotModelledError: masks that kernels read, or dropout.
    """
    axes, named, attributes = dict(case.axes), dict(case.dtypes), dict(case.attributes)
    if attributes.get("mask", "none") not in ("none", "alibi") or attributes.get("dropout"):
        raise NotModelledError(f"simulate: no lowering of {case.op} with masks that are read, or dropout")
    batch, q, kv = _extents(case.op, axes)
    heads, dim = float(axes["heads"]), float(axes["dim"])
    v_dim = float(axes.get("v_dim") or dim)
    if attributes.get("causal") and attributes.get("align", "upper_left") == "upper_left" and case.op == "attention":
        kv = min(q, kv)
    causal = case.op == "paged_attention" or bool(attributes.get("causal"))
    window = _window(axes, causal, kv)
    dtype = DTYPES[named["dtype"]]
    return Sequences(
        batch=batch, heads=heads, kv_heads=float(axes.get("kv_heads") or heads), q=q, kv=kv, dim=dim, v_dim=v_dim,
        stored=dim if attributes.get("latent") else dim + v_dim, window=window, causal=causal or window > 0,
        element_bytes=dtype.bits_count / 8, kv_bytes=DTYPES[named.get("kv_dtype") or dtype.name].bits_count / 8,
    )  # fmt: skip


def _extents(op: str, axes: dict[str, int]) -> tuple[float, float, float]:
    """Return sequences, queries and keys of each."""
    if op == "attention":
        return float(axes["batch"]), float(axes["q"]), float(axes["kv"])
    if op == "paged_attention":
        return float(axes["batch"]), float(axes.get("q", 1)), float(math.ceil(axes["tokens"] / axes["batch"]))
    tokens, count = axes["tokens"], axes.get("sequences") or 1
    return float(count), float(math.ceil(tokens / count)), float(math.ceil((axes.get("kv_tokens") or tokens) / count))


def _window(axes: dict[str, int], causal: bool, kv: float) -> float:
    """Return the keys that a query sees; 0 where that is all of them."""
    left, right, chunk = (float(axes.get(name) or 0) for name in ("left", "right", "chunk"))
    window = left + (right if left and not causal else 0.0)
    if chunk and not window:
        window = math.ceil(chunk / 2)  # half of a chunk's positions on average
    return 0.0 if window >= kv else window


def decodes(s: Sequences, target: Target) -> bool:
    """Return whether decode kernels run: few queries against more keys, or one where paired kernels take it."""
    lone = s.q == 1 and s.dim <= 128 and s.element_bytes == 2 and multiplies_in_pairs(target)
    return s.q <= _MOST_DECODED and (s.q < s.kv or lone)


def has_kernel(s: Sequences, target: Target) -> bool:
    """Return whether libraries have a kernel for the width of the heads."""
    return s.dim in (_PAIRED_WIDTHS if multiplies_in_pairs(target) else _WIDTHS) or s.dim != s.v_dim
