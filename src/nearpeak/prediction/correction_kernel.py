"""Compiled evaluation of residual-correction trees, block by block of rows."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
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
_LOWEST, _HIGHEST = (int(np.ceil(abs(one) / UNIT) * np.sign(one)) for one in LIMITS)
"""Sums of leaves from which on a bound holds."""


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
    ranges, leaf = np.empty((len(places), _BLOCK), np.uint8), np.empty((_TREES, _BLOCK), np.uint8)
    _walk(values, places, *_arrays(same, power), ranges, leaf, np.empty(_BLOCK, np.int32), ratios)
    return ratios


@lru_cache(maxsize=256)
def case_walk(same: "Same[Calibration]", names: tuple[str, ...], power: float) -> Callable[..., list[float]]:
    """Return a function from the inputs of one case to its correction, and its scale to the `power`.

    Args:
        names: what the values are, in this order.
    """
    trees = same.held.correction or _NO_TREES, same.held.scale or _NO_TREES
    first, second = (_arrays(Same(ensemble), raised) for ensemble, raised in zip(trees, (1.0, power), strict=True))
    places = np.concatenate([_places(Same(ensemble), names) for ensemble in trees])
    borders, starts = np.append(first[0], second[0]), np.append(first[1], second[1][1:] + first[1][-1])
    splits, leaves = np.append(first[2], second[2], 0), np.append(first[3], second[3], 0)
    splits[len(first[2]) :, :, 0] += np.uint8(len(trees[0].columns))
    factors, count, ranges = np.array([first[4], second[4]]), len(first[2]), np.empty(len(places), np.uint8)
    seen_count, pack_into = len(names), Struct(f"{len(names)}f").pack_into

    def walk(values: Sequence[float]) -> list[float]:
        seen: Any = np.empty(seen_count, np.float32)
        ratios = np.empty(2)
        try:
            pack_into(seen, 0, *values)  # half the time that NumPy takes
        except OverflowError:
            seen[:] = values
        _walk_case(seen, places, borders, starts, splits, leaves, factors, count, ranges, ratios)
        factors_of_both: list[float] = ratios.tolist()
        return factors_of_both

    return walk


@partial(compiled_exactly, owned=False)
def _walk_case(
    values: Any, places: Any, borders: Any, starts: Any, splits: Any, leaves: Any, factors: Any, count: int,
    ranges: Any, ratios: Any,
) -> None:  # fmt: skip
    """Write the factors of one case by the first `count` trees and by the others, one tree after the other."""
    for column in range(places.shape[0]):
        above, value = np.int64(0), values[places[column]]
        for border in range(starts[column], starts[column + 1]):
            above += np.int64(value > borders[border])
        ranges[column] = above
    for part in range(2):
        total = 0
        for tree in range(0 if part == 0 else count, count if part == 0 else splits.shape[0]):
            leaf = np.int64(0)
            for level in range(DEPTH):
                leaf = leaf << 1 | np.int64(ranges[splits[tree, level, 0]] > splits[tree, level, 1])
            total += leaves[tree, leaf]
        ratios[part] = factors[part, min(max(total, _LOWEST), _HIGHEST) - _LOWEST]


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


@partial(compiled_exactly, owned=False)
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


@partial(compiled_exactly, owned=False)
def _rank(values: Any, borders: Any, sums: Any, ranges: Any) -> None:
    """Write the number of borders below each value; NaN has none."""
    sums[:] = 0
    for border in borders:
        for row in range(values.shape[0]):
            sums[row] += np.int32(values[row] > border)
    for row in range(values.shape[0]):
        ranges[row] = sums[row]


@partial(compiled_exactly, owned=False)
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


@partial(compiled_exactly, owned=False)
def _add(rows: int, leaves: Any, leaf: Any, sums: Any) -> None:
    """Add up the leaves of the trees that are walked together."""
    a, b, c, d = leaves[0], leaves[1], leaves[2], leaves[3]
    p, q, r, s = leaf[0], leaf[1], leaf[2], leaf[3]
    for row in range(rows):
        sums[row] += np.int32(a[p[row]]) + np.int32(b[q[row]]) + np.int32(c[r[row]]) + np.int32(d[s[row]])
