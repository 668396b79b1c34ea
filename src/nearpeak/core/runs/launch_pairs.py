"""Interleaved A/B launches: two builds in alternating child processes on one device, with sustained clocks."""

from dataclasses import dataclass

from nearpeak.core.runs.paired_rounds import Judgement

BASELINE, CANDIDATE = "baseline", "candidate"
BY_CLOCKS = "slower through clocks"
"""Cause of a change that is there in time and gone at equal clocks: power or temperature, not the code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One child process; launches are in the order of execution."""

    arm: str
    """`baseline` or `candidate`."""
    time_s: float
    """Median over its samples of the time of one call."""
    clock_hz: float | None = None
    """Mean clock of the device meanwhile; none where unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchJudgement:
    """A verdict on launches, with the clock taken into account and without."""

    judgement: Judgement
    """The verdict: at equal clocks where clocks are known and differ, else the plain one."""
    plain: Judgement
    """The verdict on times alone."""
    clock_ratio: float | None
    """Mean clock of the candidate over that of the baseline; none where a clock is unknown."""
    clock_share_ratio: float | None
    """Part of a change of the clock that shows in the time (1: bound by it, 0: by memory); none if not fitted."""
    cause: str = ""
    """`slower through clocks` where the plain verdict is a regression and the one at equal clocks is not."""
