"""Verdict on paired rounds: improvement, invariant or regression by tolerance, interval and detectable change."""

import functools
import math
import statistics
from collections.abc import Sequence

from nearpeak.core.runs.paired_rounds import IMPROVEMENT, INCONCLUSIVE, INVARIANT, REGRESSION, Judgement, Round
from nearpeak.errors import SpecError

LOOKS = (5, 10, 20)
"""Rounds after which a verdict may be given; fixed in advance, as looking after every round finds what is not there."""
ALPHA_RATIO = 0.004
"""Chance that the interval of one look misses the true ratio; of three looks together about one in a hundred."""
TRIMMED_RATIO, TRIMMED_FROM = 0.2, 10
"""Part of the rounds at each end that is left out, and the rounds from which on: beside other load some are far off."""
SAME_RATIO = 0.10
"""The interval that must lie within the tolerance for two to count as the same is that of 90 %."""
POWER_RATIO = 0.95
"""Share of cases in which the detectable change is found."""


def judged(rounds: Sequence[Round], tolerance_ratio: float) -> Judgement:
    """Return the verdict on `rounds`; with the roles swapped it is mirrored.

    A round counts once, by the median over its fours of turns: within a pair of processes, samples share their memory
    layout, so that the process is what is repeated. Regression: the interval of the mean over rounds (from 10 on, the
    trimmed mean) lies above 0 and the mean is at least the tolerance. Improvement is the mirror. Invariant: neither,
    and the 90 % interval lies within the tolerance. Otherwise inconclusive.

    Raises:
        SpecError: fewer than two rounds, or a tolerance that is not between 0 and 1.

    >>> same = [Round(four_log_ratio=(x,)) for x in (0.001, -0.001, 0.0, 0.002, -0.002)]
    >>> judged(same, 0.02).verdict
    'invariant'
    """
    if len(rounds) < 2:
        raise SpecError(f"compare: {len(rounds)} rounds; a verdict needs at least 2")
    if not 0 < tolerance_ratio < 1:
        raise SpecError(f"compare: tolerance {tolerance_ratio!r} is not between 0 and 1; e.g. 0.02")
    values = [statistics.median(pair.four_log_ratio) for pair in rounds]
    if not all(map(math.isfinite, values)):
        raise SpecError("compare: a round has no finite ratio; times must be positive")
    count, tolerance = len(values), math.log1p(tolerance_ratio)
    mean, error, freedom = trimmed_mean(values)
    reach = student_quantile(1 - ALPHA_RATIO / 2, freedom) * error
    same = student_quantile(1 - SAME_RATIO / 2, freedom) * error
    detectable = reach + student_quantile(POWER_RATIO, freedom) * error
    return Judgement(
        verdict=verdict_of(mean, reach, same, floor=tolerance, margin=tolerance), time_ratio=math.exp(mean),
        low_ratio=math.exp(mean - reach), high_ratio=math.exp(mean + reach), tolerance_ratio=tolerance_ratio,
        detectable_ratio=max(tolerance_ratio, math.expm1(min(detectable, 50.0))), round_count=count,
    )  # fmt: skip


def trimmed_mean(values: Sequence[float]) -> tuple[float, float, int]:
    """Return the mean of the middle values, its standard error and degrees of freedom; of fewer than 10, of all.

    Source: Yuen 1974, Biometrika 61(1): the variance is that of the values with both ends drawn in.

    >>> trimmed_mean([0.0] * 5 + [1.0] * 4 + [99.0])[0], trimmed_mean([1.0, 2.0])[2]
    (0.5, 1)
    """
    count = len(values)
    cut = int(TRIMMED_RATIO * count) if count >= TRIMMED_FROM else 0
    ordered = sorted(values)
    middle = ordered[cut : count - cut]
    drawn = [middle[0]] * cut + middle + [middle[-1]] * cut
    middle_count = len(middle)
    error = math.sqrt((count - 1) * statistics.variance(drawn) / (middle_count * (middle_count - 1)))
    return statistics.fmean(middle), error, middle_count - 1


def verdict_of(effect: float, reach: float, same: float, *, floor: float, margin: float) -> str:
    """Return what follows from an effect (a difference of logarithms) and the half widths of its intervals.

    Args:
        reach: half width of the interval that must exclude 0 for a change.
        same: half width of the interval that must lie within `margin` for no change.
        floor: least effect that counts as a change.

    >>> [verdict_of(one, 0.004, 0.003, floor=0.005, margin=0.01) for one in (0.02, -0.02, 0.001, 0.009)]
    ['regression', 'improvement', 'invariant', 'regression']
    """
    if abs(effect) >= floor and abs(effect) > reach:
        return REGRESSION if effect > 0 else IMPROVEMENT
    return INVARIANT if abs(effect) + same < margin else INCONCLUSIVE


def rounds_needed(rounds: Sequence[Round], tolerance_ratio: float) -> int:
    """Return how many rounds of this spread would find a change of the tolerance; at least two.

    >>> wide = [Round(four_log_ratio=(x,)) for x in (0.05, -0.05, 0.03, -0.03, 0.0)]
    >>> rounds_needed(wide, 0.02)
    93
    """
    spread = statistics.stdev(statistics.median(pair.four_log_ratio) for pair in rounds)
    wanted = math.log1p(tolerance_ratio)
    count = 2
    while count < 10_000:
        quantiles = (student_quantile(share, count - 1) for share in (1 - ALPHA_RATIO / 2, POWER_RATIO))
        if sum(quantiles) * spread / math.sqrt(count) <= wanted:
            break
        count += 1
    return count


@functools.lru_cache(maxsize=1024)
def student_quantile(share_ratio: float, freedom_count: int) -> float:
    """Return the quantile of Student's distribution above one half, by bisection of its closed form.

    Source: Abramowitz and Stegun 1972, 26.7.3 and 26.7.4.

    >>> round(student_quantile(0.975, 4), 3), round(student_quantile(0.998, 9), 3), round(student_quantile(0.95, 1), 3)
    (2.776, 3.835, 6.314)
    """
    low, high = 0.0, 1.0
    while _student_share(high, freedom_count) < share_ratio:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_share(middle, freedom_count) < share_ratio else (low, middle)
    return (low + high) / 2


def _student_share(t: float, freedom_count: int) -> float:
    """Return the share of Student's distribution below `t` >= 0."""
    angle = math.atan2(t, math.sqrt(freedom_count))
    cosine, sine = math.cos(angle), math.sin(angle)
    even = freedom_count % 2 == 0
    term = total = 1.0 if even else cosine
    for k in range(2 if even else 3, freedom_count - 1, 2):
        term *= (k - 1) / k * cosine**2
        total += term
    if even:
        return 0.5 + sine * total / 2
    return 0.5 + (angle + (sine * total if freedom_count > 1 else 0.0)) / math.pi
