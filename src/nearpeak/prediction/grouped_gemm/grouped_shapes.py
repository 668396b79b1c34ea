"""Inputs of the grouped-product model: groups with rows, even or skewed loads, and figures of the device."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DTYPES
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.prediction.kernel_model import CaseColumns, Setting
from nearpeak.prediction.product_units import fastest, figures_of

_SCALE_BYTES = {"nvfp4": 1 / 16, "mxfp4": 1 / 32, "mxfp8": 1 / 32, "mxfp4_weight_only": 1 / 32}
"""Bytes of scales per weight, where blocks are short."""


MOST_GROUPS = 10**7
"""Groups whose loads are looked at one by one; layers of experts have hundreds."""
SKEWED_EXPONENT = 1.2
"""Power law of the most skewed loads that the corpus has layers of experts for (aic_moe, power_law_1.2)."""
UNSTATED = (
    "how rows spread over groups is not stated: routed at random, each group as likely; the interval holds even loads "
    f"and skewed ones (zipf exponent={SKEWED_EXPONENT:g}); load= or touched_groups= says it"
)
"""What a prediction says that had to assume a load."""


def touched_of(cases: CaseColumns, rows: Any, groups: Any, *, stated: bool = False) -> Any:
    """Return the groups with rows: sampled or stated ones, or else those that a random routing reaches.

    Args:
        stated: a touched group alone is one, not the default of cases that say nothing.
    """
    from nearpeak.ops.shared.expert_load import touched_groups

    load = str(cases.attributes.get("load", ""))
    most = np.minimum(rows, groups)
    if load:
        return np.asarray(touched_groups(load, rows.astype(np.int64), groups.astype(np.int64)), dtype=np.float64)
    stated_groups = np.asarray(cases.axes.get("touched_groups", 1), dtype=np.float64)
    known = np.clip(stated_groups, np.minimum(1.0, most), most)
    return known if stated else np.where(is_open(cases, rows, groups), reached(rows, groups, 0.0), known)


def is_open(cases: CaseColumns, rows: Any, groups: Any) -> Any:
    """Return which cases do not state how rows spread: no load, and the default of touched groups."""
    if cases.attributes.get("load", ""):
        return np.zeros(np.broadcast(rows, groups).shape, dtype=bool)
    return (np.asarray(cases.axes.get("touched_groups", 1)) <= 1) & (np.minimum(rows, groups) > 1)


def reached(rows: Any, groups: Any, exponent: float) -> Any:
    """Return the groups that rows are expected to reach, each drawn by itself; two at least where there are two.

    Args:
        exponent: group e is drawn in proportion to 1 / (e + 1) ** exponent; 0 for all alike.

    >>> reached(np.array([1.0, 2.0, 512.0]), np.array([64.0, 64.0, 64.0]), 0.0).tolist()
    [1.0, 2.0, 64.0]
    """
    rows, groups = np.broadcast_arrays(rows, groups)
    counts = np.empty(rows.shape)
    for count in np.unique(groups):
        same_count = groups == count
        counts[same_count] = _reached(rows[same_count], float(count), exponent)
    most = np.minimum(rows, groups)
    return np.clip(np.floor(counts + 0.5), np.minimum(2.0, most), most)


def _reached(rows: Any, groups: float, exponent: float) -> Any:
    """Return the sum over groups of the chance that any row reaches them."""
    if exponent == 0.0:
        return groups * -np.expm1(rows * np.log1p(-1 / max(groups, 1.0 + 1e-9)))
    if groups > MOST_GROUPS:
        raise NotModelledError(f"grouped_gemm: groups={groups:.0f}: predicted up to {MOST_GROUPS:,}")
    missed = _log_missed(groups, exponent)
    each, place = np.unique(rows, return_inverse=True)
    return np.array([-np.expm1(row_count * missed).sum() for row_count in each])[place]


@lru_cache(maxsize=256)
def _log_missed(groups: float, exponent: float) -> Any:
    """Return the logarithm of the chance that one row misses each group."""
    weights = np.arange(1.0, groups + 1.0) ** -exponent
    return np.log1p(-np.minimum(weights / weights.sum(), 1 - 1e-12))


def with_touched(cases: CaseColumns, setting: Setting) -> CaseColumns:
    """Return cases that state the groups with rows: drawn, given, or expected of a random routing."""
    return _with(cases, touched_of(cases, *_extents(cases), stated=bool(setting.load_exponent_ratio)))


def open_loads(cases: CaseColumns, setting: Setting) -> tuple[Any, tuple[tuple[CaseColumns, Setting], ...]]:
    """Return which cases do not state their load, and all cases with an even and with a skewed one."""
    if setting.load_exponent_ratio or str(cases.attributes.get("split", "m")) != "m":
        return False, ()
    rows, groups = _extents(cases)
    open_rows = is_open(cases, rows, groups)
    if not open_rows.any():
        return False, ()
    skewed = replace(setting, load_exponent_ratio=SKEWED_EXPONENT)
    even, few = np.minimum(rows, groups), reached(rows, groups, SKEWED_EXPONENT)
    return open_rows, ((_with(cases, even), setting), (_with(cases, few), skewed))


def _extents(cases: CaseColumns) -> tuple[Any, Any]:
    rows, groups = (np.atleast_1d(np.asarray(cases.axes[name], dtype=np.float64)) for name in ("m", "groups"))
    return np.broadcast_arrays(rows, groups)  # type: ignore[return-value]  # a pair in, a pair out


def _with(cases: CaseColumns, touched: Any) -> CaseColumns:
    """Return cases with touched groups: a number for one case whose extents are numbers."""
    is_single = all(isinstance(extent, int) for extent in cases.axes.values())
    return replace(
        cases, axes={**cases.axes, "touched_groups": int(touched[0]) if is_single else touched.astype(np.int64)}
    )


def exponent_of(load: str) -> float:
    """Return the exponent of a stated load: 0 where rows are spread evenly.

    >>> exponent_of("zipf exponent=1.2"), exponent_of("uniform")
    (1.2, 0.0)
    """
    if not load.startswith("zipf"):
        return 0.0
    exponents = [word.partition("=")[2] for word in load.split() if word.startswith("exponent=")]
    # An exponent of exactly 1 has no power.
    return float(exponents[0]) if exponents and float(exponents[0]) != 1.0 else 1.001


def device_figures(target: Target, dtype: str, *, unpacked: bool = False) -> Any:
    """Return the figures of the device that the compiled kernel reads, in its order.

    Args:
        unpacked: weights were made as wide as tokens while loading.

    Raises:
        NotModelledError: it is no GPU, or states no rate, bandwidth or cache.
    """
    scheme = DTYPES[dtype].scheme
    a, b = (DTYPES[scheme.a.dtype], DTYPES[scheme.b.dtype]) if scheme else (DTYPES[dtype], DTYPES[dtype])
    wide = a if a.bits_count >= b.bits_count else b
    figures = figures_of(target, fastest(target, wide, "grouped products"))
    size, scales = a.bits_count / 8, _SCALE_BYTES.get(dtype, 0.0)
    weight = size if unpacked else b.bits_count / 8 + scales
    return np.array([*figures, size, weight, 128 // max(size, 0.5)])
