"""Compiled evaluation of residual-correction trees, block by block of rows."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from struct import Struct
from typing import Any

import numpy as np

from nearpeak.base.compilation import compiled_exactly
from nearpeak.base.identity_key import Same
from nearpeak.core.answers.prediction import Calibration, Correction
from nearpeak.prediction.correction_layout import DEPTH, LEAF_COUNT, LIMITS, UNIT

_BLOCK = 512
"""Rows whose ranges and leaves stay in a core's first cache."""
_TREES = 4
"""Trees that are walked together, so that sums are loaded and stored once for all of them."""
_LOWEST, _HIGHEST = (int(np.ceil(abs(limit) / UNIT) * np.sign(limit)) for limit in LIMITS)
"""Sums of leaves from which on a bound holds."""


_LEVEL_BITS = 2 ** np.arange(DEPTH - 1, -1, -1)
"""What a step to the right at each level adds to the number of a leaf."""

_PLAIN_CASES = 10_000
"""Cases that are walked one by one in less time than compiling takes, 30 µs each."""
_NO_TREES = Correction(columns=(), edges=(), splits=b"", leaves=b"")
"""Empty trees."""


def ratio(correction: Correction, names: Sequence[str], values: Any, power: float = 1.0) -> Any:
    """Return the factor of each row.

    Args:
        names: what the rows of `values` are; more than the correction looks at is well.
        values: one row for each name, in 32 bits: half of what borders take otherwise.
        power: what the factor is raised to.
    """
    ratios, same = np.empty(values.shape[1]), Same(correction)
    places = _places(same, tuple(names))
    if _walk.is_plain_for(len(ratios)):
        trees = _CaseTrees(same, tuple(names), power)
        ratios[:] = [trees.factor(case_values) for case_values in values.T.tolist()]
        return ratios
    ranges, leaf = np.empty((len(places), _BLOCK), np.uint8), np.empty((_TREES, _BLOCK), np.uint8)
    _walk.machine_code(values, places, *_arrays(same, power), ranges, leaf, np.empty(_BLOCK, np.int32), ratios)
    return ratios


@lru_cache(maxsize=256)
def case_walk(same: "Same[Calibration]", names: tuple[str, ...], power: float) -> Callable[..., list[float]]:
    """Return a function from the inputs of one case to its correction, and its scale to the `power`.

    Args:
        names: what the values are, in this order.
    """
    ensembles = tuple(
        _CaseTrees(Same(ensemble), names, exponent)
        for ensemble, exponent in zip(
            (same.held.correction or _NO_TREES, same.held.scale or _NO_TREES), (1.0, power), strict=True
        )
    )
    as_floats = Struct(f"{len(names)}f")

    def walk(values: Sequence[float]) -> list[float]:
        try:
            rounded = as_floats.unpack(as_floats.pack(*values))  # to 32 bits, faster than NumPy
        except OverflowError:
            rounded = tuple(np.array(values, np.float32).tolist())
        return [ensemble.factor(rounded) for ensemble in ensembles]

    return walk


class _CaseTrees:
    """Trees of one correction, walked for one case at a time."""

    def __init__(self, same: "Same[Correction]", names: tuple[str, ...], power: float) -> None:
        borders, starts, splits, leaves, factors = _arrays(same, power)
        columns = [borders[start:end].tolist() for start, end in pairwise(starts.tolist())]
        self.columns = list(zip(_places(same, names).tolist(), columns, strict=True))
        self.split_column, self.split_range = splits[:, :, 0].astype(np.intp), splits[:, :, 1]
        self.leaves, self.first_leaf = leaves.reshape(-1), LEAF_COUNT * np.arange(len(leaves))
        self.factors: list[float] = factors.tolist()

    def factor(self, values: Sequence[float]) -> float:
        """Return the factor of a case with these inputs; NaN lies below all borders."""
        if not self.columns:
            return self.factors[-_LOWEST]
        ranges = np.array([bisect_left(borders, values[place]) for place, borders in self.columns], np.uint8)
        leaf = (ranges[self.split_column] > self.split_range) @ _LEVEL_BITS
        total = int(self.leaves[self.first_leaf + leaf].sum(dtype=np.int64))
        return self.factors[min(max(total, _LOWEST), _HIGHEST) - _LOWEST]


