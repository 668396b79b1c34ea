"""The valid rows of a table of cases, and the reason for each refused row."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import dtype_of
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.ops import OPS
from nearpeak.ops.shared.tables.case_table import CaseTable, case_table, check_named
from nearpeak.ops.shared.tables.cells import columns_of, grouped, is_blank, is_single, row_count

_PLACE = re.compile(r"^table: (row \d+(, |: ))?")
_COLUMN = re.compile(r"column '([^']+)':? ?")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsableTable:
    """The cases of a table that can be read."""

    table: CaseTable
    """The usable rows, in their order."""
    rows: Any
    """Position of each in the original table."""
    refused: Mapping[int, tuple[str, str]]
    """Column at fault (empty where it is not one alone) and reason by position of the other rows."""


def usable_table(columns: Mapping[str, Any]) -> UsableTable:
    """Return the rows of a table that state a case, and why the others do not.

    Raises:
        SpecError: the table itself is wrong, as for `usable_rows`, or no row is usable.

    >>> found = usable_table({"op": "gemm", "dtype": ["bf16", "bf61"], "m": [1, 2], "n": 4, "k": 8})
    >>> found.rows.tolist(), found.refused[1][0]
    ([0], 'dtype')
    """
    usable = usable_rows(columns)
    if len(usable.rows):
        return usable
    (row, (column, text)), count = min(usable.refused.items()), len(usable.refused)
    place = f"row {row + 1}{f', column {column!r}' if column else ''}: {text}"
    raise SpecError(f"table: {place}" if count == 1 else f"table: none of its {count} rows is a case; {place}")


def usable_rows(columns: Mapping[str, Any]) -> UsableTable:
    """Return the rows of a table that state a case, which may be none, and why the others do not.

    Raises:
        SpecError: the table itself is wrong (no column op, a misspelt one, columns of different lengths).

    >>> usable_rows({"op": ["gemm"], "dtype": ["bf61"], "m": [1], "n": [4], "k": [8]}).rows.tolist()
    []
    """
    try:
        table = case_table(columns)
        return UsableTable(table=table, rows=np.arange(table.row_count), refused={})
    except NearpeakError as error:
        whole = error
    plain = columns_of(columns)
    count = row_count(plain)
    if "op" not in plain or not count:
        raise whole
    refused = dict(_unknown_names(plain, count))
    left = np.array([row for row in range(count) if row not in refused], dtype=np.int64)
    for row, problem in _bad_rows(plain, left):
        text = _PLACE.sub("", str(problem))
        column = _COLUMN.match(text)
        refused[row] = (column.group(1), text[column.end() :]) if column else ("", text)
    rows = np.array([row for row in range(count) if row not in refused], dtype=np.int64)
    if not len(rows) and str(whole).startswith("table: column "):  # what holds for all rows names none
        raise whole
    table = case_table(_chosen(plain, rows)) if len(rows) else CaseTable(row_count=0, groups=())
    return UsableTable(table=table, rows=rows, refused=dict(sorted(refused.items())))


def _unknown_names(columns: Mapping[str, Any], count: int) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield the rows whose operator or format is unknown, all rows of a name at once."""
    formats = [name for name in columns if name == "dtype" or name.endswith("_dtype")]
    for name in ("op", *formats):
        for (value,), rows in grouped({name: columns[name]}, count):
            try:
                if name == "op":
                    check_named(value)
                    OPS[str(value)]
                elif not is_blank(value):
                    dtype_of(str(value))
            except NearpeakError as error:
                text = str(error).removeprefix("op " if name == "op" else "dtype ")  # the column is named beside it
                yield from ((int(row), (name, text)) for row in (range(count) if rows is None else rows))


def _bad_rows(columns: Mapping[str, Any], rows: Any) -> Iterator[tuple[int, NearpeakError]]:
    """Yield the rows that are no case, found by halving: few bad rows among many cost few readings."""
    if not len(rows):
        return
    try:
        case_table(_chosen(columns, rows))
    except NearpeakError as error:
        if len(rows) == 1:
            yield int(rows[0]), error
            return
        middle = len(rows) // 2
        yield from _bad_rows(columns, rows[:middle])
        yield from _bad_rows(columns, rows[middle:])


def _chosen(columns: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    """Return some rows; columns that are blank in all of them belong to the operators of others."""
    selected = {name: column if is_single(column) else column[rows] for name, column in columns.items()}
    selected = {
        name: column
        for name, column in selected.items()
        if name == "op"
        or is_single(column)
        or column.dtype.kind not in "OUf"
        or not all(map(is_blank, column.tolist()))
    }
    return (
        selected
        if any(not is_single(c) for c in selected.values())
        else selected | {"op": np.repeat(selected["op"], len(rows))}
    )
