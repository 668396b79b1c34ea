"""Test that distinguishes a step from a steady slope: drift is not attributed to a commit."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

NEAR_VALUES = 30
"""Values on each side that are looked at, up to the neighbouring changes."""
SLOPE_SIGMA, STEP_SIGMA, SLOPE_SHARE = 3.0, 4.0, 3.0
"""A step is a slope's where the slope is surer than the first and the step less sure than the second, or SLOPE_SHARE
times less sure than the slope."""
LEAST_SPREAD = 5e-4


def without_slopes(x: NDArray[np.float64], places: Sequence[int]) -> list[int]:
    """Return `places` without those where a slope explains the values; the least step goes first.

    >>> line, step = np.linspace(0.0, 1.0, 60), np.repeat([0.0, 0.1], 30)
    >>> without_slopes(line, [20, 40]), without_slopes(step, [30])
    ([], [30])
    """
    remaining = sorted(places)
    while True:
        edges = [0, *remaining, x.size]
        sigmas = [_sigmas(x, *edges[i : i + 3]) for i in range(len(remaining))]
        slopes = [
            (abs(step), i)
            for i, (step, slope) in enumerate(sigmas)
            if (abs(slope) > SLOPE_SIGMA and abs(step) < max(STEP_SIGMA, abs(slope) / SLOPE_SHARE))
        ]
        if not slopes:
            return remaining
        del remaining[min(slopes)[1]]


def _sigmas(x: NDArray[np.float64], start: int, place: int, end: int) -> tuple[float, float]:
    """Return how many standard errors a step at `place` and a common slope are from 0, fitted together."""
    start, end = max(start, place - NEAR_VALUES), min(end, place + NEAR_VALUES)
    if min(place - start, end - place) < 3:
        return np.inf, 0.0
    z = x[start:end]
    calm = np.median(np.lib.stride_tricks.sliding_window_view(np.pad(z, 2, mode="edge"), 5), axis=1)
    off = np.abs(z - calm)
    z = np.where(off > 6 * max(float(np.median(off)), LEAST_SPREAD), calm, z)  # without spikes
    t = np.arange(z.size, dtype=np.float64)
    after = (t >= place - start).astype(np.float64)
    design = np.stack([np.ones(z.size), after, t - t.mean()], axis=1)
    inverse = np.linalg.inv(design.T @ design)
    fitted = inverse @ design.T @ z
    spread = max(float(np.sqrt(np.mean((z - design @ fitted) ** 2) * z.size / (z.size - 3))), LEAST_SPREAD)
    errors = spread * np.sqrt(np.diag(inverse))
    return float(fitted[1] / errors[1]), float(fitted[2] / errors[2])
