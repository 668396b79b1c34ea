"""Change-point detection in a series, robust to drift, outliers, two-state clocks and autocorrelation."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nearpeak.core.history.level_change import (
    CONFIRMED,
    LEAST_VALUES,
    NOT_FINITE,
    NOT_POSITIVE,
    SEARCHED,
    SUSPECT,
    TOO_SHORT,
    ChangePoint,
    Detection,
)
from nearpeak.judgement.level_search import HAZARD_RATIO, searched
from nearpeak.judgement.slope_test import without_slopes
from nearpeak.judgement.state_flips import StateFlips, shows_in_each_state, state_flips

DETECTOR, VERSION = "levels", 3
"""Name and version of the detector, stored with its change points."""
WINDOW_VALUES = 500
"""Newest values that are looked at."""
CONFIRMED_RATIO, SUSPECT_RATIO = 0.5, 0.1
"""Chance of a change within REACH values from which it is confirmed, or suspected."""
FLOOR_RATIO = 0.005
"""Smaller changes are not reported."""
REACH = 5
"""Values on each side over which the chance of one change is summed."""
CROWDED = 1.5
"""Chances over those values from which they hold two changes, each narrower than they are."""
SETTLED_RATIO = 0.9
"""Chance of one such change that its own values hold."""
MOST_PAIRS = 3
"""Pairs of states that are taken out of one series, one after the other."""
_NORMAL_99 = 2.5758


def changes(values: Sequence[float] | NDArray[np.float64]) -> Detection:
    """Return the changes of the level of one series, one value for each commit in the order of commits.

    The values are explained by a level that stays, drifts or jumps, by a second state that comes and goes, and by
    skewed noise with memory and spikes; the noise is chosen by likelihood, and the chance of a jump at each value is
    that given all values. A series that flips between two levels, however far apart, is searched as if it had one of
    them, and its flips are no changes; only a last stay that is longer than all before it in its state is one. Bad
    values give an outcome, never a change. Indices count in `values`, of which the last 500 are searched.

    Shapes: `values` [commits], positive: logarithms are compared.

    Source: the forward-backward recursions, Rabiner 1989, Proc. IEEE 77(2), section III.

    >>> jumped = [100.0, 100.2, 99.9, 100.1] * 10 + [104.9, 105.1, 105.2, 105.0] * 10
    >>> [(one.index, one.tier, round(one.time_ratio, 2)) for one in changes(jumped).points]
    [(40, 'confirmed', 1.05)]
    >>> changes([1.0, 2.0]).outcome
    'too-short'
    """
    y = np.asarray(values, dtype=np.float64)
    if y.size < LEAST_VALUES:
        return Detection(outcome=TOO_SHORT)
    if not np.all(np.isfinite(y)):
        return Detection(outcome=NOT_FINITE)
    if not np.all(y > 0):
        return Detection(outcome=NOT_POSITIVE)
    skipped = max(0, y.size - WINDOW_VALUES)
    x = np.log(y[skipped:])
    return Detection(outcome=SEARCHED, points=_found(x, skipped, MOST_PAIRS))


def _found(x: NDArray[np.float64], skipped: int, pairs: int) -> tuple[ChangePoint, ...]:
    """Return the changes of a series out of which `pairs` pairs of states at most are taken."""
    table = np.zeros((x.size, 3))
    searched(x, table)
    points = _points(x, table, skipped)
    flips = state_flips(x) if pairs and len(points) > 1 else None
    if flips is None:
        return points
    stay = _last_stay(flips, skipped)
    others = [
        point
        for point in _found(flips.single, skipped, pairs - 1)
        if shows_in_each_state(flips, point.index - skipped, math.log(point.time_ratio))
        and not any(abs(point.index - other.index) <= REACH for other in stay)
    ]
    return _counted(sorted((*others, *stay), key=lambda point: point.index), skipped, x.size)


def _last_stay(flips: StateFlips, skipped: int) -> list[ChangePoint]:
    """Return the last flip as a change where the habit of its state does not explain how long it has held."""
    chance = HAZARD_RATIO / (HAZARD_RATIO + flips.chance_ratio)
    if not flips.last_is_longest and chance < SUSPECT_RATIO:
        return []
    table = np.zeros((flips.single.size, 3))
    table[flips.last] = chance, flips.gap, flips.gap_variance
    return [_point(table, (flips.last, flips.last, flips.last, max(chance, SUSPECT_RATIO)), skipped, (0, 0))]


def _counted(points: Sequence[ChangePoint], skipped: int, size: int) -> tuple[ChangePoint, ...]:
    """Return `points` with the numbers of values between them."""
    edges = [skipped, *(point.index for point in points), skipped + size]
    return tuple(
        replace(point, before_count=point.index - before, after_count=after - point.index)
        for point, before, after in zip(points, edges, edges[2:], strict=False)
    )


def _points(x: NDArray[np.float64], table: NDArray[np.float64], skipped: int) -> tuple[ChangePoint, ...]:
    """Return the changes in order, with the values between them."""
    taken = {place[0]: place for place in _taken(table)}
    steps = without_slopes(x, list(taken))
    edges = [0, *steps, x.size]
    return tuple(
        _point(table, taken[place], skipped, (place - edges[i], edges[i + 2] - place)) for i, place in enumerate(steps)
    )


def _taken(table: NDArray[np.float64]) -> list[tuple[int, int, int, float]]:
    """Return place, its range and chance of every change, the surest first."""
    left = np.where(np.abs(table[:, 1]) >= math.log1p(FLOOR_RATIO), table[:, 0], 0.0)
    taken: list[tuple[int, int, int, float]] = []
    while True:
        sums = np.convolve(left, np.ones(2 * REACH + 1), "same")
        middle = int(np.argmax(sums))
        if sums[middle] < SUSPECT_RATIO:
            return taken
        reach = REACH
        if sums[middle] > CROWDED:
            middle, reach = _narrowed(left, middle)
        start = max(0, middle - reach)
        share = np.cumsum(left[start : middle + reach + 1])
        # The median, the 5 % and the 95 % quantile of the change's place.
        at, low, high = (start + int(np.searchsorted(share, part * share[-1])) for part in (0.5, 0.05, 0.95))
        taken.append((at, low, high, float(share[-1])))
        left[start : middle + reach + 1] = 0.0
        left[max(0, at - reach) : at + reach + 1] = 0.0


def _narrowed(left: NDArray[np.float64], middle: int) -> tuple[int, int]:
    """Return the likeliest place of one of several changes around `middle`, and the values each side that hold it."""
    start = max(0, middle - REACH)
    at = start + int(np.argmax(left[start : middle + REACH + 1]))
    held = (left[max(0, at - reach) : at + reach + 1].sum() for reach in range(REACH))
    return at, next((reach for reach, chance in enumerate(held) if chance >= SETTLED_RATIO), REACH)


def _point(
    table: NDArray[np.float64], place: tuple[int, int, int, float], skipped: int, counts: tuple[int, int]
) -> ChangePoint:
    index, low, high, chance = place
    effect, reach = float(table[index, 1]), _NORMAL_99 * math.sqrt(max(0.0, float(table[index, 2])))
    return ChangePoint(
        index=skipped + index, low_index=skipped + low, high_index=skipped + high,
        tier=CONFIRMED if chance >= CONFIRMED_RATIO and abs(effect) > reach else SUSPECT,
        probability_ratio=min(1.0, chance),
        time_ratio=math.exp(effect), low_ratio=math.exp(effect - reach), high_ratio=math.exp(effect + reach),
        before_count=counts[0], after_count=counts[1],
    )  # fmt: skip
