"""Bounds for whole tables of cases: the rules of single cases over columns, in pieces that stay in cache."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nearpeak.core.bound import PROVED, TERMS, Policy
from nearpeak.core.dtype import dtype_of
from nearpeak.core.target import Target
from nearpeak.core.work import Work
from nearpeak.errors import NearpeakError
from nearpeak.ops import OPS
from nearpeak.ops._data import highest_axes
from nearpeak.ops._table import CaseGroup, CaseTable
from nearpeak.theory.column import larger
from nearpeak.theory.terms import roofline_s, terms_of

PIECE_ROWS = 8192
"""Rows per piece: a dozen columns of them fit in a core's own cache."""
_SAFE_PRODUCT = 2.0**54
"""Product of extents up to which every count stays below 2^63: rules multiply it by less than 512."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTable:
    """Bounds as columns, row by row as the cases stand in their table."""

    bound_s: Any
    """Time nothing can beat."""
    roofline_s: Any
    """Plain roofline at documented rates."""
    terms_s: Mapping[str, Any]
    """Time by term; 0 where a case has no such term."""
    limiter_codes: Any
    """Position in `limiters` of the term that sets each bound."""
    high_s: Any = None
    """Bound for the values (indices, masks, routers) that cost most; none where no case depends on values."""
    limiters: tuple[str, ...] = TERMS
    """Names of the terms."""

    @property
    def limiter(self) -> Any:
        """Name of the limiting term of each row."""
        return np.asarray(self.limiters)[self.limiter_codes]


def bound_table(table: CaseTable, target: Target, policy: Policy) -> BoundTable:
    """Return the bounds of all cases of `table` on `target`."""
    rows = table.row_count
    columns = {name: np.zeros(rows) for name in ("bound", "roofline")}
    codes = np.zeros(rows, dtype=np.int8)
    for group in table.groups:
        _fill_group(columns, codes, group, target, policy)
    high_s = _highest(columns["bound"], table, target, policy)
    used = {name: columns[name] for name in TERMS if name in columns and columns[name].any()}
    return BoundTable(
        bound_s=columns["bound"], roofline_s=columns["roofline"], terms_s=used, limiter_codes=codes, high_s=high_s
    )


def _highest(lowest: Any, table: CaseTable, target: Target, policy: Policy) -> Any:
    """Return the bounds at the worst values, equal to `lowest` where a case gives its values or has none."""
    groups = [group for group in table.groups if OPS[group.op].data_axes]
    if not groups:
        return None
    worst = [replace(group, axes=highest_axes(group.op, group.phase, group.axes)) for group in groups]
    columns: dict[str, Any] = {name: np.zeros(table.row_count) for name in ("bound", "roofline")}
    for group in worst:
        _fill_group(columns, np.zeros(table.row_count, dtype=np.int8), group, target, policy)
    return np.maximum(lowest, columns["bound"])


def _fill_group(columns: dict[str, Any], codes: Any, group: CaseGroup, target: Target, policy: Policy) -> None:
    """Write the bounds of one group into the columns, piece by piece."""
    size = _size(group, len(codes))
    for start in range(0, size, PIECE_ROWS):
        _fill(columns, codes, group, slice(start, min(start + PIECE_ROWS, size)), target, policy)


def _size(group: CaseGroup, rows: int) -> int:
    return rows if group.rows is None else len(group.rows)


def _fill(columns: dict[str, Any], codes: Any, group: CaseGroup, piece: slice, target: Target, policy: Policy) -> None:
    """Write the bounds of one piece of one group into the columns."""
    axes = {name: value if isinstance(value, int) else value[piece] for name, value in group.axes.items()}
    where = np.arange(piece.start, piece.stop) if group.rows is None else group.rows[piece]
    wide = _wide(axes, len(where), OPS[group.op].degree_count)
    if wide is None:
        _write(
            columns,
            codes,
            piece if group.rows is None else where,
            _work(group, axes, where, policy.algorithm),
            target,
            policy,
        )
        return
    narrow = {name: value if isinstance(value, int) else value[~wide] for name, value in axes.items()}
    if not wide.all():
        _write(columns, codes, where[~wide], _work(group, narrow, where[~wide], policy.algorithm), target, policy)
    for index in np.flatnonzero(wide):
        single = {name: value if isinstance(value, int) else int(value[index]) for name, value in axes.items()}
        work = _work(group, single, where[index : index + 1], policy.algorithm)
        _write(columns, codes, where[index], work, target, policy)


def _write(columns: dict[str, Any], codes: Any, where: Any, work: Work, target: Target, policy: Policy) -> None:
    """Write the bounds of `work` at the positions `where`."""
    best: Any = None
    code: Any = 0
    for term in terms_of(work, target, policy):
        if term.name not in columns:
            columns[term.name] = np.zeros(len(codes))
        columns[term.name][where] = term.time_s
        if term.status != PROVED:
            continue
        number = TERMS.index(term.name)
        code = number if best is None else np.where(term.time_s > best, number, code)
        best = term.time_s if best is None else larger(best, term.time_s)
    columns["bound"][where] = best
    columns["roofline"][where] = roofline_s(work, target, policy)
    codes[where] = code


def _wide(axes: Mapping[str, Any], rows: int, degree: int) -> Any:
    """Return which rows could overflow 64 bits, none when no row could.

    Every count of a rule is at most a small multiple of the product of its extents, to the rule's degree.
    """
    product = np.ones(rows)
    for value in axes.values():
        product *= np.maximum(value, 1)
    wide = product**degree > _SAFE_PRODUCT if degree > 1 else product > _SAFE_PRODUCT
    return wide if wide.any() else None


def _work(group: CaseGroup, axes: Mapping[str, Any], where: Any, algorithm: str) -> Work:
    """Return the work of rows in exact integers; a row that the rule refuses is named."""
    formats = {name: dtype_of(value) for name, value in group.dtypes.items()}
    try:
        return OPS[group.op].work(group.phase, algorithm, dict(axes) | formats | dict(group.attributes))
    except NearpeakError as error:
        raise _refusal(group, axes, where, error) from None


def _refusal(group: CaseGroup, axes: Mapping[str, Any], where: Any, whole: NearpeakError) -> NearpeakError:
    """Return the refusal of the first row that the rule refuses alone."""
    rule = OPS[group.op].rule(group.phase)
    formats = {name: dtype_of(value) for name, value in group.dtypes.items()}
    for index, row in enumerate(where):
        single = {name: value if isinstance(value, int) else int(value[index]) for name, value in axes.items()}
        try:
            rule(**single, **formats, **group.attributes)
        except NearpeakError as error:
            return type(error)(f"table: row {int(row) + 1}: {error}")
    return whole
