"""Bounds of whole case tables: the single-case formulas over columns, in pieces that fit the CPU cache."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nearpeak.base.arrow_stream import stream_of
from nearpeak.bounds.contradictory_rows import contradictions
from nearpeak.bounds.terms.bound_terms import proved_s, roofline_s, terms_of
from nearpeak.bounds.terms.column_pieces import PIECE_ROWS, row_of, some_rows, wide_rows
from nearpeak.bounds.terms.term_column import larger
from nearpeak.core.answers.bound import PROVED, TERMS, Policy
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.target import Target
from nearpeak.core.work.work import Work
from nearpeak.errors import NearpeakError, NotModelledError, SpecError
from nearpeak.ops import OPS
from nearpeak.ops.shared.definition.data_dependence import highest_axes
from nearpeak.ops.shared.tables.case_table import CaseGroup, CaseTable


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
    refused: Mapping[int, str] = field(default_factory=dict)
    """Why rows have no bound, by position in the table; their times are not numbers."""

    @property
    def limiter(self) -> Any:
        """Name of the limiting term of each row, none of a refused one."""
        names = np.asarray(self.limiters)[self.limiter_codes]
        if self.refused:
            names = names.astype(object)
            names[list(self.refused)] = None
        return names

    def columns(self) -> dict[str, Any]:
        """Return the table by column: bounds, limiter, roofline, each term, and why rows were refused, if any were.

        Shapes: all of one length; times of refused rows are masked.
        """
        times = {"bound_s": self.bound_s, "bound_high_s": self.high_s, "roofline_s": self.roofline_s}
        times |= {f"{name}_s": time_s for name, time_s in self.terms_s.items()}
        stated = {name: time_s for name, time_s in times.items() if time_s is not None}
        if not self.refused:
            return {**stated, "limiter": self.limiter}
        mask, reasons = np.zeros(len(self.bound_s), dtype=bool), np.full(len(self.bound_s), None, dtype=object)
        for row, reason in self.refused.items():
            mask[row], reasons[row] = True, reason
        masked = {name: np.ma.masked_array(time_s, mask) for name, time_s in stated.items()}
        return {**masked, "limiter": self.limiter, "refused": reasons}

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Return the table as an Arrow C stream, which pandas, polars, pyarrow and DuckDB read.

        Raises:
            MissingExtraError: nanoarrow is not installed (extra `tables`).
        """
        return stream_of(self.columns())


class _Columns:
    """Builder of the columns of a bound table."""

    def __init__(self, rows: int, refused: dict[int, str] | None) -> None:
        """Start empty; `refused` holds and takes the rows that have no bound, which else are an error."""
        self.times = {name: np.zeros(rows) for name in ("bound", "roofline")}
        self.codes = np.zeros(rows, dtype=np.int8)
        self.refused = refused
        for times in self.times.values():
            times[list(refused or ())] = np.nan

    def refuse(self, where: Any, reason: NotModelledError) -> None:
        """Note that the rows have no bound."""
        if self.refused is None:
            raise reason
        for row in np.atleast_1d(np.arange(len(self.codes))[where]).tolist():
            self.refused[row] = str(reason).removeprefix(f"table: row {row + 1}: ")
        for name in ("bound", "roofline"):
            self.times[name][where] = np.nan

    def note(self, where: Any, work: Work, target: Target, policy: Policy) -> None:
        """Write the terms, the bound and the roofline of `work` at the positions `where`."""
        best: Any = None
        code: Any = 0
        for term in terms_of(work, target, policy):
            if term.name not in self.times:
                self.times[term.name] = np.zeros(len(self.codes))
            self.times[term.name][where] = term.time_s
            if term.status != PROVED:
                continue
            number = TERMS.index(term.name)
            code = number if best is None else np.where(term.time_s > best, number, code)
            best = term.time_s if best is None else larger(best, term.time_s)
        self.times["bound"][where] = best
        self.times["roofline"][where] = roofline_s(work, target, policy)
        self.codes[where] = code


class _Bounds(_Columns):
    """The bounds alone."""

    def note(self, where: Any, work: Work, target: Target, policy: Policy) -> None:
        """Write the bound of `work` at the positions `where`."""
        self.times["bound"][where] = proved_s(work, target, policy)


def bound_table(table: CaseTable, target: Target, policy: Policy) -> BoundTable:
    """Return the bounds of all cases of `table` on `target`.

    Raises:
        NotModelledError: a case has no bound there.
    """
    return _table(table, target, policy, None)


def bounds_s(table: CaseTable, target: Target, policy: Policy) -> Any:
    """Return the bounds that `bound_table` gives, without terms, limiters and rooflines.

    Raises:
        NotModelledError: a case has no bound there.
    """
    columns = _Bounds(table.row_count, None)
    for group in table.groups:
        _fill_group(columns, group, target, policy)
    return columns.times["bound"]


