"""Planted slowdowns found over commits and components, by comparisons with noise."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from benchmarks._figures import Figure
from nearpeak.bisection.noisy_search import MOST_STEPS, BisectAxis, Bisection, bisected

FIGURES = ("bisect_steps", "bisect_most_steps", "bisect_right", "bisect_right_wide", "bisect_right_with_skips",
           "bisect_both_causes")  # fmt: skip
TRIALS, SLOWDOWN_RATIO, SPREAD_RATIO = 200, 1.05, 0.01
COMMITS, COMPONENTS = 256, 3


def measure() -> Iterator[Figure]:
    """Yield steps and right answers: 256 commits and 3 components; 3 components of 256 commits each; harder ones."""
    plain = [trial((COMMITS, *(1,) * COMPONENTS), seed) for seed in range(TRIALS)]
    wide = [trial((COMMITS,) * COMPONENTS, seed) for seed in range(TRIALS)]
    steps = [len(found.steps) for found, _ in (*plain, *wide)]
    median, most = max(_median(plain), _median(wide)), max(steps)
    yield _figure("bisect_steps", median, "steps", "<= 15 in the median", passed=median <= 15)
    yield _figure("bisect_most_steps", most, "steps", f"<= {MOST_STEPS}", passed=most <= MOST_STEPS)
    for name, rows in (("bisect_right", plain), ("bisect_right_wide", wide)):
        yield _figure(name, _right(rows), "%", f">= 99 % of {TRIALS}", passed=_right(rows) >= 99)
    skips = _right([trial((COMMITS, 3, 3), seed, broken_ratio=0.2) for seed in range(TRIALS)])
    yield _figure("bisect_right_with_skips", skips, "%", ">= 97 % where a fifth cannot be built", passed=skips >= 97)
    both = _right([trial((128, 2), seed, causes=2) for seed in range(TRIALS)])
    yield _figure("bisect_both_causes", both, "%", ">= 95 % where two causes add up", passed=both >= 95)


def trial(lengths: Sequence[int], seed: int, *, broken_ratio: float = 0.0, causes: int = 1) -> tuple[Bisection, bool]:
    """Return one search on axes of so many changes, and whether it named the planted ones and no other."""
    rng = np.random.default_rng((seed, *lengths, causes))
    axes = [BisectAxis(name=f"axis{i}", versions=tuple(map(str, range(n + 1)))) for i, n in enumerate(lengths)]
    suspects = [(axis.name, version) for axis in axes for version in range(1, len(axis.versions))]
    planted = [suspects[i] for i in rng.choice(len(suspects), causes, replace=False)]
    needed = {("axis0", version + side) for _, version in planted for side in (-1, 0)}
    broken = {k for k in range(1, lengths[0]) if rng.random() < broken_ratio and ("axis0", k) not in needed}

    def measure_one(baseline: Mapping[str, str], candidate: Mapping[str, str]) -> float | None:
        if {int(baseline["axis0"]), int(candidate["axis0"])} & broken:
            return None
        more = sum((int(candidate[a]) >= v) - (int(baseline[a]) >= v) for a, v in planted)
        return math.exp(more * math.log(SLOWDOWN_RATIO) + rng.normal(0, SPREAD_RATIO))

    found = bisected(axes, SLOWDOWN_RATIO**causes, SPREAD_RATIO, measure_one, most_steps=MOST_STEPS * causes)
    named = {(one.axis, int(one.after)) for one in found.culprits}
    return found, named == set(planted)


def _median(rows: Sequence[tuple[Bisection, bool]]) -> float:
    return statistics.median(len(found.steps) for found, _ in rows)


def _right(rows: Sequence[tuple[Bisection, bool]]) -> float:
    return 100 * sum(right for _, right in rows) / len(rows)


def _figure(name: str, value: float, unit: str, bar: str, *, passed: bool) -> Figure:
    return Figure(name=name, value=value, unit=unit, bar=bar, passed=passed, seed=0)
