"""Maximum-likelihood noise parameters of a series: level grid, density tables, parameter search."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from nearpeak.judgement.level_arrays import Moves, moves_of, passed_backward, passed_forward
from nearpeak.judgement.level_filter import FINE, Floats, Motion, Tables, Units, forward, jumps

HAZARD_RATIO = 1 / 200
"""Chance of a change at one value, before the values are seen."""
LEAST_SPREAD = 5e-4
"""Noise below this part of the value is none of a change's business; it keeps the grid finite on equal values."""
SCALES = np.array([0.6, 0.8, 1.0, 1.3])
SKEWS = np.array([1.0, 1.6, 2.4])
CARRIED = np.array([0.0, 0.3, 0.6])
DRIFTS = np.array([0.003, 0.03, 0.15])
RATES = np.array([[0.06, 0.12], [0.12, 0.06], [0.12, 0.12]])
"""Chances that the state comes on and goes off; slower ones would be changes of the level."""
GAP_COST = 8.0
"""What a second state must gain in log likelihood; fitted, with the threshold, on seeds that are not quoted."""
GAP_HOPE = 8.0
"""How far behind a second state may lie before its noise is searched too."""
SLOPE_COST = 3.0
FAR_RATIO = 0.02
"""Share of values that lie far off and say nothing."""
MOST_BINS = 400
MARGIN_BINS = 40
"""Values further off the grid than this are taken as lying at this distance."""
MOST_MOVES = 1_000_000
"""Values times bins times choices that are gathered at once."""
SCALE, SKEW, CARRY, DRIFT, GAP, RATE = 0, 1, 2, 3, 4, 5
_CHOICES = np.array([SCALES.size, SKEWS.size, CARRIED.size, DRIFTS.size, 0, len(RATES)])
_FIRST = np.array([2, 1, 0, 1, 0, 0])


class Grid(NamedTuple):
    """A series in units of a grid of levels."""

    units: Units
    bins: int
    width: float
    """Distance of neighbouring bins in the values' own scale."""
    spread: float
    """Rough spread of the noise in units."""
    slope: float
    """Steady change from value to value that was taken out."""


def grid_of(x: Floats, slope: float) -> Grid:
    """Return the series on a grid of half its rough spread; spikes do not widen it."""
    z = x - slope * np.arange(x.size)
    rough = max(1.4826 * float(np.median(np.abs(np.diff(z)))) / math.sqrt(2.0), LEAST_SPREAD)
    calm = np.array([np.median(z[max(0, place - 2) : place + 3]) for place in range(min(2, z.size))])
    if z.size > 4:
        calm = np.append(calm, np.median(np.lib.stride_tricks.sliding_window_view(z, 5), axis=1))
    calm = np.append(calm, [np.median(z[max(0, place - 2) :]) for place in range(max(2, z.size - 2), z.size)])
    least = float(calm.min()) - 3 * rough
    highest = float(calm.max()) + 3 * rough
    width = max(rough / 2, (highest - least) / MOST_BINS)
    bins = math.ceil((highest - least) / width) + 1
    units = np.rint((z - least) / width * FINE).clip(-MARGIN_BINS * FINE, (bins + MARGIN_BINS) * FINE).astype(np.int64)
    # A level lies up to half a bin beside the middle of its own.
    return Grid(units, bins, width, math.hypot(rough, width / 4) / width * FINE, slope)


def _density(off: Floats, scale: float, skew: float, far: float) -> Floats:
    """Return Student's density with 5 degrees of freedom, wider on its right by `skew`, and a few far values."""
    q = 1 + (off / np.where(off > 0, scale * math.sqrt(skew), scale / math.sqrt(skew))) ** 2 / 5
    table = 1 / (q * q * q)
    density: Floats = table * ((1 - FAR_RATIO) / table.sum()) + FAR_RATIO / (1 + (off / far) ** 2) / (math.pi * far)
    return density


@lru_cache(maxsize=64)
def tables_of(bins: int, spread: float, scale: float, skew: float, carry: float) -> Tables:
    """Return the tables of one choice of noise; what is carried fades for far values, as spikes leave no trace."""
    half = 2 * FINE * (bins + 2 * MARGIN_BINS) + 64
    off, far, narrow = np.arange(-half, half + 1.0), 30 * spread, spread * scale
    near = _density(off, narrow, skew, far)
    if carry == 0:
        return Tables(near, near, np.zeros(off.size, np.int64), half)
    wide = narrow / math.sqrt(1 - carry * carry)
    carried = np.rint(carry * off * (2 - np.abs(off) / (5 * wide)).clip(0, 1)).astype(np.int64)
    return Tables(near, _density(off, wide, skew, far), carried, half)


