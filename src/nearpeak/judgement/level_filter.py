"""Forward-backward filter over the levels of a series: probabilities with drift, jumps and a second clock state."""

# A hidden level stands on a grid of bins. From one value to the next it stays, drifts to a neighbouring bin, or
# jumps to any bin. Beside it a state is off or on and adds a gap of whole bins (a device between two clocks). A
# value is level plus state plus noise; noise keeps a part of its last deviation. Far values cost a bounded
# amount, so that a spike is not a jump. Everything is counted in whole units, FINE of them to a bin, so that
# densities are read from tables. These loops are for machine code; `level_arrays` does the same for little work.

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearpeak.base.compilation import ALWAYS_COMPILED, compiled_sums, room, room_of_rows

FINE = 4
"""Units of a bin."""
_PLAIN_STEPS = 20_000_000
"""Values times bins, of all passes, that `level_arrays` takes less time for than compiling does, 0.15 µs each."""
Floats = NDArray[np.float64]
Units = NDArray[np.int64]


class Tables(NamedTuple):
    """What a deviation of so many units means, from -`half` to `half`."""

    near: Floats
    """Density of a deviation from what was expected after the value before."""
    wide: Floats
    """Density where nothing is known of the value before."""
    carried: Units
    """How much of a deviation the next value is expected to keep."""
    half: int
    """Index of deviation 0."""


class Motion(NamedTuple):
    """How level and state move."""

    gap: int
    """Bins between the states; 0 for one state."""
    up: float
    """Chance that the state comes on."""
    down: float
    """Chance that it goes off."""
    drift: float
    """Chance that the level moves to a neighbouring bin."""
    hazard: float
    """Chance that the level jumps."""


@compiled_sums(ALWAYS_COMPILED)
def likelihoods(tables: Any, gap: int, now: int, before: int, near: Any, wide: Any) -> None:
    """Fill, for every bin, the densities of value `now` after value `before`.

    Shapes: `near` [3, bins + gap]: state kept, state comes on, state goes off; `wide` [bins + gap]. A level with the
    state on is `gap` bins higher, so that rows without a change of state serve both.
    """
    expected, unknown, carried_units, half = tables
    bins = len(wide) - gap
    stays, on_row, off_row = near[0], near[1], near[2]
    for k in range(bins + gap):
        carried = carried_units[before - k * FINE + half]
        stays[k] = expected[now - k * FINE - carried + half]
        wide[k] = unknown[now - k * FINE + half]
    if gap == 0:
        return
    for k in range(bins):
        off, on = carried_units[before - k * FINE + half], carried_units[before - (k + gap) * FINE + half]
        on_row[k] = expected[now - (k + gap) * FINE - off + half]
        off_row[k] = expected[now - k * FINE - on + half]


@compiled_sums(_PLAIN_STEPS)
def forward(units: Any, bins: int, tables: Any, motion: Any, filtered: Any) -> float:
    """Return the log likelihood of the values; fill the chance of every level and state given the values so far.

    Shapes: `filtered` [values, 2, bins], or without values where nobody asks for it.
    """
    gap, up, down = motion.gap, motion.up if motion.gap else 0.0, motion.down
    near, wide = room_of_rows(3, bins + gap), room(bins + gap)
    now, spread = room_of_rows(2, bins), room_of_rows(2, bins)
    now_off, now_on, spread_off, spread_on = now[0], now[1], spread[0], spread[1]
    likelihoods(tables, gap, units[0], units[0], near, wide)
    stays, comes_on, goes_off = near[0], near[1], near[2]
    high = up / (up + down)
    total = 0.0
    for k in range(bins):
        now_off[k], now_on[k] = (1 - high) * wide[k], high * wide[gap + k]
        total += now_off[k] + now_on[k]
    log_likelihood = math.log(total / bins)
    _finish(now_off, now_on, 1 / total, filtered, 0)
    for t in range(1, len(units)):
        likelihoods(tables, gap, units[t], units[t - 1], near, wide)
        off, on = _sum(now_off), _sum(now_on)
        _drifted(now_off, spread_off, motion)
        jump = motion.hazard / bins
        total = 0.0
        if gap == 0:
            for k in range(bins):
                value = spread_off[k] * stays[k] + jump * wide[k]
                now_off[k] = value
                total += value
        else:
            _drifted(now_on, spread_on, motion)
            to_off, to_on = jump * (off * (1 - up) + on * down), jump * (off * up + on * (1 - down))
            for k in range(bins):
                a, b = spread_off[k], spread_on[k]
                low = a * (1 - up) * stays[k] + b * down * goes_off[k] + to_off * wide[k]
                top = a * up * comes_on[k] + b * (1 - down) * stays[k + gap] + to_on * wide[k + gap]
                now_off[k], now_on[k] = low, top
                total += low + top
        log_likelihood += math.log(total)
        _finish(now_off, now_on, 1 / total, filtered, t)
    return log_likelihood


