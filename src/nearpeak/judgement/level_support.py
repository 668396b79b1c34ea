"""Acceptance of changes of the level against the noise beside each of them, which differs along a series."""

# The filter that proposes changes knows one noise for the whole series. Real noise changes its strength and its memory,
# so that a proposal is kept only where the values on both sides of it are of two kinds, by as much as their own
# scatter and memory there ask for, or where a segmentation of the whole series by a kernel makes the same change.

import math
from collections.abc import Mapping

import numpy as np

from nearpeak.judgement.level_filter import Floats

NEAR_VALUES = 60
"""Values on each side that are looked at, up to the neighbouring changes."""
AGREEING_VALUES = 5
"""Distance within which two changes are the same."""
LEAST_GAIN = 2.0
"""What a change must gain, over the logarithm of the number of values."""
LEAST_LASTING = 60.0
"""What that gain times the values of the shorter side must be: of two changes that are taken back, the noise beside
them may be as strong for a while."""
MEMORY_POWER = 0.5
"""Power of the inflation by memory with which both grow."""
CLEAR_SIGMA, CLEAR_VALUES = 7.0, 8
"""Step over the scatter of the wider side that is a change at this many values of the shorter side, and as many times
more at fewer, down to LEAST_VALUES."""
LEAST_VALUES = 3
STRONG = 4.0
"""Strength from which a change needs no segmentation of the whole series to agree."""
FINE_PENALTY, PENALTY = 1.5, 3.0
"""Penalties of a change in the segmentations of the whole series, over the logarithm of its number of values."""
LEAST_SPREAD = 5e-4
MOST_LAG = 10
_ROBUST = 1.4826
# The constants are chosen on residuals of public histories (Mozilla's browsers, photutils, MongoDB), resampled in
# blocks, beside made-up series; benchmarks/real_noise.py scores them on other ones.


def supported(x: Floats, chances: Mapping[int, float], least_ratio: float) -> set[int]:
    """Return the places of changes that the values beside them bear out.

    Places whose chance is at least `least_ratio` must be separated from their neighbours by themselves; the weakest one
    goes first, and its neighbours are then judged by longer sides. Those that stay are kept where a segmentation of the
    whole series has a change there, or without it if they are strong; all others only where a coarser one has.

    Args:
        x: values [values], logarithms.
        chances: chance of a change by place.

    >>> x = np.where(np.arange(80) < 40, 0.0, 0.02) + 0.002 * np.random.default_rng(0).standard_normal(80)
    >>> supported(x, {20: 0.9, 40: 0.9, 60: 0.2}, 0.5)
    {40}
    """
    strengths: dict[int, float] = {}
    kept = sorted(place for place, chance in chances.items() if chance >= least_ratio)
    while kept:
        edges = [0, *kept, x.size]
        strengths = {place: _strength(x, *edges[i : i + 3]) for i, place in enumerate(kept)}
        weakest = min(kept, key=strengths.__getitem__)
        if strengths[weakest] >= 1:
            break
        kept.remove(weakest)
    sure = {place for place in kept if strengths[place] >= STRONG}
    if len(sure) == len(chances):
        return sure
    sums = _kernel_sums(x)
    for penalty, places in ((FINE_PENALTY, set(kept) - sure), (PENALTY, chances.keys() - set(kept))):
        changes = _kernel_changes(sums, penalty * math.log(x.size)) if places else []
        sure |= {place for place in places if any(abs(place - one) <= AGREEING_VALUES for one in changes)}
    return sure


def _strength(x: Floats, start: int, place: int, end: int) -> float:
    """Return how strongly the values beside a change bear it out; from 1 on it is kept."""
    near = x[max(start, place - NEAR_VALUES) : min(end, place + NEAR_VALUES)]
    size = min(place - start, NEAR_VALUES)
    lasting = min(size, near.size - size)
    if lasting < 2:
        return 0.0
    sides = (near[:size], near[size:])
    middles = [float(np.median(side)) for side in sides]
    off = [side - middle for side, middle in zip(sides, middles, strict=True)]
    spread = max(LEAST_SPREAD, *(_ROBUST * float(np.median(np.abs(part))) for part in off))
    clear = abs(middles[1] - middles[0]) / spread / (CLEAR_SIGMA * max(1.0, CLEAR_VALUES / lasting))
    if lasting >= LEAST_VALUES and clear >= 1:
        return float(clear)
    needed = _inflation(np.concatenate(off)) ** MEMORY_POWER
    gain = _gain(near, size) / math.log(near.size) / needed
    return float(min(gain / LEAST_GAIN, gain * lasting / LEAST_LASTING))


def _gain(near: Floats, size: int) -> float:
    """Return how much less two parts scatter than the whole, by a kernel whose width is the median distance.

    Source: Arlot, Celisse and Harchaoui 2019, JMLR 20(162); the width is the median heuristic of `ruptures`.
    """
    kernel = _kernel(near)
    whole = float(kernel.sum())
    first, second = float(kernel[:size, :size].sum()), float(kernel[size:, size:].sum())
    return first / size + second / (near.size - size) - whole / near.size


def _kernel(x: Floats) -> Floats:
    """Return exp(−(x_i − x_j)² / median of such squares, of an even and an odd place) [values, values]."""
    squares = (x[:, None] - x[None, :]) ** 2
    pairs = squares[::2, 1::2].ravel()
    middle = float(np.partition(pairs, pairs.size // 2)[pairs.size // 2])
    np.multiply(squares, -1 / max(middle, LEAST_SPREAD**2), out=squares)
    return np.exp(squares, out=squares)


def _inflation(off: Floats) -> float:
    """Return the variance of a long mean over that of independent values (Bartlett's weights), at least 1."""
    limit = 4 * max(_ROBUST * float(np.median(np.abs(off))), LEAST_SPREAD)
    clipped = off.clip(-limit, limit)
    lags = min(MOST_LAG, off.size // 8)
    variance = float(clipped @ clipped)
    if variance <= 0:
        return 1.0
    total = sum((1 - lag / (lags + 1)) * float(clipped[:-lag] @ clipped[lag:]) for lag in range(1, lags + 1))
    return max(1.0, 1 + 2 * total / variance)


def _kernel_sums(x: Floats) -> Floats:
    """Return the sums of the kernel over all rows and columns before [values + 1, values + 1]."""
    sums = np.zeros((x.size + 1, x.size + 1))
    np.cumsum(_kernel(x), axis=0, out=sums[1:, 1:])
    np.cumsum(sums[1:, 1:], axis=1, out=sums[1:, 1:])
    return sums


def _kernel_changes(sums: Floats, penalty: float) -> list[int]:
    """Return the changes of the segmentation with the least scatter in the kernel's sense and a penalty for each.

    Source: Arlot, Celisse and Harchaoui 2019, JMLR 20(162).

    >>> _kernel_changes(_kernel_sums(np.repeat([0.0, 0.1, 0.0], 40)), 14.0)
    [40, 80]
    """
    size = len(sums) - 1
    lengths, diagonal = np.arange(size, 0, -1.0), np.diagonal(sums).copy()
    best, before = np.full(size + 1, -penalty), np.zeros(size + 1, dtype=np.int64)
    for end in range(1, size + 1):
        # A segment from `start` on costs its length less its mean row sum; the lengths add up to the same.
        inner = diagonal[:end] + diagonal[end] - 2 * sums[end, :end]
        costs = best[:end] - inner / lengths[size - end :]
        before[end] = start = int(costs.argmin())
        best[end] = costs[start] + penalty
    places, end = [], size
    while (end := int(before[end])) > 0:
        places.append(end)
    return places[::-1]
