"""The answer on a step in one execution mode: its expected time, what shortens it, whether it keeps a limit."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nearpeak.core.answers.analysis import Analysis, Opportunity, TargetAnalysis
from nearpeak.core.answers.execution_time import HOST, TRAFFIC, ExecutionTime
from nearpeak.core.answers.items import items_of
from nearpeak.core.answers.time_limit import LimitVerdict, TimeLimit

_REMEDIES: Mapping[str, Sequence[str]] = {
    HOST: ("fusion", "graph", "constants"),
    "launch": ("fusion", "constants"),
    TRAFFIC: ("fusion", "layout"),
    "bandwidth": ("weights", "kv_cache", "precision"),
    "power": ("precision",),
}
"""Kinds of opportunities that shorten a cause of the gap."""
_MUCH_RATIO = 2.0
"""Gain by which another opportunity is named instead."""


class Expected(NamedTuple):
    """The expected time that a headline is about."""

    time_s: float
    """Expected time of a step."""
    low_s: float
    """Low end of its 90 % interval."""
    high_s: float
    """High end of its 90 % interval."""
    gap_s: Mapping[str, float]
    """Time beyond the bound by cause; adds up to the time less the bound."""
    kernel_count: int
    """Kernels that run."""


def expected_of(analysis: Analysis, target: TargetAnalysis) -> Expected | None:
    """Return the expected time in the execution mode of the analysis; none where nothing is predicted."""
    execution = execution_of(analysis, target)
    if execution is not None:
        return Expected(
            execution.time_s, execution.low_s, execution.high_s, execution.gap_s, execution.kernel_count
        )  # fmt: skip
    step = target.prediction
    if step is None:
        return None
    gap = {**step.gap_s, TRAFFIC: step.bound_s - target.bound_s}
    return Expected(step.time_s, step.low_s, step.high_s, gap, step.call_count)


def execution_of(analysis: Analysis, target: TargetAnalysis) -> ExecutionTime | None:
    """Return the time in the execution mode of the analysis; none where modes make no difference."""
    return next((execution for execution in target.executions if execution.mode == analysis.execution), None)


def remedy_of(opportunities: Sequence[Opportunity], cause: str) -> Opportunity | None:
    """Return the best opportunity that shortens a cause of the gap; the best of all where that gains much more.

    A larger batch answers another question: it lengthens the step.
    """
    candidates = sorted(
        (opportunity for opportunity in opportunities if opportunity.kind != "batch"),
        key=lambda opportunity: -opportunity.gain_s,
    )
    related = [candidate for candidate in candidates if candidate.kind in _REMEDIES.get(cause, ())]
    if not candidates or (related and related[0].gain_s * _MUCH_RATIO >= candidates[0].gain_s):
        return related[0] if related else None
    return candidates[0]


def limit_verdict(analysis: Analysis, target: TargetAnalysis, limit: TimeLimit) -> LimitVerdict:
    """Return whether the step keeps a limit on a target."""
    expected = expected_of(analysis, target)
    return LimitVerdict(
        limit=limit, allowed_s=limit.step_s(items_of(analysis)), bound_s=target.bound_s,
        expected_s=None if expected is None else expected.time_s, low_s=None if expected is None else expected.low_s,
        high_s=None if expected is None else expected.high_s,
    )  # fmt: skip
