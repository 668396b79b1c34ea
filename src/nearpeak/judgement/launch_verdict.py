"""Verdict on interleaved launches of two builds: sequential least squares with arm, drift and clock, three looks."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from nearpeak.core.runs.launch_pairs import BASELINE, BY_CLOCKS, CANDIDATE, Launch, LaunchJudgement
from nearpeak.core.runs.paired_rounds import INCONCLUSIVE, INVARIANT, REGRESSION, Judgement
from nearpeak.errors import SpecError
from nearpeak.judgement.paired_verdict import ALPHA_RATIO, POWER_RATIO, SAME_RATIO, student_quantile, verdict_of

Floats = NDArray[np.float64]
LOOKS = (3, 5, 10)
"""Rounds A B B A after which a verdict may be given."""
TURN = (BASELINE, CANDIDATE, CANDIDATE, BASELINE)
"""One round: the palindrome cancels steady drift."""
MARGIN_RATIO = 0.01
"""Default change up to which two builds count as equal."""
FLOOR_RATIO = 0.005
"""Smaller changes are never called one."""
CLOCK_RATIO = 0.001
"""Clocks that differ less than this explain nothing."""
_WIDEST = 50.0


def judged_launches(
    launches: Sequence[Launch],
    margin_ratio: float = MARGIN_RATIO,
    *,
    alpha_ratio: float = ALPHA_RATIO,
    floor_ratio: float = FLOOR_RATIO,
) -> LaunchJudgement:
    """Return the verdict on launches in the order in which they ran; with the arms swapped it is mirrored.

    The logarithm of each launch's median is arm + drift per launch + share of the clock's logarithm. Regression: the
    interval of the arm's effect lies above 0, and the effect is at least the floor; improvement is the mirror;
    invariant: neither, and its 90 % interval lies within the margin. A build that changes the clock itself cannot be
    told from the clock: the interval grows and the verdict is inconclusive.

    Args:
        alpha_ratio: chance that the interval misses the true effect, at this look.

    Raises:
        SpecError: fewer than two launches of an arm, a time or clock that is not positive and finite, a margin that is
            not between 0 and 1.

    >>> times = (1.0, 1.05, 1.051, 1.001, 0.999, 1.049, 1.05, 1.0, 1.001, 1.05, 1.05, 0.999)
    >>> arms = ("baseline", "candidate", "candidate", "baseline") * 3
    >>> judged_launches([Launch(arm=a, time_s=t) for a, t in zip(arms, times)]).judgement.verdict
    'regression'
    """
    _check(launches, margin_ratio)
    arm = np.array([launch.arm == CANDIDATE for launch in launches], dtype=np.float64)
    x = np.log([launch.time_s for launch in launches])
    limits = (alpha_ratio, floor_ratio, margin_ratio)
    base: list[Floats] = [np.ones(x.size), arm, np.arange(x.size, dtype=np.float64) - (x.size - 1) / 2]
    # With hardly any launches a drift cannot be told from noise; what would be left has no freedom.
    columns = base if x.size > 4 else base[:2]
    plain, _ = judged_column(x, columns, 1, limits)
    if any(launch.clock_hz is None for launch in launches):
        return LaunchJudgement(judgement=plain, plain=plain, clock_ratio=None, clock_share_ratio=None)
    clock = np.log(np.array([launch.clock_hz for launch in launches], dtype=np.float64))
    ratio = math.exp(clock[arm == 1].mean() - clock[arm == 0].mean())
    if np.ptp(clock) < CLOCK_RATIO or x.size <= len(columns) + 1:
        return LaunchJudgement(judgement=plain, plain=plain, clock_ratio=ratio, clock_share_ratio=None)
    verdict, effects = judged_column(x, [*columns, clock - clock.mean()], 1, limits)
    through = plain.verdict == REGRESSION and verdict.verdict == INVARIANT
    cause = BY_CLOCKS if through else ""
    share = -float(effects[-1])
    return LaunchJudgement(judgement=verdict, plain=plain, clock_ratio=ratio, clock_share_ratio=share, cause=cause)


def _check(launches: Sequence[Launch], margin_ratio: float) -> None:
    if not 0 < margin_ratio < 1:
        raise SpecError(f"judge: margin {margin_ratio!r} is not between 0 and 1; e.g. 0.01")
    for arm in (BASELINE, CANDIDATE):
        if (count := sum(launch.arm == arm for launch in launches)) < 2:
            raise SpecError(f"judge: {count} launches of the {arm}; a verdict needs at least 2")
    for launch in launches:
        if launch.arm not in (BASELINE, CANDIDATE):
            raise SpecError(f"judge: arm {launch.arm!r} is neither {BASELINE} nor {CANDIDATE}")
        if not (math.isfinite(launch.time_s) and launch.time_s > 0):
            raise SpecError(f"judge: time {launch.time_s!r} s of a launch is not positive and finite")
        if launch.clock_hz is not None and not (math.isfinite(launch.clock_hz) and launch.clock_hz > 0):
            raise SpecError(f"judge: clock {launch.clock_hz!r} Hz of a launch is not positive and finite")


def judged_column(
    x: Floats, columns: Sequence[Floats], which: int, limits: tuple[float, float, float]
) -> tuple[Judgement, Floats]:
    """Return the verdict on the effect of one column by least squares, and the effects of all.

    Args:
        x: logarithms of times.
        limits: chance that the interval misses, floor and margin.
    """
    alpha, floor, margin = limits
    design = np.stack(list(columns), axis=1)
    freedom = x.size - design.shape[1]
    fitted, error = _least_squares(design, x, which)
    effect = float(fitted[which])
    reach = min(student_quantile(1 - alpha / 2, freedom) * error, _WIDEST)
    same = student_quantile(1 - SAME_RATIO / 2, freedom) * error
    detectable = reach + student_quantile(POWER_RATIO, freedom) * min(error, _WIDEST)
    return Judgement(
        verdict=verdict_of(effect, reach, same, floor=math.log1p(floor), margin=math.log1p(margin)),
        time_ratio=math.exp(effect), low_ratio=math.exp(effect - reach), high_ratio=math.exp(effect + reach),
        tolerance_ratio=margin, detectable_ratio=max(floor, math.expm1(min(detectable, _WIDEST))),
        round_count=x.size // 4,
    ), fitted  # fmt: skip


def _least_squares(design: Floats, x: Floats, which: int) -> tuple[Floats, float]:
    """Return the effects and the standard error of one; the widest where the columns are not independent."""
    freedom = x.size - design.shape[1]
    scale = np.sqrt((design**2).sum(axis=0))
    fitted, _, rank, _ = np.linalg.lstsq(design / scale, x, rcond=1e-9)
    left = x - design @ (fitted / scale)
    if rank < design.shape[1]:
        return fitted / scale, _WIDEST
    inverse = np.linalg.inv((design / scale).T @ (design / scale))
    return fitted / scale, float(np.sqrt(left @ left / freedom * inverse[which, which]) / scale[which])


def compared_in_looks(
    measure_round: Callable[[], Sequence[Launch]], margin_ratio: float = MARGIN_RATIO, looks: Sequence[int] = LOOKS
) -> LaunchJudgement:
    """Return the verdict of the first look that gives one; only an inconclusive look buys more rounds.

    Args:
        measure_round: runs one round A B B A and returns its launches in order.
    """
    launches: list[Launch] = []
    for rounds in range(1, max(looks) + 1):
        launches += measure_round()
        if rounds in looks:
            judgement = judged_launches(launches, margin_ratio)
            if judgement.judgement.verdict != INCONCLUSIVE:
                return judgement
    return judged_launches(launches, margin_ratio)
