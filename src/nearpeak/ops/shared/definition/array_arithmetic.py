"""Integer arithmetic that works on single numbers and on NumPy columns alike."""

from math import gcd
from typing import Any

import numpy as np


def minimum(left: int, right: int) -> int:
    """Return the smaller, element by element.

    >>> minimum(3, 2)
    2
    """
    if _plain(left) and _plain(right):
        return min(left, right)
    return _array(np.minimum(left, right))


def maximum(left: int, right: int) -> int:
    """Return the larger, element by element.

    >>> maximum(3, 2)
    3
    """
    if _plain(left) and _plain(right):
        return max(left, right)
    return _array(np.maximum(left, right))


def ceil_div(left: int, right: int) -> int:
    """Return left / right rounded up.

    >>> ceil_div(7, 2)
    4
    """
    return -(-left // right)


def greatest_common_divisor(left: int, right: int) -> int:
    """Return the largest number that divides both.

    >>> greatest_common_divisor(12, 8)
    4
    """
    if _plain(left) and _plain(right):
        return gcd(left, right)
    return _array(np.gcd(left, right))


def where(condition: bool, yes: int, no: int) -> int:
    """Return `yes` where the condition holds, else `no`.

    >>> where(True, 1, 2)
    1
    """
    if _plain(condition):
        return yes if condition else no
    return _array(np.where(condition, yes, no))


def in_wide_integers(array: Any) -> Any:
    """Return whole numbers in int64, in which no sum of products of narrow ones passes the largest; others as they are.

    >>> in_wide_integers(np.full(3, 100, np.int8)).sum()
    np.int64(300)
    """
    return array.astype(np.int64) if array.dtype.kind in "iu" else array


def unless_empty(extent: int, amount: int) -> int:
    """Return `amount`, or 0 where `extent` is 0: work on nothing costs nothing.

    >>> unless_empty(3, 8), unless_empty(0, 8)
    (8, 0)
    """
    return where(extent == 0, 0, amount)


def _plain(value: Any) -> bool:
    """Return whether a value is a Python number, as the rules' annotations promise; tables send arrays instead."""
    return isinstance(value, int)


def _array(values: Any) -> int:
    """Return the array under the annotation of the rules."""
    column: int = values
    return column
