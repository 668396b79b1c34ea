"""Test of the newest value of a series against its earlier values, calibrated by the series' own contrasts."""

import math
import statistics
from collections.abc import Sequence

from nearpeak.core.runs.paired_rounds import INCONCLUSIVE, INVARIANT, REGRESSION, Judgement
from nearpeak.errors import SpecError
from nearpeak.judgement.paired_verdict import POWER_RATIO, SAME_RATIO, student_quantile, verdict_of

ALPHA_RATIO = 0.01
"""Chance that the interval misses the true ratio."""
LEAST_CONTRASTS = 4
"""Contrasts of earlier commits that the noise is taken from; with fewer, that of launches has to do."""
LEAST_SPREAD_RATIO = 5e-4
"""No history is quieter: equal values are a clock's resolution."""
MOST_LAG = 10
"""A baseline that lies further back is as uncertain as one this far."""
_ROBUST = 1.4826
"""From the median absolute deviation to the standard deviation, for normal noise."""
_MEDIAN_SHARE = 0.37
"""Part of the information that a median absolute deviation uses; it scales the degrees of freedom."""


def judged_against(
    candidate: Sequence[float], baseline: Sequence[float], before: Sequence[float], tolerance_ratio: float, *,
    lag: int = 1,
) -> Judgement | None:  # fmt: skip
    """Return the verdict on `candidate` against `baseline`; none where nothing tells how much values scatter.

    The effect is the difference of the median logarithms: a spike among earlier values moves it little. Its noise is
    what the same difference was at earlier commits: each against the median of as many commits, as far before it. So
    memory of the noise, drift, and runs that differ more than their launches are in the interval, however few commits
    the baseline is of. Where there are too few of them, launches of one commit stand in, which share more than commits
    do. Regression: the interval lies above 0, the effect is at least the tolerance.

    Args:
        candidate: launches of the judged commit.
        baseline: one value for each commit that it is compared with, or launches of the only one where `before` is
            short.
        before: one value for each commit up to the candidate, which is left out, in order.
        lag: how many commits before the candidate the newest one of the baseline lies.

    Raises:
        SpecError: there is no value, or one is not positive and finite.

    >>> before = [100.0, 100.2, 99.9, 100.1, 100.0, 99.8, 100.1]
    >>> [judged_against([one], before[-3:], before, 0.02).verdict for one in (105.0, 100.1, 96.0)]
    ['regression', 'invariant', 'improvement']
    """
    for value in (*candidate, *baseline, *before):
        if not (math.isfinite(value) and value > 0):
            raise SpecError(f"judge: value {value!r} is not positive and finite")
    logs = [[math.log(value) for value in part] for part in (candidate, baseline, before)]
    if not logs[0] or not logs[1]:
        raise SpecError("judge: candidate and baseline need a value each")
    effect = statistics.median(logs[0]) - statistics.median(logs[1])
    judgement = _by_history(logs[2], len(logs[1]), lag) or _by_launches(logs[0], logs[1])
    if judgement is None:
        return None
    error, freedom = judgement
    reach = student_quantile(1 - ALPHA_RATIO / 2, freedom) * error
    same = student_quantile(1 - SAME_RATIO / 2, freedom) * error
    seen = reach + student_quantile(POWER_RATIO, freedom) * error
    limit = math.log1p(tolerance_ratio)
    return Judgement(
        verdict=verdict_of(effect, reach, same, floor=limit, margin=limit), time_ratio=math.exp(effect),
        low_ratio=math.exp(effect - reach), high_ratio=math.exp(effect + reach), tolerance_ratio=tolerance_ratio,
        detectable_ratio=max(tolerance_ratio, math.expm1(min(seen, 50.0))), round_count=len(logs[0]),
    )  # fmt: skip


def at_both(first: Judgement, other: Judgement) -> Judgement:
    """Return what holds whichever of two judgements is right: a regression only where both say so.

    >>> before = [100.0, 100.2, 99.9, 100.1, 100.0, 99.8, 100.1]
    >>> slow, same = (judged_against([one], before[-3:], before, 0.02) for one in (105.0, 100.1))
    >>> at_both(slow, same).verdict, at_both(slow, slow).verdict
    ('inconclusive', 'regression')
    """
    verdicts = {first.verdict, other.verdict}
    open_ = verdicts & {REGRESSION, INCONCLUSIVE}
    verdict = first.verdict if len(verdicts) == 1 else INCONCLUSIVE if open_ else INVARIANT
    return Judgement(
        verdict=verdict, time_ratio=math.sqrt(first.time_ratio * other.time_ratio),
        low_ratio=min(first.low_ratio, other.low_ratio), high_ratio=max(first.high_ratio, other.high_ratio),
        tolerance_ratio=first.tolerance_ratio, detectable_ratio=max(first.detectable_ratio, other.detectable_ratio),
        round_count=first.round_count,
    )  # fmt: skip


def _by_history(before: Sequence[float], span: int, lag: int) -> tuple[float, int] | None:
    """Return standard error and degrees of freedom out of the same contrast at earlier commits."""
    lag = min(lag, MOST_LAG)
    first = lag + min(span, 3) - 1
    contrasts = [
        before[place] - statistics.median(before[max(0, place - lag - span + 1) : place - lag + 1])
        for place in range(first, len(before))
    ]
    if len(contrasts) < LEAST_CONTRASTS:
        return None
    # Times stray further upwards than downwards: the wider half counts, for both directions alike.
    sides = (
        [abs(contrast) for contrast in contrasts if contrast > 0],
        [abs(contrast) for contrast in contrasts if contrast <= 0],
    )
    middles = [statistics.median(side) for side in sides if len(side) >= LEAST_CONTRASTS]
    widest = max(middles, default=statistics.median(map(abs, contrasts)))
    return max(_ROBUST * widest, LEAST_SPREAD_RATIO), max(2, round(_MEDIAN_SHARE * len(contrasts)))


def _by_launches(candidate: Sequence[float], baseline: Sequence[float]) -> tuple[float, int] | None:
    """Return those of Welch's test on launches."""
    if len(candidate) < 2 or len(baseline) < 2:
        return None
    least = LEAST_SPREAD_RATIO**2
    parts = [(max(statistics.variance(side), least) / len(side), len(side)) for side in (candidate, baseline)]
    total = sum(part for part, _ in parts)
    freedom = total**2 / sum(part**2 / (count - 1) for part, count in parts)
    return math.sqrt(total), max(1, math.floor(freedom))
