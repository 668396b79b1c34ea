"""Least work of cases as columns of floats: bytes, arithmetic and launches, as kernel models read them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.base.identity_key import Same
from nearpeak.bounds.terms.unit_rates import matrix_rate
from nearpeak.core.work.dtype import DTYPES, dtype_of
from nearpeak.core.work.target import Target
from nearpeak.core.work.work import Work
from nearpeak.ops import OPS
from nearpeak.ops.shared.definition.data_dependence import highest_axes
from nearpeak.prediction.kernel_model import CaseColumns
from nearpeak.prediction.product_units import units_of
from nearpeak.prediction.scalar_or_column import in_floats, larger

_SAFE_PRODUCT = 2.0**54
"""Product of extents up to which every count stays below 2^63: rules multiply it by less than 512."""
_REMEMBERED_ROWS = 10_000
"""Rows up to which the work of a table is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkColumns:
    """Counts of each case."""

    read_bytes: Any
    """Distinct bytes read."""
    write_bytes: Any
    """Distinct bytes written."""
    vector_flop: Any
    """Element-wise arithmetic of every format."""
    special_count: Any
    """Evaluations of exp, log, roots and the like."""
    matrix_s: Any
    """Products at the documented rates of the device."""
    launch_count: Any
    """Kernels; one for each dependent step of a recurrence, an assumption: what one kernel waits for costs as much."""
    group_count: Any
    """Rows or channels of which every element needs a figure over all; 0 where there are none."""
    group_bytes: Any
    """Size of one of them."""


def work_columns(target: Target, cases: CaseColumns) -> WorkColumns:
    """Return the work of cases whose values are the costliest: tables are read row by row, masks select all.

    Raises:
        NotModelledError: the rule of work, or a rate of the device, is missing.
    """
    shape = np.broadcast_shapes((1,), *(np.shape(value) for value in cases.axes.values()))
    if shape[0] > _REMEMBERED_ROWS:
        return _work_columns(target, cases, shape[0])
    return _remembered(Same(target), Same(cases), shape[0])  # fits ask for the same rows over and over


@lru_cache(maxsize=64)
def _remembered(target: "Same[Target]", cases: "Same[CaseColumns]", count: int) -> WorkColumns:
    return _work_columns(target.held, cases.held, count)


def work_numbers(target: Target, cases: CaseColumns) -> WorkColumns:
    """Return the work of one case, whose axes are numbers, as numbers; as in tables, its values are the costliest.

    Raises:
        NotModelledError: the rule of work, or a rate of the device, is missing.
    """
    return _remembered_numbers(Same(target), Same(cases))


@lru_cache(maxsize=64)
def _remembered_numbers(target: "Same[Target]", cases: "Same[CaseColumns]") -> WorkColumns:
    return WorkColumns(**_counts(case_work(cases), target.held, in_floats))


@lru_cache(maxsize=64)
def case_work(same: "Same[CaseColumns]") -> Work:
    """Return the least work of one case, whose axes are numbers, for the costliest of values that it leaves open."""
    cases = same.held
    operator = OPS[cases.op]
    axes = highest_axes(cases.op, cases.phase, cases.axes) if operator.data_axes else cases.axes
    return operator.rule(cases.phase)(**axes, **fixed_of(cases))


def fixed_of(cases: CaseColumns) -> dict[str, Any]:
    """Return formats and choices as rules take them."""
    return {name: dtype_of(value) for name, value in cases.dtypes.items()} | dict(cases.attributes)


def _work_columns(target: Target, cases: CaseColumns, count: int) -> WorkColumns:
    operator = OPS[cases.op]
    defaults = operator.signatures[cases.phase].defaults
    unknown = {name: defaults[name] for name in operator.data_axes if isinstance(defaults.get(name), int)}
    axes = {name: np.broadcast_to(np.asarray(value), (count,)) for name, value in (unknown | dict(cases.axes)).items()}
    fixed = fixed_of(cases)

    def columns_of(values: Mapping[str, Any], rows: int) -> WorkColumns:
        columns = highest_axes(cases.op, cases.phase, values) if operator.data_axes else dict(values)
        work = operator.rule(cases.phase)(**columns, **fixed)
        return WorkColumns(
            **_counts(work, target, lambda value: np.broadcast_to(np.asarray(value, dtype=np.float64), (rows,)))
        )

    product = np.ones(count)
    for column in axes.values():
        product = product * np.maximum(column.astype(np.float64), 1)
    safe: Any = product**operator.degree_count < _SAFE_PRODUCT  # rows whose counts cannot overflow 64 bits
    if safe.all():
        return columns_of({name: _narrow(column) for name, column in axes.items()}, count)
    parts = {name: np.empty(count) for name in _NAMES}
    pieces = [(safe, {name: _narrow(column[safe]) for name, column in axes.items()})] if safe.any() else []
    pieces += [([row], {name: int(column[row]) for name, column in axes.items()}) for row in np.flatnonzero(~safe)]
    for where, values in pieces:
        columns = columns_of(values, int(safe.sum()) if where is safe else 1)
        for name in _NAMES:
            parts[name][where] = getattr(columns, name)
    return WorkColumns(**parts)


def _narrow(column: Any) -> Any:
    """Return integers as rules take them: one number where all rows agree."""
    first = int(column[0])
    narrow = column.astype(np.int64)
    return first if (narrow == first).all() else narrow


def _counts(work: Work, target: Target, column: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the counts of work by column name, each converted by `column`."""
    barrier = work.barrier
    kinds = {kind: flop for kind, flop in work.flop.items() if kind.startswith("matrix.")}
    return {
        "read_bytes": column(work.read_bytes), "write_bytes": column(work.write_bytes),
        "vector_flop": column(sum(flop for kind, flop in work.flop.items() if kind not in kinds)),
        "special_count": column(work.special_count), "matrix_s": column(_matrix_s(kinds, target)),
        "launch_count": larger(column(work.launch_count), column(0 if work.chain is None else work.chain.step_count)),
        "group_count": column(0 if barrier is None else barrier.group_count),
        "group_bytes": column(0 if barrier is None else barrier.group_bytes),
    }  # fmt: skip


def _matrix_s(kinds: Mapping[str, Any], target: Target) -> Any:
    """Return the time of products on units that model them directly: libraries do not add up partial products."""
    total: Any = 0.0
    for kind, flop in kinds.items():
        dtype = kind.partition(".")[2]
        direct = [target.flop_per_s(unit) for unit in units_of(target, DTYPES[dtype])]
        total = total + flop / (max(direct) if direct else matrix_rate(target, dtype, "strict", documented=True)[1])
    return total


_NAMES = tuple(WorkColumns.__dataclass_fields__)