@compiled_sums(ALWAYS_COMPILED)
def _finish(off: Any, on: Any, scale: float, filtered: Any, t: int) -> None:
    """Scale the chances of a value so that they add up to 1, and keep them where they are asked for."""
    for k in range(len(off)):
        off[k] *= scale
        on[k] *= scale
    if len(filtered):
        for k in range(len(off)):
            filtered[t][0][k], filtered[t][1][k] = off[k], on[k]


@compiled_sums(ALWAYS_COMPILED)
def _drifted(now: Any, spread: Any, motion: Any) -> None:
    """Fill where the levels are after staying or drifting; the ends of the grid keep what would leave it."""
    last = len(now) - 1
    stay, side = (1 - motion.hazard) * (1 - motion.drift), (1 - motion.hazard) * motion.drift / 2
    for k in range(1, last):
        spread[k] = stay * now[k] + side * (now[k - 1] + now[k + 1])
    spread[0] = (stay + side) * now[0] + side * now[1]
    spread[last] = (stay + side) * now[last] + side * now[last - 1]


@compiled_sums(ALWAYS_COMPILED)
def _sum(chances: Any) -> float:
    total = 0.0
    for k in range(len(chances)):
        total += chances[k]
    return total


@compiled_sums(ALWAYS_COMPILED)
def _moments(off: Any, on: Any) -> tuple[float, float, float]:
    """Return the sum of the chances of bins, and their first two moments."""
    sum0 = sum1 = sum2 = 0.0
    for k in range(len(off)):
        weight = off[k] + on[k]
        sum0, sum1, sum2 = sum0 + weight, sum1 + weight * k, sum2 + weight * k * k
    return sum0, sum1, sum2


@compiled_sums(ALWAYS_COMPILED)
def jumps(units: Any, bins: int, tables: Any, motion: Any, filtered: Any, table: Any) -> None:
    """Fill, for every value, the chance that the level jumped to it, and the jump's mean and variance in bins.

    Shapes: `filtered` [values, 2, bins] as `forward` fills it, `table` [values, 3].
    """
    gap, up, down = motion.gap, motion.up if motion.gap else 0.0, motion.down
    near, wide = room_of_rows(3, bins + gap), room(bins + gap)
    later, spread = room_of_rows(2, bins), room_of_rows(2, bins)
    later_off, later_on, spread_off, spread_on = later[0], later[1], spread[0], spread[1]
    stays, comes_on, goes_off = near[0], near[1], near[2]
    for k in range(bins):
        later_off[k] = later_on[k] = 1.0
    for t in range(len(units) - 1, 0, -1):
        likelihoods(tables, gap, units[t], units[t - 1], near, wide)
        before_off, before_on = filtered[t - 1][0], filtered[t - 1][1]
        off, on = _sum(before_off), _sum(before_on)
        to_off, to_on = off * (1 - up) + on * down, off * up + on * (1 - down)
        low = top = 0.0
        new0 = new1 = new2 = 0.0
        old0, old1, old2 = _moments(before_off, before_on)
        for k in range(bins):
            a, b = wide[k] * later_off[k], wide[k + gap] * later_on[k] if gap else 0.0
            low += a
            top += b
            weight = to_off * a + to_on * b
            new0, new1, new2 = new0 + weight, new1 + weight * k, new2 + weight * k * k
        jump = motion.hazard / bins
        row = table[t]
        row[1] = new1 / new0 - old1 / old0
        row[2] = new2 / new0 - (new1 / new0) ** 2 + old2 / old0 - (old1 / old0) ** 2
        for k in range(bins):
            if gap == 0:
                later_off[k] *= stays[k]
            else:
                a, b = later_off[k], later_on[k]
                later_off[k] = (1 - up) * stays[k] * a + up * comes_on[k] * b
                later_on[k] = down * goes_off[k] * a + (1 - down) * stays[k + gap] * b
        _drifted(later_off, spread_off, motion)
        from_off, from_on = jump * ((1 - up) * low + up * top), jump * (down * low + (1 - down) * top)
        if gap:
            _drifted(later_on, spread_on, motion)
        weights = largest = 0.0
        for k in range(bins):
            spread_off[k] += from_off
            spread_on[k] = spread_on[k] + from_on if gap else 0.0
            weights += spread_off[k] * before_off[k] + spread_on[k] * before_on[k]
            largest = max(largest, spread_off[k], spread_on[k])
        row[0] = jump * new0 / weights
        for k in range(bins):
            later_off[k] = spread_off[k] / largest
            if gap:
                later_on[k] = spread_on[k] / largest