def _tables_of(choice: Units, grid: Grid) -> Tables:
    return tables_of(
        grid.bins, grid.spread, float(SCALES[choice[SCALE]]), float(SKEWS[choice[SKEW]]), float(CARRIED[choice[CARRY]])
    )


def motion_of(choice: Units) -> Motion:
    """Return how level and state move under one choice."""
    up, down = RATES[choice[RATE]].tolist()
    return Motion(int(choice[GAP]), up, down, float(DRIFTS[choice[DRIFT]]), HAZARD_RATIO)


def evidence(choices: Sequence[Units], grid: Grid) -> Floats:
    """Return the log likelihood of the values under each choice; all of them have a gap, or none has."""
    size = grid.units.size * grid.bins
    if not forward.is_plain_for(size * len(choices)):
        unfilled = np.empty((0, 2, 1))
        return np.array([
            forward.machine_code(grid.units, grid.bins, _tables_of(choice, grid), motion_of(choice), unfilled)
            for choice in choices
        ])  # fmt: skip
    count = max(1, MOST_MOVES // size)
    parts = (choices[start : start + count] for start in range(0, len(choices), count))
    return np.concatenate([passed_forward(_moves(part, grid), np.empty(0)) for part in parts])


def _moves(choices: Sequence[Units], grid: Grid) -> Moves:
    tables = [_tables_of(choice, grid) for choice in choices]
    return moves_of(grid.units, grid.bins, tables, [motion_of(choice) for choice in choices])


def _best_of(choice: Units, best: float, part: int, values: Sequence[int], grid: Grid) -> float:
    """Set `part` to which of `values` explains the series better than `best`; return the log likelihood."""
    tried = [choice.copy() for _ in values]
    for units, value in zip(tried, values, strict=True):
        units[part] = value
    evidences = evidence(tried, grid)
    place = int(np.argmax(evidences))
    if evidences[place] > best:
        choice[part] = tried[place][part]
    return max(best, float(evidences[place]))


def _descended(choice: Units, best: float, parts: tuple[int, ...], grid: Grid) -> float:
    """Set each of `parts` in turn to what explains the values best; return the log likelihood."""
    for part in parts:
        best = _best_of(choice, best, part, [other for other in range(_CHOICES[part]) if other != choice[part]], grid)
    return best


def _best_gap(choice: Units, grid: Grid) -> float:
    """Set the gap between two states that explains the values best; return the log likelihood."""
    gaps = [3]
    while gaps[-1] + 1 + gaps[-1] // 6 < min(grid.bins, 60):
        gaps.append(gaps[-1] + 1 + gaps[-1] // 6)
    best = _best_of(choice, -np.inf, GAP, gaps, grid)
    return _best_of(choice, best, GAP, [int(choice[GAP]) - 1, int(choice[GAP]) + 1], grid)


def _grid_with_slope(x: Floats) -> Grid:
    """Return the grid without a steady slope, or with the usual one where that explains much more."""
    lag = min(10, x.size // 2)
    slope = float(np.median((x[lag:] - x[:-lag]) / lag))
    plain = grid_of(x, 0.0)
    if abs(slope) * x.size * FINE < 6 * plain.spread * plain.width:
        return plain
    sloped = grid_of(x, slope)
    gain = evidence([_FIRST], sloped)[0] - evidence([_FIRST], plain)[0] - x.size * math.log(sloped.width / plain.width)
    return sloped if gain > SLOPE_COST else plain


def searched(x: Floats, table: Floats) -> None:
    """Fill the chance, mean and variance of jumps, given the noise that explains the values best.

    Shapes: `x` [values] logarithms (or values of a linear scale over their size), `table` [values, 3].
    """
    grid = _grid_with_slope(x)
    start = _FIRST.copy()
    best = _descended(start, float(evidence([start], grid)[0]), (CARRY, DRIFT, SCALE, SKEW, CARRY, DRIFT), grid)
    two = start.copy()
    two[CARRY], two[DRIFT] = 0, min(start[DRIFT], 1)
    value = _best_gap(two, grid) if grid.bins > 4 else -np.inf
    if value > best - GAP_HOPE:
        value = _descended(two, value, (SCALE, DRIFT, RATE, CARRY, SKEW), grid)
    choice = two if value - GAP_COST > best else start
    if forward.is_plain_for(x.size * grid.bins):
        moves = _moves([choice], grid)
        filtered = np.empty_like(moves.wide)
        passed_forward(moves, filtered)
        passed_backward(moves, filtered, table)
    else:
        filtered = np.empty((x.size, 2, grid.bins))
        tables, motion = _tables_of(choice, grid), motion_of(choice)
        forward.machine_code(grid.units, grid.bins, tables, motion, filtered)
        jumps(grid.units, grid.bins, tables, motion, filtered, table)
    table[:, 1] *= grid.width
    table[:, 2] *= grid.width**2
