"""Functions of columns by the C library, as `math` has them: NumPy's own give other last digits, and one is slow."""

import math
from typing import Any

import numpy as np

from nearpeak.base.compilation import compiled_as_written


def powers(values: Any, power: float) -> Any:
    """Return each of an array of numbers to a power.

    >>> powers(np.array([[2.0], [3.0]]), 3.0).tolist()
    [[8.0], [27.0]]
    """
    return _of_each(_powers, values, float(power))


def exponentials(values: Any) -> Any:
    """Return e to the power of each of an array of numbers.

    >>> exponentials(np.array([1.0]))[0] == math.exp(1.0)
    np.True_
    """
    return _of_each(_exponentials, values)


def _of_each(function: Any, values: Any, *more: float) -> Any:
    flat, found = np.ascontiguousarray(values, dtype=np.float64).ravel(), np.empty(values.shape)
    function(flat, *more, found.reshape(-1))
    return found


@compiled_as_written
def _powers(values: Any, power: float, found: Any) -> None:
    for row in range(len(values)):
        found[row] = math.pow(values[row], power)


@compiled_as_written
def _exponentials(values: Any, found: Any) -> None:
    for row in range(len(values)):
        found[row] = math.exp(values[row])
