"""Forward-backward filter over the levels of a series: probabilities with drift, jumps and a second clock state."""

# A hidden level stands on a grid of bins. From one value to the next it stays, drifts to a neighbouring bin, or
# jumps to any bin. Beside it a state is off or on and adds a gap of whole bins (a device between two clocks). A
# value is level plus state plus noise; noise keeps a part of its last deviation. Far values cost a bounded
# amount, so that a spike is not a jump. Everything is counted in whole units, FINE of them to a bin, so that
# densities are read from tables.

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearpeak.base.compilation import compiled_sums

FINE = 4
"""Units of a bin."""
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


@compiled_sums
def likelihoods(tables: Tables, gap: int, now: int, before: int, near: Floats, wide: Floats) -> None:
    """Fill, for every bin, the densities of value `now` after value `before`.

    Shapes: `near` [3, bins + gap]: state kept, state comes on, state goes off; `wide` [bins + gap]. A level with the
    state on is `gap` bins higher, so that rows without a change of state serve both.
    """
    half, bins = tables.half, wide.size - gap
    for k in range(bins + gap):
        carried = tables.carried[before - k * FINE + half]
        near[0, k] = tables.near[now - k * FINE - carried + half]
        wide[k] = tables.wide[now - k * FINE + half]
    if gap == 0:
        return
    for k in range(bins):
        off, on = tables.carried[before - k * FINE + half], tables.carried[before - (k + gap) * FINE + half]
        near[1, k] = tables.near[now - (k + gap) * FINE - off + half]
        near[2, k] = tables.near[now - k * FINE - on + half]


@compiled_sums
def forward(units: Units, bins: int, tables: Tables, motion: Motion, filtered: Floats) -> float:
    """Return the log likelihood of the values; fill the chance of every level and state given the values so far.

    Shapes: `filtered` [values, 2, bins], or without values where nobody asks for it.
    """
    gap, up, down = motion.gap, motion.up if motion.gap else 0.0, motion.down
    near, wide = np.empty((3, bins + gap)), np.empty(bins + gap)
    now, spread = np.zeros((2, bins)), np.zeros((2, bins))
    likelihoods(tables, gap, units[0], units[0], near, wide)
    high = up / (up + down)
    now[0] = (1 - high) * wide[:bins]
    now[1] = high * wide[gap : gap + bins]
    total = now.sum()
    now /= total
    log_likelihood = math.log(total / bins)
    if filtered.size:
        filtered[0] = now
    for t in range(1, units.size):
        likelihoods(tables, gap, units[t], units[t - 1], near, wide)
        off, on = now[0].sum(), now[1].sum()
        _drifted(now, spread, motion, 2 if gap else 1)
        jump = motion.hazard / bins
        total = 0.0
        if gap == 0:
            for k in range(bins):
                value = spread[0, k] * near[0, k] + jump * wide[k]
                now[0, k] = value
                total += value
        else:
            to_off, to_on = jump * (off * (1 - up) + on * down), jump * (off * up + on * (1 - down))
            for k in range(bins):
                a, b = spread[0, k], spread[1, k]
                low = a * (1 - up) * near[0, k] + b * down * near[2, k] + to_off * wide[k]
                top = a * up * near[1, k] + b * (1 - down) * near[0, k + gap] + to_on * wide[k + gap]
                now[0, k], now[1, k] = low, top
                total += low + top
        log_likelihood += math.log(total)
        now *= 1 / total
        if filtered.size:
            filtered[t] = now
    return log_likelihood


@compiled_sums
def _drifted(now: Floats, spread: Floats, motion: Motion, states: int) -> None:
    """Fill where the levels are after staying or drifting; the ends of the grid keep what would leave it."""
    bins = now.shape[1]
    stay, side = (1 - motion.hazard) * (1 - motion.drift), (1 - motion.hazard) * motion.drift / 2
    for s in range(states):
        for k in range(1, bins - 1):
            spread[s, k] = stay * now[s, k] + side * (now[s, k - 1] + now[s, k + 1])
        spread[s, 0] = (stay + side) * now[s, 0] + side * now[s, 1]
        spread[s, bins - 1] = (stay + side) * now[s, bins - 1] + side * now[s, bins - 2]


@compiled_sums
def jumps(units: Units, bins: int, tables: Tables, motion: Motion, filtered: Floats, table: Floats) -> None:
    """Fill, for every value, the chance that the level jumped to it, and the jump's mean and variance in bins.

    Shapes: `filtered` [values, 2, bins] as `forward` fills it, `found` [values, 3].
    """
    gap, up, down = motion.gap, motion.up if motion.gap else 0.0, motion.down
    states = 2 if gap else 1
    near, wide = np.empty((3, bins + gap)), np.empty(bins + gap)
    later, spread = np.ones((2, bins)), np.zeros((2, bins))
    table[0] = 0.0
    for t in range(units.size - 1, 0, -1):
        likelihoods(tables, gap, units[t], units[t - 1], near, wide)
        before = filtered[t - 1]
        off, on = before[0].sum(), before[1].sum()
        to_off, to_on = off * (1 - up) + on * down, off * up + on * (1 - down)
        old, new = np.zeros(3), np.zeros(3)
        low = top = 0.0
        for k in range(bins):
            _add(old, before[0, k] + before[1, k], k)
            a, b = wide[k] * later[0, k], wide[k + gap] * later[1, k] * (states - 1)
            low += a
            top += b
            _add(new, to_off * a + to_on * b, k)
        jump = motion.hazard / bins
        table[t, 0] = jump * new[0]
        table[t, 1] = new[1] / new[0] - old[1] / old[0]
        table[t, 2] = new[2] / new[0] - (new[1] / new[0]) ** 2 + old[2] / old[0] - (old[1] / old[0]) ** 2
        for k in range(bins):
            if gap == 0:
                later[0, k] *= near[0, k]
            else:
                a, b = later[0, k], later[1, k]
                later[0, k] = (1 - up) * near[0, k] * a + up * near[1, k] * b
                later[1, k] = down * near[2, k] * a + (1 - down) * near[0, k + gap] * b
        _drifted(later, spread, motion, states)
        spread[0] += jump * ((1 - up) * low + up * top)
        spread[1] += jump * (down * low + (1 - down) * top)
        table[t, 0] /= (spread[:states] * before[:states]).sum()
        later[:states] = spread[:states] * (1 / spread[:states].max())


@compiled_sums
def _add(moments: Floats, weight: float, k: int) -> None:
    moments[0] += weight
    moments[1] += weight * k
    moments[2] += weight * k * k
