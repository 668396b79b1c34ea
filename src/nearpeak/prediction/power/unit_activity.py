"""Utilisation of each unit of a board by a case, the input of the power model."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from nearpeak.base.identity_key import Same
from nearpeak.bounds.terms.unit_rates import vector_rate
from nearpeak.core.work.dtype import DTYPES
from nearpeak.core.work.target import Target
from nearpeak.prediction.gemm.product_formats import stored_bytes
from nearpeak.prediction.kernel_model import USUAL, CaseColumns
from nearpeak.prediction.product_units import formats_of
from nearpeak.prediction.scalar_or_column import chosen, clipped, in_floats, larger, rounded_up, smaller
from nearpeak.prediction.work_columns import WorkColumns, work_columns, work_numbers

TILE = (128, 64)
"""Rows and columns of the smallest common tile of a product: one occupies a multiprocessor."""
_OUT_BYTES = 2.0
"""Size of an element where the case does not say how many its products write."""
_KEPT_RATIO = 0.6
"""Share of the last cache that stays resident; half of it beyond is refetched in full. Source: as fitted for times."""
_PRODUCTS = ("gemm", "scaled_gemm")


class Busy(NamedTuple):
    """Busy times of the whole device's units, row by row; numbers for one case."""

    filled: Any
    """Share of the multiprocessors that hold a tile of a product."""
    products_s: Any
    vector_s: Any
    cache_s: Any
    """Bytes that stay in the last cache over repeated calls, at the documented rate of memory."""
    memory_s: Any
    """The other bytes."""


def activity(busy: Busy, time_s: Any) -> dict[str, Any]:
    """Return by part of a board's power the share of the whole device's units that are busy, row by row."""
    return {
        "idle": 1.0, "busy": 1.0, "filled": busy.filled, "products": busy.products_s / time_s,
        "vector": busy.vector_s / time_s, "cache": busy.cache_s / time_s, "memory": busy.memory_s / time_s,
    }  # fmt: skip


def busy_times(target: Target, stock: Target, cases: CaseColumns, *, is_one: bool) -> Busy:
    """Return the busy times of units of the whole device `stock`.

    Bytes count against the documented rate of memory wherever they come from: those that stay in the last cache over
    repeated calls, with the copies of weights that follow one another, are `cache`, the others `memory`.

    Args:
        is_one: whether it is one case, whose axes and results are numbers.
    """
    if is_one:  # its time is asked for more than once
        return _remembered(Same(target), Same(stock), Same(cases))
    return _busy(target, stock, cases, work_columns(target, cases))


@lru_cache(maxsize=64)
def _remembered(target: "Same[Target]", stock: "Same[Target]", cases: "Same[CaseColumns]") -> Busy:
    return _busy(target.held, stock.held, cases.held, work_numbers(target.held, cases.held))


def _busy(target: Target, stock: Target, cases: CaseColumns, work: WorkColumns) -> Busy:
    multiprocessors = target.sm_count / stock.sm_count
    vector_s = (work.vector_flop + work.special_count) / vector_rate(target, "fp32")[1]
    moved_s = (work.read_bytes + work.write_bytes) / (stock.dram.bandwidth_bytes_per_s or np.inf)
    missed = missed_ratio(target, cases, work)
    return Busy(
        filled=multiprocessors * filled_ratio(target, cases, work), products_s=multiprocessors * work.matrix_s,
        vector_s=multiprocessors * vector_s, cache_s=(1 - missed) * moved_s, memory_s=missed * moved_s,
    )  # fmt: skip


def filled_ratio(target: Target, cases: CaseColumns, work: WorkColumns) -> Any:
    """Return the share of the multiprocessors that hold a tile of a product; 0 where nothing is multiplied."""
    if cases.op in _PRODUCTS:
        m, n, batch = (in_floats(cases.axes.get(name, 1)) for name in ("m", "n", "batch"))
        tiles = batch * rounded_up(m / TILE[0]) * rounded_up(n / TILE[1])
    else:
        tiles = chosen(work.matrix_s > 0, work.write_bytes / _OUT_BYTES / (TILE[0] * TILE[1]), 0.0)
    return smaller(tiles / target.sm_count, 1.0)


def missed_ratio(target: Target, cases: CaseColumns, work: WorkColumns) -> Any:
    """Return the share of the bytes that come from memory, as the working set outgrows the last cache."""
    cache = float(target.l2.capacity_bytes or 0)
    working_set = work.read_bytes + work.write_bytes
    if cases.op in _PRODUCTS:  # further copies of B that follow one another, as predicted times assume
        n, k, batch = (in_floats(cases.axes.get(name, 1)) for name in ("n", "k", "batch"))
        b_bytes = batch * n * k * stored_bytes(formats_of(cases.dtypes)[1], DTYPES[cases.dtypes["dtype"]].scheme)
        copies = rounded_up(cache / larger(b_bytes, 1.0))
        working_set = working_set + b_bytes * (clipped(copies, 1.0, USUAL.weight_copies_count) - 1)
    return clipped(working_set / max(_KEPT_RATIO * cache, 1.0) - 0.5, 0.0, 1.0)