def answered_table(table: CaseTable, target: Target, policy: Policy) -> BoundTable:
    """Return the bounds of those cases of `table` that have one on `target`, and why the others have none.

    Rows whose axes contradict each other are among those that have none.
    """
    try:
        return _table(table, target, policy, {})
    except SpecError:
        refused = dict(contradictions(table))
        if not refused:
            raise
    return _table(table.less(refused), target, policy, refused)


def _table(table: CaseTable, target: Target, policy: Policy, refused: dict[int, str] | None) -> BoundTable:
    columns = _Columns(table.row_count, refused)
    for group in table.groups:
        _fill_group(columns, group, target, policy)
    high_s = _highest(columns.times["bound"], table, target, policy, None if refused is None else {})
    used = {name: columns.times[name] for name in TERMS if name in columns.times and columns.times[name].any()}
    return BoundTable(
        bound_s=columns.times["bound"], roofline_s=columns.times["roofline"], terms_s=used, limiter_codes=columns.codes,
        high_s=high_s, refused=dict(sorted((refused or {}).items())),
    )  # fmt: skip


def _highest(lowest: Any, table: CaseTable, target: Target, policy: Policy, refused: dict[int, str] | None) -> Any:
    """Return the bounds at the worst values, equal to `lowest` where a case gives its values or has none."""
    groups = [group for group in table.groups if OPS[group.op].data_axes]
    if not groups:
        return None
    worst = [replace(group, axes=highest_axes(group.op, group.phase, group.axes)) for group in groups]
    columns = _Columns(table.row_count, refused)
    for group in worst:
        _fill_group(columns, group, target, policy)
    return np.maximum(lowest, columns.times["bound"])


def _fill_group(columns: _Columns, group: CaseGroup, target: Target, policy: Policy) -> None:
    """Write the bounds of one group into the columns, piece by piece."""
    size = len(columns.codes) if group.rows is None else len(group.rows)
    for start in range(0, size, PIECE_ROWS):
        _fill(columns, group, slice(start, min(start + PIECE_ROWS, size)), target, policy)


def _fill(columns: _Columns, group: CaseGroup, piece: slice, target: Target, policy: Policy) -> None:
    """Write the bounds of one piece of one group into the columns."""
    axes = some_rows(group.axes, piece)
    where = np.arange(piece.start, piece.stop) if group.rows is None else group.rows[piece]
    wide = wide_rows(axes, len(where), OPS[group.op].degree_count)
    if wide is None:
        _write_rows(columns, group, axes, piece if group.rows is None else where, where, target, policy)
        return
    if not wide.all():
        _write_rows(columns, group, some_rows(axes, ~wide), where[~wide], where[~wide], target, policy)
    for index in np.flatnonzero(wide):
        _write_row(columns, group, row_of(axes, int(index)), int(where[index]), target, policy)


def _write_rows(
    columns: _Columns, group: CaseGroup, axes: Mapping[str, Any], where: Any, rows: Any, target: Target, policy: Policy
) -> None:
    """Write the bounds of many rows; those that the rule or the target refuses one by one.

    Args:
        where: the rows as a slice where they are neighbours, or as `rows`, their positions.
    """
    try:
        work = _work(group, axes, rows, policy.algorithm)
        columns.note(where, work, target, policy)
    except NotModelledError:
        if columns.refused is None:
            raise
        reason = _reason_of_all(group, axes, rows, target, policy)
        if reason is not None:
            columns.refuse(where, reason)
            return
        for index, row in enumerate(rows):
            _write_row(columns, group, row_of(axes, index), int(row), target, policy)


def _write_row(
    columns: _Columns, group: CaseGroup, axes: Mapping[str, int], row: int, target: Target, policy: Policy
) -> None:
    """Write the bound of one row, or why it has none."""
    try:
        columns.note(row, _work(group, axes, [row], policy.algorithm), target, policy)
    except NotModelledError as error:
        columns.refuse(row, error)


def _reason_of_all(
    group: CaseGroup, axes: Mapping[str, Any], rows: Any, target: Target, policy: Policy
) -> NotModelledError | None:
    """Return why the target answers for no row, as it states no rate for a format; none where only some are refused."""
    try:
        work = _work(group, axes, rows, policy.algorithm)
    except NotModelledError:
        return None
    try:
        terms_of(replace(work, comm_bytes={}), target, policy)  # links are needed by those rows alone that use them
    except NotModelledError as error:
        return error
    return None


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
        try:
            rule(**row_of(axes, index), **formats, **group.attributes)
        except NearpeakError as error:
            return type(error)(f"table: row {int(row) + 1}: {error}")
    return whole
