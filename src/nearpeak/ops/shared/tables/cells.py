"""Table columns: blank cells, whole numbers with errors naming row and column, rows grouped by equal values."""

import re
from collections.abc import Mapping
from decimal import Decimal
from math import isnan
from typing import Any

import numpy as np

from nearpeak.errors import SpecError, shown

_BLANK_TEXT = ("", None)
BLANK = -1
"""Stands in an integer column where the cell was blank."""


def columns_of(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return each column as one plain value for all rows, or as a one-dimensional array."""
    return {name: _column(name, column) for name, column in columns.items()}


def row_count(columns: Mapping[str, Any]) -> int:
    """Return the number of rows, on which all arrays must agree."""
    lengths = {name: len(column) for name, column in columns.items() if not is_single(column)}
    if len(set(lengths.values())) > 1:
        raise SpecError(f"table: columns differ in length: {', '.join(f'{n} {c}' for n, c in lengths.items())}")
    return next(iter(lengths.values()), 1)


def is_single(column: Any) -> bool:
    """Return whether the column is one value for all rows."""
    return not isinstance(column, np.ndarray)


def is_blank(value: Any) -> bool:
    """Return whether a cell is empty: no text, none, or not a number.

    >>> is_blank(""), is_blank(float("nan")), is_blank(0)
    (True, True, False)
    """
    return (isinstance(value, float) and isnan(value)) or (not isinstance(value, np.ndarray) and value in _BLANK_TEXT)


def grouped(columns: Mapping[str, Any], count: int, rows: Any = None) -> list[tuple[tuple[Any, ...], Any]]:
    """Return each combination of the columns' values with the rows that hold it; rows None means all."""
    values: list[tuple[Any, ...]] = [()]
    codes: Any = None
    for column in columns.values():
        distinct, code = _factorised(column, rows)
        values = [(*left, right) for left in values for right in distinct]
        if code is not None:
            codes = code if codes is None else codes * len(distinct) + code
    if codes is None:
        return [(values[0], rows)] if count else []
    groups = []
    for index, combination in enumerate(values):
        mask = codes == index
        if mask.all():
            return [(combination, rows)]
        if mask.any():
            groups.append((combination, np.flatnonzero(mask) if rows is None else rows[mask]))
    return groups


def extents(op: str, name: str, column: Any, rows: Any) -> Any:
    """Return an axis as an int or an int64 array, BLANK where a cell is empty; wrong cells are refused by row."""
    if is_single(column):
        number = BLANK if is_blank(column) else whole(column)
        if number is None:
            raise SpecError(f"table: column {name!r}: {shown(column)} is not a whole number of at least 0 ({op})")
        return number
    array = column if rows is None else column[rows]
    if array.dtype.kind in "iu":
        if array.size and (int(array.min()) < 0 or int(array.max()) > np.iinfo(np.int64).max):
            _refuse(op, name, array, rows, int(np.argmax((array < 0) | (array > np.iinfo(np.int64).max))))
        return array if array.dtype == np.int64 else array.astype(np.int64)
    numbers = [BLANK if is_blank(cell) else whole(cell) for cell in array.tolist()]
    if None in numbers:
        _refuse(op, name, array, rows, numbers.index(None))
    return np.array(numbers, dtype=np.int64)


def first_filled(column: Any, rows: Any) -> int | None:
    """Return the first of `rows` with a cell that is not blank; none for numeric columns and single values."""
    if is_single(column):
        return None
    array = column if rows is None else column[rows]
    if array.dtype.kind not in "OU":
        return None
    filled = [index for index, cell in enumerate(array.tolist()) if not is_blank(cell)]
    return None if not filled else (filled[0] if rows is None else int(rows[filled[0]]))


def _column(name: str, column: Any) -> Any:
    if isinstance(column, (str, int, float, bool)) or column is None:
        return column
    if isinstance(column, np.generic):
        return column.item()
    if isinstance(column, np.ma.MaskedArray):  # what lies under the mask is no value
        column = column.tolist()
    try:
        array = column if isinstance(column, np.ndarray) else _array(column)
    except ValueError:
        raise SpecError(
            f"table: column {name!r}: its cells are lists of different lengths; give single values"
        ) from None
    if array.ndim == 1:
        return array
    raise SpecError(f"table: column {name!r}: has {array.ndim} dimensions; give one value per row")


def _array(column: Any) -> Any:
    """Return a sequence as an array; text that is the same everywhere takes no room."""
    cells = list(column)
    try:
        distinct = set(cells) if cells and isinstance(cells[0], str) else None
    except TypeError:
        distinct = None  # cells that cannot be hashed are refused later
    if distinct is None:
        return np.asarray(cells)
    if len(distinct) == 1:
        return np.broadcast_to(np.array(cells[0]), len(cells))
    return np.array(cells, dtype=str if all(isinstance(cell, str) for cell in distinct) else object)


def _factorised(column: Any, rows: Any) -> tuple[list[Any], Any]:
    """Return the distinct values of a column and each row's position among them (None when there is one)."""
    if is_single(column):
        return [column], None
    if len(column) and column.strides == (0,):
        return [None if is_blank(column[0]) else column[0]], None
    array = column if rows is None else column[rows]
    firsts, codes = _first_seen(_keys(array))
    distinct = [None if is_blank(array[first]) else array[first] for first in firsts]
    return distinct, codes if len(distinct) > 1 else None


def _first_seen(keys: Any) -> tuple[list[int], Any]:
    """Return where each distinct key stands first, and each row's position among them; blank cells are one key."""
    firsts: list[int] = []
    codes = np.zeros(len(keys), dtype=np.int64)
    left = np.arange(len(keys))
    while len(left):
        blank = is_blank(keys[0])
        same = np.array([is_blank(cell) for cell in keys]) if blank else keys == keys[0]
        if firsts:
            codes[left[same]] = len(firsts)
        firsts.append(int(left[0]))
        left, keys = left[~same], keys[~same]
    return firsts, codes


def _keys(array: Any) -> Any:
    """Return keys that are equal where the cells are: short text as integers, which compare much faster.

    >>> keys = _keys(np.array(["bf16", "fp8_e4m3fnuz", "bf16"]))
    >>> (keys == keys[0]).tolist()
    [True, False, True]
    """
    if array.dtype.kind != "U" or not array.dtype.isnative or not array.size or not array.dtype.itemsize:
        return array
    letters = np.ascontiguousarray(array).view(np.uint32).reshape(len(array), -1)
    if letters.max() > np.iinfo(np.uint8).max:
        return array
    wide = -(-letters.shape[1] // 8) * 8
    packed = np.zeros((len(array), wide), dtype=np.uint8)
    packed[:, : letters.shape[1]] = letters
    first, *rest = packed.view(np.uint64).T
    keys = np.ascontiguousarray(first)
    for more in rest:
        (_, codes), (seen, other) = _first_seen(keys), _first_seen(np.ascontiguousarray(more))
        keys = codes * len(seen) + other
    return keys


_DECIMAL = re.compile(r"\s*\+?[0-9]{1,40}\.?[0-9]{0,40}([eE]\+?[0-9]{1,2})?\s*", re.ASCII)
"""How programs that know floats alone write whole numbers, 4096.0 and 4.096e3."""


def whole(cell: Any) -> int | None:
    """Return the cell as a whole number of at least 0, or none when it is not one.

    >>> whole("4096"), whole("4096.0"), whole("4.096e3"), whole("4096.5"), whole(4096.0)
    (4096, 4096, 4096, None, 4096)
    """
    if isinstance(cell, bool):
        return None
    if isinstance(cell, str) and not cell.strip().isdecimal() and _DECIMAL.fullmatch(cell):
        exactly = Decimal(cell.strip())
        cell = int(exactly) if exactly == exactly.to_integral_value() else ""
    try:
        number = int(cell)
    except (ValueError, OverflowError, TypeError):
        return None
    exact = not isinstance(cell, float) or cell == number
    return number if exact and 0 <= number < 2**63 else None


def _refuse(op: str, name: str, array: Any, rows: Any, index: int) -> None:
    row = index if rows is None else int(rows[index])
    raise SpecError(
        f"table: row {row + 1}, column {name!r}: {shown(array[index], str)} is not a whole number from 0 to 2^63 - 1 "
        f"({op})"
    )
