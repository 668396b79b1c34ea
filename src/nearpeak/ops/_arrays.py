"""Arithmetic that takes integers or NumPy arrays alike, so that one rule serves one case and a million."""

from collections.abc import Callable
from typing import Any

import numpy as np


def minimum(left: int, right: int) -> int:
    """Return the smaller, element by element.

    >>> minimum(3, 2)
    2
    """
    if isinstance(left, int) and isinstance(right, int):
        return min(left, right)
    return np.minimum(left, right)  # type: ignore[no-any-return]


def maximum(left: int, right: int) -> int:
    """Return the larger, element by element.

    >>> maximum(3, 2)
    3
    """
    if isinstance(left, int) and isinstance(right, int):
        return max(left, right)
    return np.maximum(left, right)  # type: ignore[no-any-return]


def ceil_div(left: int, right: int) -> int:
    """Return left / right rounded up.

    >>> ceil_div(7, 2)
    4
    """
    return -(-left // right)


def where(condition: bool, yes: int, no: int) -> int:
    """Return `yes` where the condition holds, else `no`.

    >>> where(True, 1, 2)
    1
    """
    if isinstance(condition, (bool, int)):
        return yes if condition else no
    return np.where(condition, yes, no)  # type: ignore[no-any-return]


def per_row(function: Callable[..., int], *columns: int) -> int:
    """Return `function` of plain integers, evaluated once per distinct row when any column is an array.

    >>> per_row(lambda a, b: a * b, 3, 4)
    12
    """
    if all(isinstance(column, int) for column in columns):
        return function(*columns)
    table = np.stack(np.broadcast_arrays(*columns), axis=-1).astype(np.int64)
    rows, inverse = np.unique(table.reshape(-1, len(columns)), axis=0, return_inverse=True)
    values: Any = np.array([function(*(int(x) for x in row)) for row in rows], dtype=np.int64)
    return values[inverse].reshape(table.shape[:-1])  # type: ignore[no-any-return]
