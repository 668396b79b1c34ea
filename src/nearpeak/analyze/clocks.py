"""History values at equal clocks: which part of the clock shows in the time, and the values without it."""

import itertools
import math
import statistics
from collections.abc import Sequence

LEAST_STEP_RATIO = 0.005
"""Steps of the clock from commit to commit below this say nothing."""
LARGE_RATIO = 1 / 3
"""Steps below this part of the largest are noise of the clock, beside which noise of the time says little."""
LEAST_STEPS = 2
"""Steps that the share is taken from: one alone may be a change of the code at the same commit."""


def clock_share(values: Sequence[float], clocks_hz: Sequence[float]) -> float | None:
    """Return the part of a change of the clock that shows in the time, between 0 and 1; none where no clock moved.

    It is the median over the large steps of the clock of how far the time moved the other way, so that a change of the
    code at one of them does not decide it.

    Shapes: `values`, `clocks_hz` [commits], positive.

    Source: the slope of Theil 1950 and Sen 1968, over neighbours alone.

    >>> clocks = [2e9] * 5 + [1.9e9] * 5 + [2e9] * 5
    >>> round(clock_share([2e9 / one for one in clocks], clocks), 6), clock_share([1.0] * 15, clocks)
    (1.0, 0.0)
    >>> clock_share([1.0] * 3, [2e9] * 3) is None
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


def at_equal_clocks(values: Sequence[float], clocks_hz: Sequence[float], share_ratio: float) -> list[float]:
    """Return values as they would be at the median clock.

    >>> [round(one, 3) for one in at_equal_clocks([1.0, 1.0, 1.05], [2.1e9, 2.1e9, 2.0e9], 1.0)]
    [1.0, 1.0, 1.0]
    """
    usual = statistics.median(clocks_hz)
    return [value * (clock / usual) ** share_ratio for value, clock in zip(values, clocks_hz, strict=True)]
