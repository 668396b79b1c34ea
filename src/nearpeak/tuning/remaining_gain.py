"""Expected gain of the untried configurations of a search, by a fit to the lower tail of the measured times."""

import math
from collections.abc import Sequence

import numpy as np

TAIL_RATIO, LEAST_TAIL_COUNT = 0.25, 10
"""Share of the fastest configurations that the tail is fitted to, and least number of them."""
LEAST_COUNT = 3 * LEAST_TAIL_COUNT
"""Times below which nothing is expected: a tail of fewer says nothing."""
_STEPS = 400


def remaining_gain_ratio(times_s: Sequence[float], left_count: int) -> float | None:
    """Return by which share the best time is expected to fall if everything that is left was tried; none for few times.

    Depths y of the m fastest below the time of the next, on a logarithmic scale, follow a generalised Pareto
    distribution, P(Y > y) = (1 - k y / s)^(1/k), fitted by probability-weighted moments. Of `left_count` others
    K = m left_count / n are expected in that tail, as if they were drawn like those seen, and the deepest of them lies
    beyond the best by the integral of 1 - P(Y <= y)^K above its depth. A search that concentrates on fast
    configurations leaves slower ones than it has seen: the figure is then too large, and the search goes on for longer.

    Args:
        times_s: times of the configurations that have one.

    Source: Hosking and Wallis 1987, Technometrics 29, 339 (probability-weighted moments); Pickands 1975, Ann. Statist.
    3, 119 (the tail).

    >>> remaining_gain_ratio([1.0] * 9, 100), remaining_gain_ratio([1.0 + 0.01 * n for n in range(60)], 0)
    (None, 0.0)
    """
    count = len(times_s)
    if count < LEAST_COUNT:
        return None
    logs = np.sort(np.log(np.asarray(times_s, dtype=np.float64)))
    tail_count = max(LEAST_TAIL_COUNT, int(TAIL_RATIO * count))
    depths = (logs[tail_count] - logs[:tail_count])[::-1]
    if left_count <= 0 or depths[-1] <= 0:
        return 0.0
    shape, scale = _fitted(depths)
    end = scale / shape if shape > 0 else math.inf
    deepest = float(depths[-1])
    end = min(max(end, deepest * (1 + 1 / tail_count)), deepest + 40 * scale)
    steps = np.linspace(deepest, end, _STEPS)
    beyond = _survival(steps, shape, scale)
    in_tail = tail_count * left_count / count
    chances = -np.expm1(in_tail * np.log1p(-beyond))
    gain = float((chances.sum() - (chances[0] + chances[-1]) / 2) * (steps[1] - steps[0]))  # trapezium rule
    return -math.expm1(-gain)


def _fitted(depths: np.ndarray) -> tuple[float, float]:
    """Return k and s of the distribution of depths, in ascending order.

    k is kept between -1/2 and 1/2: beyond, few depths make an end of the tail right behind the deepest.
    """
    count = len(depths)
    places = (np.arange(1, count + 1) - 0.35) / count
    mean = float(depths.mean())
    weighted = float(((1 - places) * depths).mean())
    shape = min(max(mean / (mean - 2 * weighted) - 2, -0.5), 0.5) if mean > 2 * weighted else 0.5
    return shape, mean * (1 + shape)


def _survival(depths: np.ndarray, shape: float, scale: float) -> np.ndarray:
    """Return P(Y > y), at most a little below 1."""
    if abs(shape) < 1e-6:
        ratio = np.exp(-depths / scale)
    else:
        ratio = np.maximum(1 - shape * depths / scale, 0.0) ** (1 / shape)
    return np.minimum(ratio, 1 - 1e-12)
