"""A table of cases as columns, grouped so that each rule runs once per group on whole arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np

from nearpeak.core.case import Case
from nearpeak.errors import SpecError
from nearpeak.ops import OPS
from nearpeak.ops._operator import Signature, unknown_axis

RESERVED = ("op", "phase")
_BLANK = (None, "")


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
        found: list[Case | None] = [None] * self.row_count
        for group in self.groups:
            positions = range(self.row_count) if group.rows is None else group.rows
            for index, row in enumerate(positions):
                found[int(row)] = group.case(index)
        return [case for case in found if case is not None]


def case_table(columns: Mapping[str, Any]) -> CaseTable:
    """Return the table that `columns` state: `op`, `dtype`, the operators' axes, optionally `phase`.

    A column is one value for all rows or a sequence; a blank cell takes the operator's default.

    Raises:
        SpecError: a column is missing or of another length, or a cell is wrong; row and column are named.

    >>> case_table({"op": "gemm", "dtype": "bf16", "m": [1, 2], "n": 4, "k": 8}).row_count
    2
    """
    if "op" not in columns:
        raise SpecError(f"table: column 'op' is missing; it has {', '.join(columns)}")
    row_count = _row_count(columns)
    groups: list[CaseGroup] = []
    for (op, phase), rows in _grouped({name: columns.get(name) for name in RESERVED}, row_count):
        operator = OPS[str(op)]
        operator.rule(str(phase or "forward"))
        signature = operator.signatures[str(phase or "forward")]
        groups += _groups_of(signature, str(phase or "forward"), columns, rows, row_count)
    known = {name for group in groups for name in (*group.axes, *group.dtypes, *group.attributes)}
    extra = tuple(name for name in columns if name not in known and name not in RESERVED)
    return CaseTable(row_count=row_count, groups=tuple(groups), passed_through=extra)


def _row_count(columns: Mapping[str, Any]) -> int:
    lengths = {name: len(column) for name, column in columns.items() if not _is_single(column)}
    if len(set(lengths.values())) > 1:
        raise SpecError(f"table: columns differ in length: {', '.join(f'{n} {c}' for n, c in lengths.items())}")
    return next(iter(lengths.values()), 1)


def _is_single(column: Any) -> bool:
    return isinstance(column, (str, int, float, bool)) or column is None


def _groups_of(
    signature: Signature, phase: str, columns: Mapping[str, Any], rows: Any, row_count: int
) -> list[CaseGroup]:
    """Return the groups of one operator and phase: one per combination of formats and attributes."""
    choices = {name: columns[name] for name in (*signature.dtypes, *signature.attributes) if name in columns}
    found = []
    for values, part in _grouped(choices, row_count, rows):
        given = {name: value for name, value in zip(choices, values, strict=True) if not _is_blank(value)}
        axes = {name: _extents(signature, name, columns[name], part) for name in signature.axes if name in columns}
        single: dict[str, Any] = {name: value for name, value in axes.items() if isinstance(value, int)}
        arrays = {name: value for name, value in axes.items() if not isinstance(value, int)}
        first = 0 if part is None else int(part[0])
        probe = _probe(signature, phase, single | {n: int(a[0]) for n, a in arrays.items() if len(a)} | given, first)
        filled = dict(probe.axes) | arrays
        for name, other in signature.same.items():
            if name not in columns and name in filled:
                filled[name] = filled[other]
        found.append(
            CaseGroup(
                op=signature.op, phase=phase, axes={name: filled[name] for name in signature.axes},
                dtypes=dict(probe.dtypes), attributes=dict(probe.attributes), rows=part,
            )
        )  # fmt: skip
    return found


def _probe(signature: Signature, phase: str, arguments: dict[str, Any], row: int) -> Case:
    """Return the first case of a group, which shows defaults and what is wrong."""
    typed = {name: _typed(signature, name, value) for name, value in arguments.items()}
    try:
        return signature.case(phase, typed)
    except SpecError as error:
        raise type(error)(f"table: row {row + 1}: {error}") from None


def _typed(signature: Signature, name: str, value: Any) -> Any:
    """Return a cell as the attribute's type: tables hold true and false as text."""
    if signature.attributes.get(name) is bool and not isinstance(value, bool):
        flags = {"true": True, "1": True, "false": False, "0": False}
        return flags.get(str(value).lower(), value)
    return value.item() if isinstance(value, np.generic) else value


