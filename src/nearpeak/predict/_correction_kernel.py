"""The compiled part of corrections: walking the trees, all rows at each level together."""

from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.compiled import compiled_exactly
from nearpeak.core.prediction import Correction
from nearpeak.predict._correction import DEPTH, LEAF_COUNT, LIMITS, UNIT
from nearpeak.predict.same import Same


def ratio(correction: Correction, values: Any, power: float = 1.0) -> Any:
    """Return the factor of each row.

    Args:
        power: what the factor is raised to.
        values: columns of the correction by rows, in 32 bits: half of what the borders take otherwise.
    """
    borders, starts, splits, leaves = _arrays(Same(correction))
    count = values.shape[1]
    ranges, leaf, total = np.empty(values.shape, np.uint8), np.empty(count, np.uint8), np.zeros(count, np.int32)
    _walk(values, borders, starts, splits, leaves, ranges, leaf, total)
    return np.exp(power * np.clip(UNIT * total, *LIMITS))


@lru_cache(maxsize=256)
def _arrays(same: "Same[Correction]") -> tuple[Any, Any, Any, Any]:
    correction = same.held
    starts = np.cumsum([0, *(len(one) for one in correction.edges)])
    borders = np.array([border for one in correction.edges for border in one], dtype=np.float32)
    splits = np.frombuffer(correction.splits, np.uint8).reshape(-1, DEPTH, 2)
    return borders, starts, splits, np.frombuffer(correction.leaves, np.int8).reshape(-1, LEAF_COUNT)


@compiled_exactly
def _walk(values: Any, borders: Any, starts: Any, splits: Any, leaves: Any, ranges: Any, leaf: Any, total: Any) -> None:
    """Add up the leaves that the rows fall into; NaN is above no border."""
    rows = values.shape[1]
    for column in range(values.shape[0]):
        for row in range(rows):
            ranges[column, row] = 0
        for place in range(starts[column], starts[column + 1]):
            border = borders[place]
            for row in range(rows):
                ranges[column, row] += np.uint8(values[column, row] > border)
    for tree in range(splits.shape[0]):
        for row in range(rows):
            leaf[row] = 0
        for level in range(splits.shape[1]):
            column, border = splits[tree, level, 0], splits[tree, level, 1]
            for row in range(rows):
                leaf[row] = np.uint8(leaf[row] << 1) | np.uint8(ranges[column, row] > border)
        for row in range(rows):
            total[row] += leaves[tree, leaf[row]]
