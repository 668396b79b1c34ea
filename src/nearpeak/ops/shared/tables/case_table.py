"""Tables of cases as columns, grouped so that each rule runs once per group on whole arrays."""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nearpeak.base.arrow_stream import frame_columns, stream_of
from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError, shown
from nearpeak.ops import OPS
from nearpeak.ops.shared.definition.operator import Signature
from nearpeak.ops.shared.tables.cells import BLANK, columns_of, extents, first_filled, grouped, is_blank, row_count

RESERVED = ("op", "phase")
_SHOWN = 4
"""Columns that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseGroup:
    """Cases of one operator and phase that differ in axes only."""

    op: str
    """Operator."""
    phase: str
    """`forward` or `backward`."""
    axes: Mapping[str, Any]
    """Extent by axis: an int for all rows, or an int64 array."""
    dtypes: Mapping[str, str]
    """Canonical formats."""
    attributes: Mapping[str, str | bool]
    """Choices."""
    rows: Any
    """Positions in the table, an int64 array; none when the group is the whole table."""

    def case(self, index: int) -> Case:
        """Return the case at position `index` of the group."""
        axes = tuple(
            (name, value if isinstance(value, int) else int(value[index])) for name, value in self.axes.items()
        )
        return Case(
            op=self.op, phase=self.phase, axes=axes,
            dtypes=tuple(self.dtypes.items()), attributes=tuple(self.attributes.items()),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTable:
    """Many cases as columns."""

    row_count: int
    """Number of cases."""
    groups: tuple[CaseGroup, ...]
    """The cases, by operator, phase, formats and attributes."""
    passed_through: tuple[str, ...] = ()
    """Columns that are no axis of any operator in the table."""

    def cases(self) -> list[Case]:
        """Return the cases in the order of the table."""
        cases: list[Case | None] = [None] * self.row_count
        for group in self.groups:
            positions = range(self.row_count) if group.rows is None else group.rows
            for index, row in enumerate(positions):
                cases[int(row)] = group.case(index)
        return [case for case in cases if case is not None]

    def columns(self) -> dict[str, Any]:
        """Return the cases by column: op, phase, axes, formats and choices; masked or none where an operator has none.

        Shapes: all of one length, in the order of the table.
        """
        names = dict.fromkeys(name for group in self.groups for name in group.axes)
        columns: dict[str, Any] = {name: np.full(self.row_count, None, dtype=object) for name in RESERVED}
        columns |= {name: np.ma.masked_array(np.zeros(self.row_count, dtype=np.int64), mask=True) for name in names}
        for group in self.groups:
            where = slice(None) if group.rows is None else group.rows
            texts = {"op": group.op, "phase": group.phase, **group.dtypes, **group.attributes}
            for name in texts:
                columns.setdefault(name, np.full(self.row_count, None, dtype=object))
            for name, value in {**group.axes, **texts}.items():
                columns[name][where] = value
        return {name: _typed(values) for name, values in columns.items()}

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Return the table as an Arrow C stream, which pandas, polars, pyarrow and DuckDB read.

        Raises:
            MissingExtraError: nanoarrow is not installed (extra `tables`).
        """
        return stream_of(self.columns())

    def less(self, rows: Collection[int]) -> "CaseTable":
        """Return the table without the cases at some positions; the others keep their positions."""
        groups = []
        for group in self.groups:
            places = np.arange(self.row_count) if group.rows is None else group.rows
            remaining = ~np.isin(places, list(rows))
            axes = {name: value if isinstance(value, int) else value[remaining] for name, value in group.axes.items()}
            groups += [replace(group, axes=axes, rows=places[remaining])] if remaining.any() else []
        return replace(self, groups=tuple(groups))


def _typed(values: Any) -> Any:
    """Return a column without a mask that hides nothing, and truth values as such."""
    if values.dtype.kind == "O" and {type(cell) for cell in values} <= {bool, type(None)}:
        blank = np.array([cell is None for cell in values], dtype=bool)
        values = np.ma.masked_array(np.where(blank, False, values).astype(bool), blank)
    return values if np.ma.is_masked(values) else np.ma.getdata(values)


