"""The compiled part of corrections: interpolation between knots."""

import math
from typing import Any

from nearpeak.compiled import compiled
from nearpeak.predict._correction import COUNTS, STARTS, STEP

_START_M, _START_N, _START_K = STARTS
_COUNT_M, _COUNT_N, _COUNT_K = COUNTS


@compiled
def _place(extent: float, start: float, count: int) -> tuple[int, float]:
    """Return the knot below an extent and the share of the way to the next one."""
    along = min(max((math.log2(extent) - start) * (1.0 / STEP), 0.0), count - 1.0)
    knot = min(int(along), count - 2)
    return knot, along - knot


@compiled
def correction_at(values: Any, m: float, n: float, k: float) -> float:
    """Return the logarithm of measured over predicted time between the eight knots around a case."""
    i, x = _place(m, _START_M, _COUNT_M)
    j, y = _place(n, _START_N, _COUNT_N)
    h, z = _place(k, _START_K, _COUNT_K)
    corner = (i * _COUNT_N + j) * _COUNT_K + h
    row, sheet = corner + _COUNT_K, corner + _COUNT_N * _COUNT_K
    both = sheet + _COUNT_K
    near = (1 - y) * (values[corner] * (1 - z) + values[corner + 1] * z) + y * (
        values[row] * (1 - z) + values[row + 1] * z
    )
    far = (1 - y) * (values[sheet] * (1 - z) + values[sheet + 1] * z) + y * (
        values[both] * (1 - z) + values[both + 1] * z
    )
    return float((1 - x) * near + x * far)
