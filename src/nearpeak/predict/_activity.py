"""How busy a case keeps each unit of a board, as shares of the whole: what power follows from."""

from typing import Any

import numpy as np

from nearpeak.core.dtype import DTYPES
from nearpeak.core.target import Target
from nearpeak.predict._form import USUAL, CaseColumns
from nearpeak.predict._numbers import chosen, clipped, in_floats, larger, rounded_up, smaller
from nearpeak.predict._product_formats import stored_bytes
from nearpeak.predict._units import formats_of
from nearpeak.predict._work_columns import WorkColumns, work_columns, work_numbers
from nearpeak.theory.rates import vector_rate

TILE = (128, 64)
"""Rows and columns of the smallest common tile of a product: one occupies a multiprocessor."""
_OUT_BYTES = 2.0
"""Size of an element where the case does not say how many its products write."""
_KEPT_RATIO = 0.6
"""Share of the last cache that stays resident; half of it beyond is refetched in full. Source: as fitted for times."""
_PRODUCTS = ("gemm", "scaled_gemm")


def activity(target: Target, stock: Target, cases: CaseColumns, time_s: Any) -> dict[str, Any]:
    """Return by part of a board's power the share of the whole device's units that are busy, row by row.

    Bytes count against the documented rate of memory wherever they come from: those that stay in the last cache over
    repeated calls, with the copies of weights that follow one another, are `cache`, the others `memory`.

    Args:
        time_s: times of the rows; a number for one case, whose shares are numbers then.
    """
    work = work_numbers(target, cases) if isinstance(time_s, float) else work_columns(target, cases)
    multiprocessors = target.sm_count / stock.sm_count
    vector_s = (work.vector_flop + work.special_count) / vector_rate(target, "fp32")[1]
    moved_s = (work.read_bytes + work.write_bytes) / (stock.dram.bandwidth_bytes_per_s or np.inf)
    missed = missed_ratio(target, cases, work)
    whole = 1.0 if isinstance(time_s, float) else np.ones_like(work.matrix_s)
    return {
        "idle": whole, "busy": whole, "filled": multiprocessors * filled_ratio(target, cases, work),
        "products": multiprocessors * work.matrix_s / time_s, "vector": multiprocessors * vector_s / time_s,
        "cache": (1 - missed) * moved_s / time_s, "memory": missed * moved_s / time_s,
    }  # fmt: skip


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
    working_set = work.read_bytes + work.write_bytes + (_copied_bytes(cases, cache) if cases.op in _PRODUCTS else 0.0)
    return clipped(working_set / max(_KEPT_RATIO * cache, 1.0) - 0.5, 0.0, 1.0)


def _copied_bytes(cases: CaseColumns, cache: float) -> Any:
    """Return the bytes of the further copies of B that follow one another, as predicted times assume."""
    n, k, batch = (in_floats(cases.axes.get(name, 1)) for name in ("n", "k", "batch"))
    b_bytes = batch * n * k * stored_bytes(formats_of(cases.dtypes)[1], DTYPES[cases.dtypes["dtype"]].scheme)
    copies = rounded_up(cache / larger(b_bytes, 1.0))
    return b_bytes * (clipped(copies, 1.0, USUAL.weight_copies_count) - 1)