def case_table(columns: Any) -> CaseTable:
    """Return the table that `columns` state: `op`, `dtype`, the operators' axes, optionally `phase`.

    A column is one value for all rows or a sequence; a blank cell takes the operator's default.

    Args:
        columns: a mapping, or a data frame of pandas, polars or pyarrow (extra `tables`).

    Raises:
        SpecError: a column is missing or of another length, or a cell is wrong; row and column are named.

    >>> case_table({"op": "gemm", "dtype": "bf16", "m": [1, 2], "n": 4, "k": 8}).row_count
    2
    """
    columns = columns if isinstance(columns, Mapping) else frame_columns(columns)
    if "op" not in columns:
        raise SpecError(f"table: column 'op' is missing; it has {', '.join(columns) or 'no column at all'}")
    plain = columns_of(columns)
    count = row_count(plain)
    signatures: list[tuple[Signature, str, Any]] = []
    for (op, phase), rows in grouped({name: plain.get(name) for name in RESERVED}, count):
        step = str(phase or "forward")
        check_named(op, f"table: row {1 if rows is None else int(rows[0]) + 1}: column 'op' ")
        OPS[str(op)].rule(step)
        signatures.append((OPS[str(op)].signatures[step], step, rows))
    known = {name for signature, _, _ in signatures for name in signature.names()}
    extra = tuple(name for name in plain if name not in known and name not in RESERVED)
    _refuse_near_misses(extra, known)
    groups = [group for group_key in signatures for group in _groups_of(*group_key, plain, known, count)]
    return CaseTable(row_count=count, groups=tuple(groups), passed_through=extra)


def check_named(op: Any, where: str = "") -> None:
    """Refuse a cell that names no operator as it is blank.

    >>> check_named(None, "row 2: op ")
    Traceback (most recent call last):
    nearpeak.errors.SpecError: row 2: op is blank; name the operator, e.g. gemm ('nearpeak show ops' lists all)
    """
    if is_blank(op) or not str(op).strip():
        raise SpecError(f"{where}is blank; name the operator, e.g. gemm ('nearpeak show ops' lists all)")


def table_from(cases: Any, question: str) -> CaseTable:
    """Return the table of several cases, of columns, or of a data frame.

    Raises:
        SpecError: it is none of these.
    """
    if isinstance(cases, CaseTable):
        return cases
    if isinstance(cases, Mapping) or hasattr(cases, "__arrow_c_stream__"):
        return case_table(cases)
    if not isinstance(cases, Iterable) or isinstance(cases, str):
        raise SpecError(f"{question}: takes a case, several, a table or a workload, got {cases!r}")
    return table_of_cases(list(cases))


def table_of_cases(cases: Sequence[Any]) -> CaseTable:
    """Return the table that `cases` make, row by row.

    >>> from nearpeak.ops import case
    >>> table_of_cases([case("gemm", m=1, n=4, k=8, dtype="bf16")]).row_count
    1
    """
    for number, item in enumerate(cases, start=1):
        if not isinstance(item, Case):
            raise SpecError(f"cases: {shown(item)}, number {number}, is no Case; make one with nearpeak.case(…)")
    if not cases:
        raise SpecError("cases: none are given; give at least one")
    records = [case.record() for case in cases]
    names = dict.fromkeys(name for record in records for name in record)
    return case_table({name: [record.get(name) for record in records] for name in names})


def unused(signature: Signature, columns: Collection[str]) -> str:
    """Return in words which columns an operator does not take, where one of the axes that it needs is no column.

    >>> unused(OPS["gemm"].signatures["forward"], ["op", "dtype", "mm", "n", "k", "time_us"])
    "; columns that gemm does not take: 'mm' (did you mean 'm'?), 'time_us'"
    """
    needed = set(signature.axes).difference(signature.defaults, signature.same, columns)
    extra = [name for name in columns if "." not in name and name not in (*signature.names(), *RESERVED)]
    if not needed or not extra:
        return ""
    near = {name: difflib.get_close_matches(name, needed, n=1) for name in extra}
    ordered = sorted(extra, key=lambda name: not near[name])
    described = [f"{name!r} (did you mean {near[name][0]!r}?)" if near[name] else repr(name) for name in ordered]
    more = f" and {len(described) - _SHOWN} more" if len(described) > _SHOWN else ""
    return f"; columns that {signature.op} does not take: {', '.join(described[:_SHOWN])}{more}"


