"""The verdict on a newest value against earlier ones of its series, with the steps from commit to commit as noise."""

import itertools
import math
import statistics
from collections.abc import Sequence

from nearpeak.analyze.paired import POWER_RATIO, SAME_RATIO, student_quantile, verdict_of
from nearpeak.core.paired import Judgement
from nearpeak.errors import SpecError

ALPHA_RATIO = 0.01
"""Chance that the interval misses the true ratio."""
LEAST_STEPS = 4
"""Steps from commit to commit that the noise is taken from; with fewer, that of launches has to do."""
LEAST_SPREAD_RATIO = 5e-4
"""No history is quieter: equal values are a clock's resolution."""
_ROBUST = 1.4826 / math.sqrt(2)
"""From the median absolute step to the standard deviation of one value, for normal noise."""
_MEDIAN_SHARE = 0.37
"""Part of the information that a median absolute deviation uses; it scales the degrees of freedom."""


def judged_against(
    candidate: Sequence[float], baseline: Sequence[float], before: Sequence[float], tolerance_ratio: float, *,
    commit_count: int | None = None,
) -> Judgement | None:  # fmt: skip
    """Return the verdict on `candidate` against `baseline`; none where nothing tells how much values scatter.

    The effect is the difference of the median logarithms: a spike among earlier values moves it little. Its noise is
    that of the steps between neighbouring values of `before`, whose median a single change does not move; where there
    are too few of them, launches of one commit stand in, which share more than commits do. Regression: the interval
    lies above 0, the effect is at least the tolerance.

    Args:
        candidate: launches of the newest commit.
        baseline: one value for each commit that it is compared with, or launches of the only one.
        commit_count: commits that `baseline` is of, where its values are launches; launches share what commits do not.
        before: one value for each commit up to the candidate, which is left out, in order.

    Raises:
        SpecError: there is no value, or one is not positive and finite.

    >>> before = [100.0, 100.2, 99.9, 100.1, 100.0, 99.8, 100.1]
    >>> [judged_against([one], before[-3:], before, 0.02).verdict for one in (105.0, 100.1, 96.0)]
    ['regression', 'invariant', 'improvement']
    """
    logs = [_logs(part) for part in (candidate, baseline, before)]
    if not logs[0] or not logs[1]:
        raise SpecError("judge: candidate and baseline need a value each")
    effect = statistics.median(logs[0]) - statistics.median(logs[1])
    found = _by_history(logs[2], commit_count or len(logs[1])) or _by_launches(logs[0], logs[1])
    if found is None:
        return None
    error, freedom = found
    reach = student_quantile(1 - ALPHA_RATIO / 2, freedom) * error
    same = student_quantile(1 - SAME_RATIO / 2, freedom) * error
    seen = reach + student_quantile(POWER_RATIO, freedom) * error
    limit = math.log1p(tolerance_ratio)
    return Judgement(
        verdict=verdict_of(effect, reach, same, floor=limit, margin=limit), time_ratio=math.exp(effect),
        low_ratio=math.exp(effect - reach), high_ratio=math.exp(effect + reach), tolerance_ratio=tolerance_ratio,
        detectable_ratio=max(tolerance_ratio, math.expm1(min(seen, 50.0))), round_count=len(logs[0]),
    )  # fmt: skip


def _by_history(before: Sequence[float], baseline_count: int) -> tuple[float, int] | None:
    """Return standard error and degrees of freedom out of the steps between commits."""
    steps = [abs(new - old) for old, new in itertools.pairwise(before)]
    if len(steps) < LEAST_STEPS:
        return None
    spread = max(_ROBUST * statistics.median(steps), LEAST_SPREAD_RATIO)
    of_median = 1.0 if baseline_count < 3 else math.pi / 2
    return spread * math.sqrt(1 + of_median / baseline_count), max(2, round(_MEDIAN_SHARE * len(steps)))


def _by_launches(candidate: Sequence[float], baseline: Sequence[float]) -> tuple[float, int] | None:
    """Return those of Welch's test on launches."""
    if len(candidate) < 2 or len(baseline) < 2:
        return None
    least = LEAST_SPREAD_RATIO**2
    parts = [(max(statistics.variance(one), least) / len(one), len(one)) for one in (candidate, baseline)]
    total = sum(part for part, _ in parts)
    freedom = total**2 / sum(part**2 / (count - 1) for part, count in parts)
    return math.sqrt(total), max(1, math.floor(freedom))


def _logs(values: Sequence[float]) -> list[float]:
    for one in values:
        if not (math.isfinite(one) and one > 0):
            raise SpecError(f"judge: value {one!r} is not positive and finite")
    return [math.log(one) for one in values]
