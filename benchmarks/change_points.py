"""Change points on series with planted changes: the generator is accepted, then the detector's figures are taken."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks._figures import Figure
from benchmarks._series import (
    COMMITS,
    FAMILIES,
    FOUR_FAMILIES,
    FOUR_SIZES,
    SIZES,
    Values,
    four_steps,
    hits,
    one_step,
)
from nearpeak.judgement.change_points import changes

FIGURES = (
    "series_rbf_f1", "series_rbf_false", "series_pelt_f1", "change_f1", "change_false", "change_recall_1",
    "change_recall_2", "change_recall_5", "change_recall_10", "change_four_f1", "change_ms",
)  # fmt: skip
FITTED, QUOTED = range(30), range(1000, 1030)
"""Seeds on which thresholds were chosen, and those of the figures."""
Detector = Callable[[Values], Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What a detector did on all series of some seeds."""

    precision: float
    """Hits over detections, one change, all families and sizes."""
    recall: dict[float, float]
    """Share of planted changes found, by size."""
    false_per_1000: float
    """Detections on series without a change, for each 1,000 commits."""
    four_f1: float
    """F1 on series with four changes."""

    @property
    def f1(self) -> float:
        """F1 over all families and sizes."""
        return _f1(self.precision, statistics.fmean(self.recall.values()))


def measure() -> Iterator[Figure]:
    """Yield the public detectors on the generator, then our figures from seeds that nothing was fitted on."""
    rbf = scored(by_kernel, FITTED)
    yield _figure(
        "series_rbf_f1", rbf.f1, "", "0.82 ± 0.03: the generator is the stated one", abs(rbf.f1 - 0.82) <= 0.03
    )
    yield _figure("series_rbf_false", rbf.false_per_1000, "", "1.4 ± 0.4", abs(rbf.false_per_1000 - 1.4) <= 0.4)
    pelt = scored(by_squares, FITTED)
    yield _figure("series_pelt_f1", pelt.f1, "", "0.22 ± 0.03", abs(pelt.f1 - 0.22) <= 0.03)
    ours = scored(ours_confirmed, QUOTED)
    yield _figure("change_f1", ours.f1, "", ">= 0.82", ours.f1 >= 0.82)
    yield _figure("change_false", ours.false_per_1000, "per 1,000 commits", "<= 1", ours.false_per_1000 <= 1)
    for size, least in ((0.01, 0.0), (0.02, 0.75), (0.05, 0.99), (0.10, 0.99)):
        found = ours.recall[size]
        bar = f">= {least:.0%}" if least else ""
        yield _figure(f"change_recall_{size:.0%}".rstrip("%"), 100 * found, "%", bar, found >= least)
    yield _figure("change_four_f1", ours.four_f1, "", ">= 0.91", ours.four_f1 >= 0.91)
    each_ms = 1000 * processor_s()
    yield _figure("change_ms", each_ms, "ms", "<= 5 ms for 200 commits", each_ms <= 5)


def scored(detector: Detector, seeds: Sequence[int]) -> Score:
    """Return how a detector does on the series of all families and sizes."""
    planted, found, right, false = 0, 0, 0, 0
    recall = {}
    for size in SIZES:
        rows = [_row(detector, *one_step(family, size, seed)) for family in FAMILIES for seed in seeds]
        recall[size] = sum(hit for hit, _, _ in rows) / len(rows)
        right, found = right + sum(hit for hit, _, _ in rows), found + sum(count for _, count, _ in rows)
    for family in FAMILIES:
        false += sum(len(detector(one_step(family, 0.0, seed)[0])) for seed in seeds)
    rows = [_row(detector, *four_steps(f, size, seed)) for f in FOUR_FAMILIES for size in FOUR_SIZES for seed in seeds]
    hit, count, planted = (sum(row[i] for row in rows) for i in range(3))
    return Score(
        precision=right / max(found, 1), recall=recall,
        false_per_1000=1000 * false / (len(FAMILIES) * len(seeds) * COMMITS),
        four_f1=_f1(hit / max(count, 1), hit / planted),
    )  # fmt: skip


def _row(detector: Detector, values: Values, planted: tuple[int, ...]) -> tuple[int, int, int]:
    found = detector(values)
    return hits(found, planted), len(found), len(planted)


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def ours_confirmed(values: Values) -> list[int]:
    """Return nearpeak's confirmed changes."""
    return [one.index for one in changes(values).confirmed]


def by_kernel(values: Values) -> list[int]:
    """Return what ruptures finds with a Gaussian kernel of the median distance and a penalty of 3 ln n."""
    import ruptures

    fitted = ruptures.KernelCPD(kernel="rbf", min_size=2).fit(np.log(values))
    return [int(one) for one in fitted.predict(pen=3 * math.log(values.size))[:-1]]


def by_squares(values: Values) -> list[int]:
    """Return what ruptures finds with least squares and a penalty of 10 variances (of neighbours' steps) times ln n."""
    import ruptures

    x = np.log(values)
    steps = np.diff(x)
    spread = 1.4826 * float(np.median(np.abs(steps - np.median(steps)))) / math.sqrt(2)
    fitted = ruptures.KernelCPD(kernel="linear", min_size=2).fit(x)
    return [int(one) for one in fitted.predict(pen=10 * spread**2 * math.log(values.size))[:-1]]


def processor_s() -> float:
    """Return the processor time of one series over all families: the least of some passes, as others work here too."""
    series = [one_step(family, 0.05, seed)[0] for family in FAMILIES for seed in range(4)]
    passes = []
    for _ in range(5):
        begun_s = time.process_time()
        for values in series:
            changes(values)
        passes.append((time.process_time() - begun_s) / len(series))
    return min(passes)


def _figure(name: str, value: float, unit: str, bar: str, passed: bool) -> Figure:
    return Figure(name=name, value=value, unit=unit, bar=bar, passed=passed, seed=QUOTED.start)