def _refuse_near_misses(extra: tuple[str, ...], known: set[str]) -> None:
    """Refuse a column that is passed through but looks like a misspelt axis."""
    for name in extra:
        if "." in name:
            continue  # how an input lies in memory, which no bound depends on
        close = difflib.get_close_matches(name, [axis for axis in known if len(axis) > 2], n=1, cutoff=0.75)
        if close:
            raise SpecError(f"table: column {name!r} is no axis of the operators here; did you mean {close[0]!r}?")


def _groups_of(
    signature: Signature, phase: str, rows: Any, columns: Mapping[str, Any], known: set[str], count: int
) -> list[CaseGroup]:
    """Return the groups of one operator and phase: one per combination of formats and attributes."""
    accepted = signature.names()
    for name in sorted(known.difference(accepted).intersection(columns)):
        row = first_filled(columns[name], rows)
        if row is not None:
            raise SpecError(f"table: row {row + 1}: {signature.op} has no axis {name!r}; leave the cell blank")
    choices = {name: columns[name] for name in (*signature.dtypes, *signature.attributes) if name in columns}
    groups = []
    for values, part in grouped(choices, count, rows):
        chosen = {name: value for name, value in zip(choices, values, strict=True) if not is_blank(value)}
        groups.append(_group(signature, phase, part, columns, chosen))
    return groups


def _group(
    signature: Signature, phase: str, rows: Any, columns: Mapping[str, Any], choices: Mapping[str, Any]
) -> CaseGroup:
    """Return one group: formats and attributes from `choices`, axes from the columns, blanks filled."""
    read = {name: extents(signature.op, name, columns[name], rows) for name in signature.axes if name in columns}
    axes = {name: value for name, value in read.items() if not (isinstance(value, int) and value == BLANK)}
    arrays = {name: value for name, value in axes.items() if not isinstance(value, int)}
    first = 0 if rows is None else int(rows[0])
    firsts = {name: int(value[0]) for name, value in arrays.items() if len(value) and int(value[0]) != BLANK}
    plain = {name: value for name, value in axes.items() if isinstance(value, int)}
    probe = _probe(signature, phase, {**plain, **firsts, **choices}, (first, columns))
    filled: dict[str, Any] = dict(probe.axes) | axes
    for name in signature.axes:
        filled[name] = _filled(signature, name, filled, name in axes, rows)
    return CaseGroup(
        op=signature.op, phase=phase, axes=filled, rows=rows,
        dtypes=dict(probe.dtypes), attributes=dict(probe.attributes),
    )  # fmt: skip


def _filled(signature: Signature, name: str, axes: Mapping[str, Any], is_column: bool, rows: Any) -> Any:
    """Return an axis with its blanks filled: by the axis that it repeats, or by its default."""
    value, other = axes[name], signature.same.get(name)
    if not is_column:
        return axes[other] if other is not None else value
    if isinstance(value, int) or not (value == BLANK).any():
        return value
    instead = axes[other] if other is not None else signature.defaults.get(name)
    if instead is None:
        blank = int(np.argmax(value == BLANK))
        row = blank if rows is None else int(rows[blank])
        raise SpecError(f"table: row {row + 1}: {signature.op}: axis {name!r} is blank and has no default")
    return np.where(value == BLANK, instead, value)


def _probe(signature: Signature, phase: str, arguments: dict[str, Any], place: tuple[int, Collection[str]]) -> Case:
    """Return the first case of a group, which provides defaults and finds errors.

    Args:
        place: its row, and the columns of the table.
    """
    row, columns = place
    typed = {name: value.item() if isinstance(value, np.generic) else value for name, value in arguments.items()}
    try:
        return signature.case(phase, typed)
    except SpecError as error:
        raise type(error)(f"table: row {row + 1}: {error}{unused(signature, columns)}") from None
