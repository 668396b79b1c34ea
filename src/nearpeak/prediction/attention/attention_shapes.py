"""Extents of attention cases as kernels see them: sequences, heads, visible keys, and the kernel variant."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.base.identity_key import Same
from nearpeak.core.work.dtype import DTYPES
from nearpeak.core.work.target import Target
from nearpeak.prediction.calibration.related_devices import cache_part_count, multiplies_in_pairs, products_generation
from nearpeak.prediction.kernel_model import CaseColumns
from nearpeak.prediction.product_units import fastest, figures_of
from nearpeak.prediction.scalar_or_column import chosen, in_floats, larger, rounded_up, smaller

_PAIRED_WIDTHS, _WIDTHS = (64, 128, 256, 512), (32, 64, 96, 128, 192, 256)
"""Widths that libraries build kernels for, with paired multiprocessors and without; products of heads between two of
them are padded to the wider.
"""
_VAST = 256
"""Width above which no kernel before data-centre Blackwell's holds a tile of keys as it does for others."""
_MOST_DECODED = 16
"""Queries of a sequence up to which decode kernels run: one new token, or a few speculated ones."""

_MOST_TOGETHER = 48
"""Query heads of a key head up to which kernels take them together, where they do not take all that there are."""
_SHORT_WINDOW = 4096
"""Longest window that chooses other decode kernels; those of 8192 keys run like full attention."""

_LATENT, _LATENT_VALUES = 576, 512
"""Elements of a token in the cache of multi-head latent attention, and those that are values (arXiv:2405.04434)."""
_OVERLAP = 3.0
"""Exponent of the sum of products and exponentials where threads go on while matrix units work (FlashAttention-3,
arXiv:2407.08608, section 3); else they follow one another: 1.
"""
_FLOOR_S = 2e-6
"""Launch floor where a target states none: those documented lie between 1.5 and 2.5 us."""


COLUMNS = (
    "batch", "heads", "kv_heads", "q", "kv", "dim", "v_dim", "stored", "window", "causal", "packs", "generic",
    "decodes", "tile_rows", "apart",
)  # fmt: skip
"""What `columns_of` gives, by name."""


def columns_of(target: Target, cases: CaseColumns) -> list[Any]:
    """Return the inputs of the compiled kernel for each case, in its order, except mask data and dropout."""
    return list(_columns_of(Same(target), Same(cases)))


@lru_cache(maxsize=4)  # the model and its correction ask for those of the same cases
def _columns_of(same: "Same[Target]", its: "Same[CaseColumns]") -> list[Any]:
    target, cases = same.held, its.held
    batch, q, kv = _SEQUENCES[cases.op](cases.axes)
    heads, dim = _axis(cases, "heads"), _axis(cases, "dim")
    groups, width = _axis(cases, "kv_heads", heads), _axis(cases, "v_dim", dim)
    window, causal, kv = _band(cases, q, kv)
    group = larger(heads, 1.0) / larger(groups, 1.0)  # query heads of a key head
    stored = dim if cases.attributes.get("latent") else dim + width
    absorbed = (q == 1) & (dim != width) & (heads == groups) & (target.architecture == "hopper")
    paired = multiplies_in_pairs(target)
    # Paired kernels give each query head separate tiles; others put the heads of a key head into one tile where that
    # saves time (FlashAttention-3, FlashInfer).
    built = (np.asarray(_PAIRED_WIDTHS if paired else _WIDTHS), dim == width)
    dim, width, known = _padded(dim, *built), _padded(width, *built), built[1] ^ True | (dim <= built[0][-1])
    # A sequence of one token is a prefill, except where decode kernels take it: paired ones, for 16-bit queries.
    lone = (q == 1) & (dim <= 128) & paired & (DTYPES[cases.dtypes["dtype"]].bits_count == 16)
    decodes = (q <= _MOST_DECODED) & ((q < kv) | lone)
    known = known & (_uncommon(target, cases, group, decodes) ^ True)
    # Widths above the widest that most kernels are built for are another matter than gaps between those.
    generic = chosen(known, 0.0, chosen((dim > _VAST) & (not paired), 2.0, 1.0))
    decodes = decodes | absorbed
    rows = 256.0 if paired else 128.0
    packs = float(not paired)
    apart = _apart(target, cases, heads, group)
    # FlashAttention-3 takes one token of latent attention as a decode step over the latent cache (SGLang 0.5): its time
    # does not grow with the heads in the measurements of AIConfigurator (ai-dynamo 095f58a).
    dim, width, stored = (
        chosen(absorbed, a, b) for a, b in ((_LATENT, dim), (_LATENT_VALUES, width), (_LATENT, stored))
    )
    groups = chosen(absorbed, 1, groups)
    return [
        batch, heads, groups, q, kv, dim, width, stored, window, causal, packs, generic, decodes * 1.0, rows, apart,
    ]  # fmt: skip


def _padded(width: Any, widths: Any, is_even: Any) -> Any:
    """Return the least width that kernels are built for and that holds `width`; as it is beyond the widest.

    Args:
        is_even: whether keys and values are of one width; kernels for others are built for both.
    """
    place = np.minimum(np.searchsorted(widths, width), len(widths) - 1)
    return chosen(is_even, larger(width, in_floats(widths[place])), width)


