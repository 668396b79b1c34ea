"""Arithmetic that takes numbers or columns alike: one case costs no arrays, and gives what its row of a table does."""

import math
from typing import Any

import numpy as np


def larger(left: Any, right: Any) -> Any:
    """Return the larger, row by row.

    >>> larger(1.0, 2), larger(np.array([1.0, 3.0]), 2.0).tolist()
    (2, [2.0, 3.0])
    """
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return np.maximum(left, right)
    return right if right > left else left


def smaller(left: Any, right: Any) -> Any:
    """Return the smaller, row by row.

    >>> smaller(1.0, 2.0), smaller(np.array([1.0, 3.0]), 2.0).tolist()
    (1.0, [1.0, 2.0])
    """
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return np.minimum(left, right)
    return right if right < left else left


def clipped(value: Any, low: float, high: float) -> Any:
    """Return what is nearest to `value` between two ends, row by row.

    >>> clipped(3.0, 0.0, 1.0), clipped(np.array([-1.0, 0.5]), 0.0, 1.0).tolist()
    (1.0, [0.0, 0.5])
    """
    if isinstance(value, np.ndarray):
        return np.clip(value, low, high)
    return low if value < low else high if value > high else value


def chosen(condition: Any, yes: Any, no: Any) -> Any:
    """Return `yes` where the condition holds, else `no`, row by row.

    >>> chosen(True, 1.0, 2.0), chosen(np.array([True, False]), 1.0, 2.0).tolist()
    (1.0, [1.0, 2.0])
    """
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, no)
    return yes if condition else no


def raised(value: Any, power: float) -> Any:
    """Return `value` to a power, row by row; of a number what NumPy gives a row, to the last bit.

    >>> raised(2.0, 3.0), raised(np.array([2.0, 3.0]), 3.0).tolist()
    (8.0, [8.0, 27.0])
    """
    return np.power(value, power) if isinstance(value, np.ndarray) else float(np.power(value, power))


def rounded_up(value: Any) -> Any:
    """Return the next whole number, row by row.

    >>> rounded_up(1.5), rounded_up(np.array([1.5, 2.0])).tolist()
    (2.0, [2.0, 2.0])
    """
    return np.ceil(value) if isinstance(value, np.ndarray) else float(math.ceil(value))


def in_floats(value: Any) -> Any:
    """Return a number or a column as floats.

    >>> in_floats(3), in_floats([1, 2]).tolist()
    (3.0, [1.0, 2.0])
    """
    return float(value) if isinstance(value, (int, float)) else np.asarray(value, dtype=np.float64)