@lru_cache(maxsize=256)
def _places(same: "Same[Correction]", names: tuple[str, ...]) -> Any:
    """Return the place among `names` of each tree input."""
    return np.array([names.index(name) for name in same.held.columns], dtype=np.int64)


@lru_cache(maxsize=256)
def _arrays(same: "Same[Correction]", power: float) -> tuple[Any, Any, Any, Any, Any]:
    """Return borders, where those of each column start, questions, leaves, and the factor of each sum of leaves.

    Trees that say nothing fill up the last few that are walked together.
    """
    correction = same.held
    starts = np.cumsum([0, *(len(ends) for ends in correction.edges)])
    borders = np.array([border for ends in correction.edges for border in ends], dtype=np.float32)
    count = len(correction.leaves) // LEAF_COUNT
    splits = np.zeros((-(-count // _TREES) * _TREES, DEPTH, 2), dtype=np.uint8)
    splits[:count] = np.frombuffer(correction.splits, np.uint8).reshape(-1, DEPTH, 2)
    leaves = np.zeros((len(splits), LEAF_COUNT), dtype=np.int8)
    leaves[:count] = np.frombuffer(correction.leaves, np.int8).reshape(-1, LEAF_COUNT)
    factors = np.exp(power * np.clip(UNIT * np.arange(_LOWEST, _HIGHEST + 1), *LIMITS))
    return borders, starts, splits, leaves, factors


@compiled_exactly(_PLAIN_CASES, owned=False)
def _walk(
    values: Any, places: Any, borders: Any, starts: Any, splits: Any, leaves: Any, factors: Any,
    ranges: Any, leaf: Any, sums: Any, ratios: Any,
) -> None:  # fmt: skip
    """Write the factor of each row."""
    for start in range(0, ratios.shape[0], _BLOCK):
        rows = min(_BLOCK, ratios.shape[0] - start)
        for column in range(places.shape[0]):
            ends = borders[starts[column] : starts[column + 1]]
            _rank(values[places[column], start : start + rows], ends, sums, ranges[column])
        sums[:] = 0
        for tree in range(0, splits.shape[0], _TREES):
            for place in range(_TREES):
                _fall(rows, ranges, splits[tree + place], leaf[place])
            _add(rows, leaves[tree : tree + _TREES], leaf, sums)
        for row in range(rows):
            ratios[start + row] = factors[min(max(sums[row], _LOWEST), _HIGHEST) - _LOWEST]


@compiled_exactly(owned=False)
def _rank(values: Any, borders: Any, sums: Any, ranges: Any) -> None:
    """Write the number of borders below each value; NaN has none."""
    sums[:] = 0
    for border in borders:
        for row in range(values.shape[0]):
            sums[row] += np.int32(values[row] > border)
    for row in range(values.shape[0]):
        ranges[row] = sums[row]


@compiled_exactly(owned=False)
def _fall(rows: int, ranges: Any, questions: Any, leaf: Any) -> None:
    """Write the leaf of one tree that each row falls into."""
    a, b, c = ranges[questions[0, 0]], ranges[questions[1, 0]], ranges[questions[2, 0]]
    d, e, f = ranges[questions[3, 0]], ranges[questions[4, 0]], ranges[questions[5, 0]]
    i, j, k, x, y, z = (
        questions[0, 1],
        questions[1, 1],
        questions[2, 1],
        questions[3, 1],
        questions[4, 1],
        questions[5, 1],
    )
    for row in range(rows):
        high_bits = np.uint8(a[row] > i) << 5 | np.uint8(b[row] > j) << 4 | np.uint8(c[row] > k) << 3
        leaf[row] = np.uint8(high_bits | np.uint8(d[row] > x) << 2 | np.uint8(e[row] > y) << 1 | np.uint8(f[row] > z))


@compiled_exactly(owned=False)
def _add(rows: int, leaves: Any, leaf: Any, sums: Any) -> None:
    """Add up the leaves of the trees that are walked together."""
    a, b, c, d = leaves[0], leaves[1], leaves[2], leaves[3]
    p, q, r, s = leaf[0], leaf[1], leaf[2], leaf[3]
    for row in range(rows):
        sums[row] += np.int32(a[p[row]]) + np.int32(b[q[row]]) + np.int32(c[r[row]]) + np.int32(d[s[row]])