def _uncommon(target: Target, cases: CaseColumns, group: Any, decodes: Any) -> Any:
    """Return the cases for which Hopper has no specialised kernel with 8-bit keys.

    In the measurements of AIConfigurator (ai-dynamo 095f58a) queries of 16 bits take 1.4 to 2.1 times as long to decode
    with narrow heads in groups that are no power of two, and with heads of 128 and a short window; prefills with heads
    of 256 take as long with a window as without.
    """
    bits = [DTYPES[cases.dtypes.get(name) or cases.dtypes["dtype"]].bits_count for name in ("dtype", "kv_dtype")]
    if target.architecture != "hopper" or bits[1] != 8:
        return group < 0.0
    width, left = _axis(cases, "dim"), _axis(cases, "left")
    odd = (width <= 64) & (np.log2(group) % 1 != 0)
    odd = odd | ((width > 64) & (width <= 128) & (left > 0) & (left <= _SHORT_WINDOW))
    return chosen(decodes, odd & (bits[0] == 16), (width >= 256) & (left > 0))


def _apart(target: Target, cases: CaseColumns, heads: Any, group: Any) -> Any:
    """Return the cases whose query heads of a key head are decoded separately: 1 by the usual kernel, 2 by another.

    In the measurements of AIConfigurator (ai-dynamo 095f58a) the time of such cases grows with the query heads: before
    Hopper over keys of 16 bits with a short window, except in groups of powers of two of narrow heads, and with wide
    heads in large groups; by a kernel that does not split the keys for more than 64 narrow heads in large groups.
    Nothing is known of other makers' libraries. A short window that holds all keys still chooses the kernel.
    """
    if target.vendor != "NVIDIA" or cases.attributes.get("latent"):
        return 0.0 * group
    paired, width = multiplies_in_pairs(target), _axis(cases, "dim")
    large = group > (_MOST_TOGETHER if paired else _MOST_TOGETHER - 1)
    alone = (width <= 64) & (heads > 64) & large
    if paired or target.architecture == "hopper":
        return alone * 2.0
    bits = DTYPES[cases.dtypes.get("kv_dtype") or cases.dtypes["dtype"]].bits_count
    left, narrow = _axis(cases, "left"), width <= 64
    windowed = (left > 0) & (left <= _SHORT_WINDOW) & (bits >= 16) & (width <= 128) & (heads <= 64)
    built = narrow & (np.log2(group) % 1 == 0)
    wide = (width >= 256) & (group > _MOST_TOGETHER) & (bits >= 16)
    alone = alone | (windowed & narrow & (group > 32))
    return chosen(alone, 2.0, ((windowed & (built ^ True)) | wide) * 1.0)


def _axis(cases: CaseColumns, name: str, default: Any = 0) -> Any:
    return in_floats(cases.axes.get(name, default))


def _band(cases: CaseColumns, q: Any, kv: Any) -> tuple[Any, Any, Any]:
    """Return the window that queries see, whether they see no later key, and the keys in their reach.

    Whether is 2 where queries beyond the last key see all of them, as masks aligned to the first key let them.
    """
    attributes = cases.attributes
    served = cases.op == "paged_attention"
    causal = float(served or bool(attributes.get("causal")))
    if attributes.get("causal") and attributes.get("align", "upper_left") == "upper_left" and cases.op == "attention":
        causal, kv = chosen(q > kv, 2.0, causal), smaller(q, kv)
    left, right, chunk = (_axis(cases, name) for name in ("left", "right", "chunk"))
    window = left + chosen(left > 0, chosen(causal > 0, 0.0, right), 0.0)
    # A chunk holds half of its positions on average.
    window = chosen((chunk > 0) & (window == 0), rounded_up(chunk / 2), window)
    return chosen(window >= kv, 0.0, window), larger(causal, window > 0), kv


def _whole(axes: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return tuple(in_floats(axes[name]) for name in ("batch", "q", "kv"))


def _paged(axes: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    batch, tokens = (in_floats(axes[name]) for name in ("batch", "tokens"))
    return batch, in_floats(axes.get("q", 1)), rounded_up(tokens / larger(batch, 1.0))


def _packed(axes: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    tokens, count = (in_floats(axes.get(name, 1)) for name in ("tokens", "sequences"))
    some, keys = larger(count, 1.0), in_floats(axes.get("kv_tokens", tokens))
    return count, rounded_up(tokens / some), rounded_up(keys / some)


_SEQUENCES = {"attention": _whole, "paged_attention": _paged, "varlen_attention": _packed}
"""Sequences, queries and keys of each by operator."""


def device_figures(target: Target, dtypes: Mapping[str, str]) -> Any:
    """Return the figures of the device that the compiled kernel reads, in its order.

    Rate of products, multiprocessors, memory rate, cache, clock, exponentials per clock, bytes of a stored element and
    of one in a product, exponent of the sum of products and exponentials, parts of the cache, launch floor.

    Raises:
        NotModelledError: it is no GPU, or states no rate, bandwidth or cache.
    """
    dtype, stored = DTYPES[dtypes["dtype"]], DTYPES[dtypes.get("kv_dtype") or dtypes["dtype"]]
    figures = figures_of(target, fastest(target, dtype, "attention"))
    overlap = _OVERLAP if target.vendor != "NVIDIA" or products_generation(target) else 1.0
    return np.array([
        *figures, target.special_per_clock or 16.0, stored.bits_count / 8, dtype.bits_count / 8,
        overlap, cache_part_count(target), target.launch_floor_s or _FLOOR_S,
    ])  # fmt: skip
