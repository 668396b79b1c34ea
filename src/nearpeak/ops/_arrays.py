"""Arithmetic that takes integers or NumPy arrays alike, so that one rule serves one case and a million."""

from collections.abc import Callable
from typing import Any

import numpy as np


def minimum(left: int, right: int) -> int:
    """Return the smaller, element by element.

    >>> minimum(3, 2)
    2
    """
    return min(left, right) if _plain(left, right) else _array(np.minimum(left, right))


def maximum(left: int, right: int) -> int:
    """Return the larger, element by element.

    >>> maximum(3, 2)
    3
    """
    return max(left, right) if _plain(left, right) else _array(np.maximum(left, right))


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
    if _plain(condition):
        return yes if condition else no
    return _array(np.where(condition, yes, no))


def per_row(function: Callable[..., int], *columns: int) -> int:
    """Return `function` of plain integers, evaluated once per distinct row when any column is an array.

    >>> per_row(lambda a, b: a * b, 3, 4)
    12
    """
    if _plain(*columns):
        return function(*columns)
    table = np.stack(np.broadcast_arrays(*columns), axis=-1).astype(np.int64)
    rows, inverse = np.unique(table.reshape(-1, len(columns)), axis=0, return_inverse=True)
    values: Any = np.array([function(*(int(x) for x in row)) for row in rows], dtype=np.int64)
    return _array(values[inverse].reshape(table.shape[:-1]))


def _plain(*values: Any) -> bool:
    """Say whether all values are Python numbers; the rules' annotations promise it, tables send arrays instead."""
    return all(isinstance(value, int) for value in values)


def _array(values: Any) -> int:
    """Return the array under the annotation of the rules."""
    found: int = values
    return found
