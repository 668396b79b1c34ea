"""The recursions of `level_filter` in NumPy, for several choices of noise at once: little work, without Numba."""

# One state, off, where no choice has a gap; else two, off and on. What machine code looks up for each value is gathered
# here for all values beforehand, as it does not depend on the levels.

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nearpeak.judgement.level_filter import FINE, Floats, Motion, Tables, Units


class Moves(NamedTuple):
    """What every value says of every level and state, and how they move."""

    near: Floats
    """Chance of the move to a state from one, times the density [values - 1, choices, to, from, bins]."""
    wide: Floats
    """Density of a value after a jump [values, choices, to, bins]."""
    chance: Floats
    """Chance of the move to a state from one [choices, to, from]."""
    start: Floats
    """Chance of each state at the first value [choices, states]."""
    stay: Floats
    """Chance that a level stays [choices, 1, 1]."""
    side: Floats
    """Chance that it drifts to one side [choices, 1, 1]."""
    jump: float
    """Chance that it jumps to one of the bins."""


def moves_of(units: Units, bins: int, tables: Sequence[Tables], motions: Sequence[Motion]) -> Moves:
    """Return the moves of a series under choices of noise and motion that have a gap, or under some that have none."""
    states = 2 if motions[0].gap else 1
    near = np.empty((len(units) - 1, len(motions), states, states, bins))
    wide = np.empty((len(units), len(motions), states, bins))
    chance, start = np.ones((len(motions), states, states)), np.ones((len(motions), states))
    off = slice(0, bins)
    for place, (table, motion) in enumerate(zip(tables, motions, strict=True)):
        on = slice(motion.gap, motion.gap + bins)
        index = units[:, None] - FINE * np.arange(bins + motion.gap) + table.half
        now, carried = index[1:], table.carried[index[:-1]]
        for state, level in enumerate((off, on)[:states]):
            wide[:, place, state] = table.wide[index[:, level]]
            for before, old in enumerate((off, on)[:states]):
                near[:, place, state, before] = table.near[now[:, level] - carried[:, old]]
        if motion.gap:
            chance[place] = (1 - motion.up, motion.down), (motion.up, 1 - motion.down)
            start[place] = np.array([motion.down, motion.up]) / (motion.up + motion.down)
    near *= chance[..., None]
    hazard, drift = motions[0].hazard, np.array([motion.drift for motion in motions])[:, None, None]
    return Moves(near, wide, chance, start, (1 - hazard) * (1 - drift), (1 - hazard) * drift / 2, hazard / bins)


def _drifted(levels: Floats, moves: Moves) -> Floats:
    """Return where the levels are after staying or drifting; the ends of the grid keep what would leave it."""
    beside = np.empty_like(levels)
    beside[..., 1:-1] = levels[..., :-2] + levels[..., 2:]
    beside[..., 0], beside[..., -1] = levels[..., 0] + levels[..., 1], levels[..., -1] + levels[..., -2]
    spread: Floats = moves.stay * levels + moves.side * beside
    return spread


def passed_forward(moves: Moves, filtered: Floats) -> Floats:
    """Return the log likelihood of the values under each choice; fill the chances of levels given the values so far.

    Shapes: `filtered` [values, choices, states, bins], or without values where nobody asks for it.
    """
    now = moves.start[..., None] * moves.wide[0]
    totals = np.empty((len(moves.wide), len(now)))
    for t, wide in enumerate(moves.wide):
        if t:
            landed = moves.chance @ now.sum(axis=-1)[..., None]
            now = (moves.near[t - 1] * _drifted(now, moves)[:, None]).sum(axis=2) + moves.jump * landed * wide
        totals[t] = now.sum(axis=(1, 2))
        now /= totals[t][:, None, None]
        if len(filtered):
            filtered[t] = now
    log_likelihoods: Floats = np.log(totals).sum(axis=0) - np.log(now.shape[-1])
    return log_likelihoods


def passed_backward(moves: Moves, filtered: Floats, table: Floats) -> None:
    """Fill, for every value, the chance that the level jumped to it, and the jump's mean and variance in bins.

    Shapes: `filtered` [values, 1, states, bins] as `passed_forward` fills it for one choice, `table` [values, 3].
    """
    powers = np.arange(filtered.shape[-1]) ** np.arange(3.0)[:, None]
    later = np.ones(filtered.shape[1:])
    for t in range(len(table) - 1, 0, -1):
        before, landed = filtered[t - 1], moves.wide[t] * later
        weights = (moves.chance[0] @ before[0].sum(axis=-1)) @ landed[0]
        new, old = powers @ weights, powers @ before[0].sum(axis=0)
        new_mean, old_mean = new[1] / new[0], old[1] / old[0]
        table[t, 1] = new_mean - old_mean
        table[t, 2] = new[2] / new[0] - new_mean**2 + old[2] / old[0] - old_mean**2
        spread = _drifted((moves.near[t - 1] * later[:, :, None]).sum(axis=1), moves)
        spread += moves.jump * (landed.sum(axis=-1) @ moves.chance[0])[..., None]
        table[t, 0] = moves.jump * new[0] / (spread * before).sum()
        later = spread / spread.max()
