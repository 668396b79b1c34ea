"""Rules by which other tools call two builds different, on the samples of launches, as far as they are stated.

Shapes: samples [arms 2, launches, samples of a launch], seconds.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Samples = NDArray[np.float64]
SLOW, FAST, SAME = "slow", "fast", "same"
Rule = Callable[[Samples, Samples, np.random.Generator], str]
"""Samples and clocks to a verdict."""


def direction(effect: float, changed: bool) -> str:
    """Return the verdict of a change that a rule sees."""
    return SAME if not changed else SLOW if effect > 0 else FAST


def pooled_welch(x: Samples, _: Samples, __: np.random.Generator, alpha: float = 0.001) -> str:
    """Welch's test on all samples."""
    a, b = x.reshape(2, -1)
    return direction(b.mean() - a.mean(), bool(stats.ttest_ind(a, b, equal_var=False).pvalue < alpha))


def pooled_ranks(x: Samples, _: Samples, __: np.random.Generator, alpha: float = 0.001) -> str:
    """Mann and Whitney's test on all samples."""
    a, b = x.reshape(2, -1)
    found = stats.mannwhitneyu(a, b, method="asymptotic").pvalue < alpha
    return direction(float(np.median(b) - np.median(a)), bool(found))


def pooled_bootstrap(x: Samples, _: Samples, rng: np.random.Generator) -> str:
    """The 99 % bootstrap interval of the ratio of medians of all samples."""
    a, b = x.reshape(2, -1)
    draws = rng.integers(0, a.size, (2, 400, a.size))
    return _outside(np.median(b[draws[1]], axis=1) / np.median(a[draws[0]], axis=1))


def hierarchical_bootstrap(x: Samples, _: Samples, rng: np.random.Generator) -> str:
    """The same with launches drawn first, and samples within each."""
    count, size = x.shape[1:]
    launches = rng.integers(0, count, (2, 200, count))
    inner = rng.integers(0, size, (2, 200, count, size))
    picked = [np.median(arm[launches[i][:, :, None], inner[i]], axis=(1, 2)) for i, arm in enumerate(x)]
    return _outside(picked[1] / picked[0])


def _outside(ratios: Samples) -> str:
    low, high = np.quantile(ratios, (0.005, 0.995))
    return SLOW if low > 1 else FAST if high < 1 else SAME


def launch_welch(x: Samples, _: Samples, __: np.random.Generator) -> str:
    """Welch's test on the medians of launches."""
    a, b = np.log(np.median(x, axis=2))
    return direction(b.mean() - a.mean(), bool(stats.ttest_ind(a, b, equal_var=False).pvalue < 0.01))


def launch_ranks(x: Samples, _: Samples, __: np.random.Generator) -> str:
    """The exact rank test on the medians of launches."""
    a, b = np.median(x, axis=2)
    return direction(float(np.median(b) - np.median(a)), bool(stats.mannwhitneyu(a, b, method="exact").pvalue < 0.02))


def cycle_welch(x: Samples, clocks: Samples, rng: np.random.Generator) -> str:
    """Welch's test on cycles of launches, with a floor of half a per cent."""
    cycles = x * clocks[:, :, None]
    a, b = np.log(np.median(cycles, axis=2))
    found = launch_welch(cycles, clocks, rng)
    return found if abs(b.mean() - a.mean()) >= math.log1p(0.005) else SAME


def nvbench_legacy(x: Samples, _: Samples, __: np.random.Generator) -> str:
    """The same where the means differ by no more than the smaller relative noise."""
    a, b = x.reshape(2, -1)
    effect = b.mean() / a.mean() - 1
    return direction(effect, bool(abs(effect) > min(a.std() / a.mean(), b.std() / b.mean())))


def nvbench_robust(x: Samples, _: Samples, __: np.random.Generator) -> str:
    """Another where the intervals from the least to the third quartile lie half a per cent apart."""
    a, b = x.reshape(2, -1)
    ends = [(one.min(), np.quantile(one, 0.75)) for one in (a, b)]
    gaps = ends[1][0] / ends[0][1] - 1, ends[0][0] / ends[1][1] - 1
    return SLOW if gaps[0] >= 0.005 else FAST if gaps[1] >= 0.005 else SAME


def factor(x: Samples, _: Samples, __: np.random.Generator, limit: float = 1.1) -> str:
    """Another where the medians differ by a factor, as `asv compare` does."""
    a, b = np.median(x.reshape(2, -1), axis=1)
    return SLOW if b / a > limit else FAST if a / b > limit else SAME
