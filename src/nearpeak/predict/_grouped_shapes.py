"""What grouped products are to a device: formats of tokens and weights, touched groups, how rows spread over them."""

from typing import Any

import numpy as np

from nearpeak.core.dtype import DTYPES, DType
from nearpeak.core.target import Target
from nearpeak.predict._form import CaseColumns
from nearpeak.predict._units import fastest, figures_of

_SCALE_BYTES = {"nvfp4": 1 / 16, "mxfp4": 1 / 32, "mxfp8": 1 / 32, "mxfp4_weight_only": 1 / 32}
"""Bytes of scales per weight, where blocks are short."""


def touched_of(cases: CaseColumns, rows: Any, groups: Any) -> Any:
    """Return the groups with rows: sampled or stated ones."""
    from nearpeak.ops._load import touched_groups

    load = str(cases.attributes.get("load", ""))
    most = np.minimum(rows, groups)
    if load:
        return np.asarray(touched_groups(load, rows.astype(np.int64), groups.astype(np.int64)), dtype=np.float64)
    return np.clip(np.asarray(cases.axes.get("touched_groups", 1), dtype=np.float64), np.minimum(1.0, most), most)


def exponent_of(load: str) -> float:
    """Return how skewed a stated load is: 0 where rows are spread evenly.

    >>> exponent_of("zipf exponent=1.2"), exponent_of("uniform")
    (1.2, 0.0)
    """
    if not load.startswith("zipf"):
        return 0.0
    given = [word.partition("=")[2] for word in load.split() if word.startswith("exponent=")]
    # An exponent of exactly 1 has no power.
    return float(given[0]) if given and float(given[0]) != 1.0 else 1.001


def device_figures(target: Target, dtype: str, *, unpacked: bool = False) -> Any:
    """Return the figures of the device that the compiled kernel reads, in its order.

    Args:
        unpacked: weights were made as wide as tokens while loading.

    Raises:
        NotModelledError: it is no GPU, or states no rate, bandwidth or cache.
    """
    a, b = _formats(dtype)
    wide = a if a.bits_count >= b.bits_count else b
    figures = figures_of(target, fastest(target, wide, "grouped products"))
    size, scales = a.bits_count / 8, _SCALE_BYTES.get(dtype, 0.0)
    weight = size if unpacked else b.bits_count / 8 + scales
    return np.array([*figures, size, weight, 128 // max(size, 0.5)])


def _formats(name: str) -> tuple[DType, DType]:
    """Return the formats of tokens and weights."""
    dtype = DTYPES[name]
    return (DTYPES[dtype.scheme.a.dtype], DTYPES[dtype.scheme.b.dtype]) if dtype.scheme else (dtype, dtype)
