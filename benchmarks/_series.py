"""Series of one value per commit with planted changes: seven families of noise, seeded; how a detector is scored."""

import math
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

COMMITS = 200
FAMILIES = ("quiet", "skewed", "bimodal", "autocorr", "drift", "mixed", "realgpu")
SIZES = (0.01, 0.02, 0.05, 0.10)
FOUR_FAMILIES, FOUR_SIZES = ("quiet", "skewed", "mixed", "realgpu"), (0.02, 0.05)
MARGIN_COMMITS = 5
"""A detection counts as a hit when it lies this near to a planted change."""

Values = NDArray[np.float64]


def one_step(family: str, size_ratio: float, seed: int, commits: int = COMMITS) -> tuple[Values, tuple[int, ...]]:
    """Return a series with one change in its middle part (none for size 0) and where it is.

    >>> values, changes = one_step("quiet", 0.05, 0)
    >>> len(values), len(changes), one_step("quiet", 0.0, 0)[1]
    (200, 1, ())
    """
    rng = _generator("one", family, size_ratio, seed)
    change = int(rng.integers(round(0.3 * commits), round(0.7 * commits) + 1))
    level = np.where(np.arange(commits) >= change, math.log1p(size_ratio), 0.0)
    return 100 * np.exp(level + noise(family, commits, rng) / 100), (change,) if size_ratio else ()


def four_steps(family: str, size_ratio: float, seed: int) -> tuple[Values, tuple[int, ...]]:
    """Return a series with four changes, at least 20 commits from the ends and 25 apart, the first upwards."""
    rng = _generator("four", family, size_ratio, seed)
    while True:
        changes = np.sort(rng.integers(20, COMMITS - 19, 4))
        if np.all(np.diff(changes) >= 25):
            break
    ups = np.concatenate(([True], rng.random(3) < 0.6))
    level = np.zeros(COMMITS)
    for change, up in zip(changes, ups, strict=True):
        level[change:] += math.log1p(size_ratio) * (1 if up else -1)
    return 100 * np.exp(level + noise(family, COMMITS, rng) / 100), tuple(int(one) for one in changes)


def noise(family: str, commits: int, rng: np.random.Generator) -> Values:  # noqa: PLR0911 - a row for each family
    """Return the noise of a family in percent of the value.

    Source: shared design, regression.md, table of families; `realgpu` is drawn with the figures that were measured on
    public series of a GPU (spread, autocorrelation and far points of the residuals), as those carry no licence.
    """
    t = np.arange(commits) / commits
    if family == "quiet":
        return _skewed(0.15, commits, rng) + _spikes(0.01, 1, 5, commits, rng)
    if family == "skewed":
        return _skewed(1.0, commits, rng) + _spikes(0.02, 5, 30, commits, rng)
    if family == "bimodal":
        states = _two_states(2.0, 0.08, 0.16, commits, rng)
        return _skewed(0.2, commits, rng) + states + _spikes(0.01, 2, 10, commits, rng)
    if family == "autocorr":
        return _following(0.6, 0.8, commits, rng) + _skewed(0.3, commits, rng) + _spikes(0.01, 2, 10, commits, rng)
    if family == "drift":
        wave = 1.5 * np.sin(2 * np.pi * (t * rng.uniform(0.5, 1.2) + rng.random()))
        return _skewed(0.4, commits, rng) + wave + _spikes(0.01, 2, 10, commits, rng)
    if family == "mixed":
        wave = 0.8 * np.sin(2 * np.pi * (0.8 * t + rng.random()))
        states = _two_states(1.2, 0.05, 0.10, commits, rng)
        spikes = _spikes(0.02, 2, 20, commits, rng)
        return _skewed(0.5, commits, rng) + _following(0.5, 0.4, commits, rng) + states + wave + spikes
    if family == "realgpu":
        return _like_a_gpu(commits, rng)
    raise ValueError(f"no family {family!r}; there are {', '.join(FAMILIES)}")


def _generator(*parts: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(parts).encode()))


def _skewed(scale: float, commits: int, rng: np.random.Generator) -> Values:
    z = np.exp(rng.normal(0, 0.5, commits))
    return scale * (z - math.exp(0.125)) / math.sqrt((math.exp(0.25) - 1) * math.exp(0.25))


def _spikes(share: float, low: float, high: float, commits: int, rng: np.random.Generator) -> Values:
    return np.where(rng.random(commits) < share, rng.uniform(low, high, commits), 0.0)


def _two_states(gap: float, up: float, down: float, commits: int, rng: np.random.Generator) -> Values:
    state, states = rng.random() < up / (up + down), np.zeros(commits)
    for i, draw in enumerate(rng.random(commits)):
        state = draw >= down if state else draw < up
        states[i] = gap * state
    return states


def _following(correlation: float, scale: float, commits: int, rng: np.random.Generator) -> Values:
    """Return noise whose each value keeps a part of the one before; `scale` is that of the values."""
    fresh = rng.normal(0, 1, commits)
    values = np.empty(commits)
    values[0] = fresh[0]
    for i in range(1, commits):
        values[i] = correlation * values[i - 1] + math.sqrt(1 - correlation**2) * fresh[i]
    return scale * values


def _like_a_gpu(commits: int, rng: np.random.Generator) -> Values:
    """Return residuals of a quiet device: spread .085, .149, .264 % (p10, p50, p90), correlation .41, far points."""
    spread = 0.149 * math.exp(rng.normal(0, 0.442))
    core = _following(0.41, spread, commits, rng)
    far = rng.random(commits) < min(0.28, 0.04 * math.exp(rng.normal(0, 0.8)))
    size = rng.lognormal(math.log(1.2), 0.5, commits) * rng.choice((-1.0, 1.0), commits)
    return core + np.where(far, size, 0.0)


def hits(found: Sequence[int], planted: Sequence[int], margin: int = MARGIN_COMMITS) -> int:
    """Return how many planted changes were found, one to one, the nearest pair first.

    >>> hits([98, 103, 40], [100])
    1
    """
    pairs = sorted(
        (abs(a - b), i, j) for i, a in enumerate(found) for j, b in enumerate(planted) if abs(a - b) <= margin
    )
    seen: set[int] = set()
    taken: set[int] = set()
    for _, i, j in pairs:
        if i not in seen and j not in taken:
            seen.add(i)
            taken.add(j)
    return len(taken)
