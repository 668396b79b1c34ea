"""Clock adjustment: estimates the clock dependence of a history's times and rescales them to the usual clock."""

import itertools
import math
import statistics
from collections.abc import Sequence

import numpy as np

from nearpeak.errors import SpecError

LEAST_SPREAD = 1e-3
"""Clocks that scatter less than this within commits say nothing about their share."""

LEAST_STEP_RATIO = 0.005
"""Steps of the clock from commit to commit below this say nothing."""
LARGE_RATIO = 1 / 3
"""Steps below this part of the largest are clock noise and are not used."""
LEAST_STEPS = 2
"""Steps that the share is taken from: one alone may be a change of the code at the same commit."""


def clock_share(launches: Sequence[Sequence[tuple[float, float]]]) -> float | None:
    """Return the part of a change of the clock that shows in the time, 0 (memory) to 1; none where it is not known.

    The slope of the logarithms of time on clock within commits, over all of them, so that a change of the code is not
    taken for the clock's.

    Args:
        launches: for each commit, time in seconds and clock in Hz of each launch.

    Raises:
        SpecError: a time or clock is not positive and finite.

    >>> clock_share([[(1.0, 1.5e9), (1.02, 1.5e9 / 1.02)], [(2.0, 1.5e9), (2.04, 1.5e9 / 1.02)]])
    1.0
    """
    x, y = [], []
    for commit in launches:
        logs = _logs([value for pair in commit for value in pair]).reshape(-1, 2)
        if len(logs) > 1:
            y.append(logs[:, 0] - logs[:, 0].mean())
            x.append(logs[:, 1] - logs[:, 1].mean())
    clock = np.concatenate(x) if x else np.zeros(0)
    if clock.size == 0 or float(np.sqrt(np.mean(clock**2))) < LEAST_SPREAD:
        return None
    slope = float(clock @ np.concatenate(y) / (clock @ clock))
    return round(min(1.0, max(0.0, -slope)), 12)


def clock_share_of_steps(values: Sequence[float], clocks_hz: Sequence[float]) -> float | None:
    """Return the same out of the steps of the clock from commit to commit; none where it moved less than twice.

    For histories whose launches of one commit share a clock, so that `clock_share` cannot tell.

    It is the median over the large steps of the clock of how far the time moved the other way, so that a change of the
    code at one of them does not decide it.

    Shapes: `values`, `clocks_hz` [commits], positive.

    Source: the slope of Theil 1950 and Sen 1968, over neighbours alone.

    >>> clocks = [2e9] * 5 + [1.9e9] * 5 + [2e9] * 5
    >>> round(clock_share_of_steps([2e9 / one for one in clocks], clocks), 6), clock_share_of_steps([1.0] * 15, clocks)
    (1.0, 0.0)
    >>> clock_share_of_steps([1.0] * 3, [2e9] * 3) is None
    True
    """
    moves = [math.log(new / old) for old, new in itertools.pairwise(clocks_hz)]
    least = max(LEAST_STEP_RATIO, max(map(abs, moves), default=0.0) * LARGE_RATIO)
    steps = [
        -math.log(new / old) / move
        for (old, new), move in zip(itertools.pairwise(values), moves, strict=True)
        if abs(move) >= least
    ]
    if len(steps) < LEAST_STEPS:
        return None
    return min(1.0, max(0.0, statistics.median(steps)))


def at_usual_clock(values_s: Sequence[float], clocks_hz: Sequence[float], share_ratio: float) -> tuple[float, ...]:
    """Return the values as they would be at the median clock, where `share_ratio` of the clock shows in them.

    Raises:
        SpecError: unequal lengths, a share outside 0 to 1, or a value or clock that is not positive and finite.

    >>> [round(one, 3) for one in at_usual_clock([1.0, 1.0, 1.02], [1.53e9, 1.53e9, 1.5e9], 1.0)]
    [1.0, 1.0, 1.0]
    """
    if len(values_s) != len(clocks_hz) or not len(values_s):
        raise SpecError(f"clock: {len(values_s)} values and {len(clocks_hz)} clocks; each value needs its own")
    if not 0 <= share_ratio <= 1:
        raise SpecError(f"clock: share {share_ratio!r} is not between 0 and 1")
    clocks = _logs(clocks_hz)
    adjusted = np.exp(_logs(values_s) + share_ratio * (clocks - np.median(clocks)))
    return tuple(adjusted.tolist())


def _logs(values: Sequence[float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    for value in values:
        if not (math.isfinite(value) and value > 0):
            raise SpecError(f"clock: {value!r} is not positive and finite")
    return np.log(np.asarray(values, dtype=np.float64))
