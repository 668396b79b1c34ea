"""Arithmetic on a number or a column: single cases need no arrays and match table rows bit by bit."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from nearpeak.base.compilation import compiled

_LANES = 8
"""Sums that NumPy adds a row of at least as many numbers up in."""


def is_number(value: Any) -> bool:
    """Return whether a value is one number, not a column.

    >>> is_number(1), is_number(2.0), is_number(np.ones(1))
    (True, True, False)
    """
    return isinstance(value, (int, float))


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
    """Return `value` clipped between two ends, row by row.

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
    """Return `value` to a power, row by row; of a number what its row of a column gives, to the last bit.

    >>> raised(2.0, 3.0), raised(np.array([2.0, 3.0]), 3.0).tolist()
    (8.0, [8.0, 27.0])
    """
    if isinstance(value, np.ndarray):
        return _of_each(_powers, value, float(power))
    try:
        return math.pow(value, power)
    except (ValueError, OverflowError):  # NumPy returns infinity or NaN
        return float(np.power(float(value), power))


def exponential(value: Any) -> Any:
    """Return e to the power of `value`, row by row; of a number what its row of a column gives, to the last bit.

    >>> exponential(0.0), exponential(np.array([0.0, -np.inf])).tolist()
    (1.0, [1.0, 0.0])
    """
    if isinstance(value, np.ndarray):
        return _of_each(_exponentials, value)
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


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


def summed(values: Sequence[Any]) -> Any:
    """Return the sum of some numbers in the order in which NumPy adds up a row, to the last bit.

    >>> numbers = [0.1 * one for one in range(13)]
    >>> bool(summed(numbers) == np.array([numbers]).sum(1)[0])
    True
    """
    if len(values) < _LANES:
        return reduce(add, values)
    whole = len(values) // _LANES * _LANES
    a, b, c, d, e, f, g, h = (reduce(add, values[lane:whole:_LANES]) for lane in range(_LANES))
    return reduce(add, values[whole:], ((a + b) + (c + d)) + ((e + f) + (g + h)))


class Between:
    """Points between which a figure is taken to be straight."""

    __slots__ = ("columns", "lists")

    def __init__(self, places: Any, values: Any) -> None:
        self.columns, self.lists = (places, values), (places.tolist(), values.tolist())

    def at(self, place: Any) -> Any:
        """Return the figure at a place, row by row; of a number what NumPy gives a row, to the last bit.

        >>> points = Between(np.array([0.0, 1.0, 3.0]), np.array([0.0, 2.0, 3.0]))
        >>> points.at(0.5), points.at(np.array([0.5, 9.0])).tolist()
        (1.0, [1.0, 3.0])
        """
        return self._at(place) if is_number(place) else np.interp(place, *self.columns)

    def _at(self, place: float) -> float:
        places, values = self.lists
        after = bisect_right(places, place)
        if after == 0 or after == len(places):
            return float(values[0] if after == 0 else values[-1])
        start, end = values[after - 1], values[after]
        slope = (end - start) / (places[after] - places[after - 1])
        return float(slope * (place - places[after - 1]) + start)


def _of_each(function: Any, values: Any, *more: float) -> Any:
    """Return a function of each number by the C library: NumPy's own differs from `math` in the last digits."""
    flat, results = np.ascontiguousarray(values, dtype=np.float64).ravel(), np.empty(values.shape)
    function(flat, *more, results.reshape(-1))
    return results


@compiled()
def _powers(values: Any, power: float, results: Any) -> None:
    for row in range(len(values)):
        results[row] = math.pow(values[row], power)


@compiled()
def _exponentials(values: Any, results: Any) -> None:
    for row in range(len(values)):
        results[row] = math.exp(values[row])