def _grouped(columns: Mapping[str, Any], row_count: int, rows: Any = None) -> list[tuple[tuple[Any, ...], Any]]:
    """Return each combination of the columns' values with the rows that hold it; rows None means all."""
    values: list[tuple[Any, ...]] = [()]
    codes: Any = None
    for column in columns.values():
        distinct, code = _factorised(column, rows)
        if codes is None or code is None:
            values = [(*left, right) for left in values for right in distinct]
            codes = code if codes is None else codes
        else:
            values = [(*left, right) for left in values for right in distinct]
            codes = codes * len(distinct) + code
    if codes is None:
        return [(values[0], rows)] if row_count else []
    found = []
    for index, combination in enumerate(values):
        mask = codes == index
        if mask.all():
            return [(combination, rows)]
        if mask.any():
            found.append((combination, np.flatnonzero(mask) if rows is None else rows[mask]))
    return found


def _factorised(column: Any, rows: Any) -> tuple[list[Any], Any]:
    """Return the distinct values of a column and each row's position among them (None when there is one)."""
    if _is_single(column):
        return [column], None
    array = np.asarray(column) if not isinstance(column, np.ndarray) else column
    array = array if rows is None else array[rows]
    distinct: list[Any] = []
    codes = np.zeros(len(array), dtype=np.int64)
    left = np.arange(len(array))
    while len(left):
        value = array[left[0]]
        blank = _is_blank(value)
        same = np.array([_is_blank(x) for x in array[left]]) if blank else array[left] == value
        codes[left[same]] = len(distinct)
        distinct.append(None if blank else value)
        left = left[~same]
    return distinct, codes if len(distinct) > 1 else None


def _is_blank(value: Any) -> bool:
    return value in _BLANK or (isinstance(value, float) and isnan(value))


def _extents(signature: Signature, name: str, column: Any, rows: Any) -> Any:
    """Return an axis as an int or as an int64 array without blanks, wrong cells refused by row and column."""
    if _is_single(column):
        return column
    array = np.asarray(column) if not isinstance(column, np.ndarray) else column
    array = array if rows is None else array[rows]
    if array.dtype.kind in "iu":
        if array.size and int(array.min()) < 0:
            _refuse(signature, name, array, rows, int(np.argmax(array < 0)))
        return array if array.dtype == np.int64 else array.astype(np.int64)
    return _read_extents(signature, name, array, rows)


def _read_extents(signature: Signature, name: str, array: Any, rows: Any) -> Any:
    """Return extents that arrived as text, floats or objects; blanks take the default."""
    default = signature.defaults.get(name)
    found = np.empty(len(array), dtype=np.int64)
    for index, cell in enumerate(array.tolist()):
        if _is_blank(cell) and isinstance(default, int):
            found[index] = default
        elif _is_blank(cell):
            row = index if rows is None else int(rows[index])
            raise SpecError(f"table: row {row + 1}: {signature.op}: axis {name!r} is blank and has no plain default")
        else:
            number = _whole(cell)
            if number < 0:
                _refuse(signature, name, array, rows, index)
            found[index] = number
    return found


def _whole(cell: Any) -> int:
    """Return the cell as a whole number of at least 0, or -1 when it is none."""
    try:
        number = int(cell) if not isinstance(cell, float) else (int(cell) if cell == int(cell) else -1)
    except (ValueError, OverflowError):
        return -1
    return number if 0 <= number < 2**63 else -1


def _refuse(signature: Signature, name: str, array: Any, rows: Any, index: int) -> None:
    row = index if rows is None else int(rows[index])
    raise SpecError(
        f"table: row {row + 1}, column {name!r}: {array[index]!s} is not a whole number of at least 0 ({signature.op})"
    )


def check_columns(op: str, names: Sequence[str]) -> None:
    """Refuse names that are no parameter of operator `op`."""
    known = {name for signature in OPS[op].signatures.values() for name in signature.names()}
    for name in names:
        if name not in known and name not in RESERVED:
            raise unknown_axis(op, name, tuple(sorted(known)))
