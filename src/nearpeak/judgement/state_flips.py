"""Series that alternate between two levels, such as two clock states: detection, and removal of the second level."""

import math
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

LEAST_FLIPS = 3
"""Flips of two states: a level, another one and the first again is a change that was taken back."""
SURE_FLIPS = 5
"""Flips from which the length of stays does not matter."""
SHORT_STAY = 20
"""Values; three or four flips that are all further apart may be changes that were made and taken back."""
FAR_RATIO = 2.0
"""Ratio of levels from which nobody makes such a change twice and takes it back: these are flips at any stay."""
LEAST_SHARE = 0.05
"""Part of the values that each state has at least; fewer are spikes."""
LEAST_VALUES = 4
"""Values that each state has at least."""
LEAST_HOLE = 3.0
"""Hole between two states over the wider state; nearer ones are a matter of the noise model."""
EDGE_SHARE = 0.1
"""Part of a state's values on each side that its width leaves out."""
LEAST_DEVIATIONS = 4.0
"""Standard errors of the difference of two medians from which a state shows a change."""
_SPREAD = 1.4826 / math.sqrt(2) * math.sqrt(math.pi / 2)
"""From the median distance of neighbours to the standard deviation of a value, over that of a median to a mean."""
NEAR = 25
"""Values on each side of a change by which it is looked for in each state alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFlips:
    """A series that goes back and forth between two levels."""

    single: NDArray[np.float64]
    """Values as if the series had always been in its lower state [values]."""
    is_high: NDArray[np.bool_]
    """Whether each value is of the upper state [values]."""
    last: int
    """First value of the stay that lasts until the end."""
    gap: float
    """State of the last stay minus the other one."""
    gap_variance: float
    """Variance of that, of means of as many values as the states have."""
    last_is_longest: bool
    """Whether no earlier stay in the same state was as long as the last one."""
    chance_ratio: float
    """Chance that the last stay is this long by the habit of its state, as earlier stays show it."""


def state_flips(x: NDArray[np.float64]) -> StateFlips | None:
    """Return the two states between which a series flips; none where it has not two.

    The values fall into two groups that lie much further apart than each is wide, and the series goes from one group
    to the other at least three times; single values count to the state around them. How far the two lie apart does not
    matter.

    The chance of the last stay is (t / (t + n))^k for a last stay of n values, after k stays of t values together in
    the same state: a geometric length with its rate unknown (uniform in the logarithm).

    Shapes: `x` [values] logarithms.

    >>> x = np.log([530.0] * 4 + [20700.0] * 3 + [530.0] * 4 + [20700.0] * 6)
    >>> flips = state_flips(x)
    >>> flips.last, np.exp(flips.single).round().tolist() == [530.0] * 17, flips.last_is_longest
    (11, True, True)
    >>> state_flips(x[:11]) is None
    True
    """
    middle = _middle(np.sort(x))
    if middle is None:
        return None
    is_high = x > middle
    calm = is_high.copy()
    calm[1:-1] = is_high[:-2].astype(int) + is_high[1:-1] + is_high[2:] >= 2
    stays = [(state, len(list(part))) for state, part in groupby(calm.tolist())]
    flips = len(stays) - 1
    if flips < LEAST_FLIPS:
        return None
    gap = float(np.median(x[is_high]) - np.median(x[~is_high]))
    shortest = min(length for _, length in stays[1:-1])
    if flips < SURE_FLIPS and shortest >= SHORT_STAY and gap < math.log(FAR_RATIO):
        return None
    state, length = stays[-1]
    earlier = [other for its_state, other in stays[:-1] if its_state == state]
    variance = sum(float(np.var(part)) / part.size for part in (x[is_high], x[~is_high]))
    former = sum(earlier)
    return StateFlips(
        single=np.where(is_high, x - gap, x), is_high=is_high, last=x.size - length, gap=gap if state else -gap,
        gap_variance=variance, last_is_longest=length > max(earlier),
        chance_ratio=(former / (former + length)) ** len(earlier),
    )  # fmt: skip


def shows_in_each_state(flips: StateFlips, index: int, effect: float) -> bool:
    """Say whether each state that has values on both sides of `index` shows half of `effect`, and one beyond its noise.

    A change of the level moves both states; what one state alone shows, or only the step from one to the other, is the
    states' own noise.

    >>> x = np.log(([100.0] * 4 + [900.0] * 4) * 3 + ([110.0] * 4 + [990.0] * 4) * 3)
    >>> flips = state_flips(x)
    >>> shows_in_each_state(flips, 24, np.log(1.1)), shows_in_each_state(flips, 10, np.log(1.1))
    (True, False)
    """
    deviations = []
    for state in (flips.is_high, ~flips.is_high):
        sides = (slice(max(0, index - NEAR), index), slice(index, index + NEAR))
        before, after = (flips.single[side][state[side]] for side in sides)
        if min(before.size, after.size) < 2:
            continue
        step = float(np.median(after)) - float(np.median(before))
        if step / effect < 0.5:
            return False
        spread = float(np.median(np.abs(np.diff(flips.single[state])))) * _SPREAD
        error = spread * math.sqrt(1 / before.size + 1 / after.size)
        deviations.append(abs(step) >= LEAST_DEVIATIONS * error)
    return any(deviations)


def _middle(ordered: NDArray[np.float64]) -> float | None:
    """Return the middle between two groups of values; none where the hole between them is too narrow for that."""
    least = max(LEAST_VALUES, round(LEAST_SHARE * ordered.size))
    holes = np.diff(ordered)[least - 1 : ordered.size - least]
    if holes.size == 0:
        return None
    place = least + int(np.argmax(holes))
    groups = (ordered[:place], ordered[place:])
    (low, low_end), (high_start, high) = (np.quantile(group, (EDGE_SHARE, 1 - EDGE_SHARE)) for group in groups)
    if high_start - low_end <= LEAST_HOLE * max(low_end - low, high - high_start):
        return None
    return float(ordered[place - 1] + ordered[place]) / 2
