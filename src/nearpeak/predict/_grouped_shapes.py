"""What grouped products are to a device: formats of tokens and weights, touched groups, how rows spread over them."""

from typing import Any

import numpy as np

from nearpeak.core.dtype import DTYPES, DType
from nearpeak.core.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.predict._form import CaseColumns

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


def device_figures(target: Target, dtype: str) -> Any:
    """Return the figures of the device that the compiled kernel reads, in its order.

    Raises:
        NotModelledError: it is no GPU, or states no rate, bandwidth or cache.
    """
    a, b = _formats(dtype)
    wide = a if a.bits_count >= b.bits_count else b
    units = [unit for unit in wide.matrix_units if unit in target.peaks]
    if target.kind != "gpu" or not units:
        raise NotModelledError(
            f"{target.name}: no prediction of grouped products of {wide.name}; GPUs that state a rate for it only"
        )
    if None in (target.dram.bandwidth_bytes_per_s, target.l2.capacity_bytes):
        raise NotModelledError(f"{target.name}: predict needs the memory bandwidth and the capacity of its last cache")
    peak = max((target.peaks[unit] for unit in units), key=lambda peak: peak.flop_per_s)
    return np.array([
        peak.flop_per_s, target.sm_count, target.dram.bandwidth_bytes_per_s, target.l2.capacity_bytes, peak.clock_hz,
        a.bits_count / 8, b.bits_count / 8 + _SCALE_BYTES.get(dtype, 0.0), 128 // max(a.bits_count / 8, 0.5),
    ])  # fmt: skip


def _formats(name: str) -> tuple[DType, DType]:
    """Return the formats of tokens and weights."""
    dtype = DTYPES[name]
    return (DTYPES[dtype.scheme.a.dtype], DTYPES[dtype.scheme.b.dtype]) if dtype.scheme else (dtype, dtype)
