"""The speed-of-light score of SOL-ExecBench, and the typed findings that replace it where it is undefined."""

from dataclasses import dataclass

from nearpeak.core.answers.bound import Bound
from nearpeak.errors import SpecError

SCORE = "score"
HEADROOM = "headroom"
BELOW_BOUND = "BELOW_BOUND"
BASELINE_BELOW_BOUND = "BASELINE_BELOW_BOUND"
CLOCKS_DIFFER = "CLOCKS_DIFFER"

_CLOCK_AGREEMENT_RATIO = 0.01
"""Clocks that differ by less are the same setting: drivers round to steps of 15 MHz."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Score of a measured time relative to a baseline and a bound."""

    kind: str
    """`score`, `headroom` (the same figure where the bound lacks parts), or why there is none: a typed finding."""
    score_ratio: float | None
    """1 at the bound, 0.5 at the baseline; none where the finding forbids it."""
    bound_ratio: float
    """Bound over measured time, not clamped: above 1 is a finding."""
    assumptions: tuple[str, ...]
    """What the bound rests on."""


def sol_score(
    time_s: float,
    baseline_s: float,
    bound: Bound,
    *,
    clock_hz: float | None = None,
    bound_clock_hz: float | None = None,
) -> Score:
    """Return the score of a kernel that took `time_s`, or the finding that replaces it.

    S = 1 / (1 + (time - bound) / (baseline - bound)). Outside bound <= time and bound < baseline the formula leaves
    0 to 1 or divides by zero, so that there is no score but a finding: it is never clamped.

    Args:
        clock_hz: clock at which time and baseline were measured, if it was locked.
        bound_clock_hz: clock of the bound's peaks.

    Raises:
        SpecError: a time is not above 0.

    Source: SOL-ExecBench, scoring; the guard is ours.

    >>> from nearpeak.core.answers.bound import Bound
    >>> bound = Bound(time_s=1.0, limiter="dram", terms=(), roofline_s=1.0, launch_floor_s=None, assumptions=())
    >>> sol_score(1.5, 2.0, bound).score_ratio, sol_score(0.5, 2.0, bound).kind
    (0.6666666666666666, 'BELOW_BOUND')
    """
    for name, given_s in (("time", time_s), ("baseline", baseline_s)):
        if not given_s > 0:
            raise SpecError(f"score: {name} is {given_s!r} s; it must be above 0")
    kind = _kind(time_s, baseline_s, bound, clock_hz, bound_clock_hz)
    exists = kind in (SCORE, HEADROOM)
    score_ratio = 1 / (1 + (time_s - bound.time_s) / (baseline_s - bound.time_s)) if exists else None
    return Score(kind=kind, score_ratio=score_ratio, bound_ratio=bound.time_s / time_s, assumptions=bound.assumptions)


def _kind(time_s: float, baseline_s: float, bound: Bound, clock_hz: float | None, bound_clock_hz: float | None) -> str:
    if (
        clock_hz is not None
        and bound_clock_hz is not None
        and abs(clock_hz - bound_clock_hz) > _CLOCK_AGREEMENT_RATIO * bound_clock_hz
    ):
        return CLOCKS_DIFFER
    if time_s < bound.time_s:
        return BELOW_BOUND
    if baseline_s <= bound.time_s:
        return BASELINE_BELOW_BOUND
    return HEADROOM if bound.uncovered or "A10" in bound.assumptions else SCORE
