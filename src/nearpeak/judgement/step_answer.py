"""The answer on a step in one execution mode: its expected time, what shortens it, whether it keeps a limit."""

import dataclasses
from collections.abc import Mapping, Sequence
from math import inf
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


def unpredicted_of(target: TargetAnalysis) -> Mapping[str, int]:
    """Return the calls that the expected time of a target leaves out, by the reason without the target's name."""
    unpredicted = {} if target.prediction is None else target.prediction.unpredicted
    return {reason.replace(target.target, ""): count for reason, count in unpredicted.items()}


def execution_of(analysis: Analysis, target: TargetAnalysis) -> ExecutionTime | None:
    """Return the time in the execution mode of the analysis; none where modes make no difference."""
    return next((execution for execution in target.executions if execution.mode == analysis.execution), None)


def energy_of(analysis: Analysis, target: TargetAnalysis) -> float | None:
    """Return the energy of a step in the execution mode of the analysis; none where it is unknown."""
    execution = execution_of(analysis, target)
    if execution is not None:
        return execution.energy_j
    energy = target.prediction.energy if target.prediction is not None else None
    return None if energy is None else energy.energy_j


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


def proposals_of(analysis: Analysis, target: TargetAnalysis) -> tuple[Opportunity, ...]:
    """Return what shortens a step, the remedy of the largest cause of its gap first, then the largest gain.

    A larger batch is none of them, see `larger_batch`.
    """
    expected = expected_of(analysis, target)
    proposals = [change for change in target.opportunities if change.kind != "batch" and change.before_s]
    if expected is None or not expected.gap_s:
        return tuple(proposals)
    remedy = remedy_of(proposals, largest_cause(expected))
    return tuple(sorted(proposals, key=lambda change: change is not remedy))


def largest_cause(expected: Expected) -> str:
    """Return the cause of most of the time beyond the bound."""
    return max(expected.gap_s, key=lambda name: expected.gap_s[name])


def larger_batch(target: TargetAnalysis) -> Opportunity | None:
    """Return what a larger batch gives, for more throughput at a longer step; none where it gives nothing."""
    return next((change for change in target.opportunities if change.kind == "batch" and change.before_s), None)


def every_proposal(analysis: Analysis, target: TargetAnalysis) -> tuple[Opportunity, ...]:
    """Return what is worth trying: what shortens the step, see `proposals_of`, then a larger batch."""
    batch = larger_batch(target)
    return (*proposals_of(analysis, target), *([batch] if batch is not None else []))


def keeps_limit(analysis: Analysis, change: Opportunity, limit: TimeLimit) -> bool:
    """Return whether a changed step is expected to keep a limit: a step's time as now, an item's times all its items.

    A token of each sequence takes as long as the step, however many sequences there are; their rate is of all.
    """
    items = items_of(analysis)
    is_of_step = limit.noun == "step" or (items.is_one_each and not limit.is_rate)
    return change.step_s <= limit.step_s(items) * (1.0 if is_of_step else change.item_ratio)


def fastest_first(analysis: Analysis) -> Analysis:
    """Return the analysis with its targets by expected time; those last that hold no step or have no expected time.

    Times that leave out calls are too short, and follow whole ones. Where the host sets the time of several, the time
    of their kernels decides.
    """

    def order(target: TargetAnalysis) -> tuple[bool, bool, bool, float, float]:
        expected, execution = expected_of(analysis, target), execution_of(analysis, target)
        kernels_s = target.bound_s if execution is None else execution.device_s
        time_s = inf if expected is None else expected.time_s
        return target.fit.fits is False, expected is None, bool(unpredicted_of(target)), time_s, kernels_s

    return dataclasses.replace(analysis, targets=tuple(sorted(analysis.targets, key=order)))


def limit_verdict(analysis: Analysis, target: TargetAnalysis, limit: TimeLimit) -> LimitVerdict:
    """Return whether the step keeps a limit on a target."""
    expected = expected_of(analysis, target)
    return LimitVerdict(
        limit=limit, allowed_s=limit.step_s(items_of(analysis)), bound_s=target.bound_s,
        expected_s=None if expected is None else expected.time_s, low_s=None if expected is None else expected.low_s,
        high_s=None if expected is None else expected.high_s,
    )  # fmt: skip
