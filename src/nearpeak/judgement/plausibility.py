"""Plausibility check: measurements below their bounds become findings with evidence and are never clamped."""

import dataclasses
from collections.abc import Mapping, Sequence

from nearpeak.core.answers.analysis import CaseRow, CaseTime, TargetAnalysis
from nearpeak.core.runs.below_bound_finding import BelowBound
from nearpeak.core.runs.measurement import Measurement
from nearpeak.core.work.case import Case


def with_measurements(
    rows: Sequence[CaseRow], target: TargetAnalysis, taken: Mapping[Case, Measurement]
) -> TargetAnalysis:
    """Return `target` with the shortest run of each row's case, or why there is none, and a finding below its bound."""
    pairs = list(zip(rows, target.times, strict=True))
    runs = [(time, taken[row.case]) for row, time in pairs]
    times = [
        dataclasses.replace(time, measured_s=_shortest_s(run),
                            unmeasured="" if run.samples_s else f"{run.outcome.value}: {run.note}")
        for time, run in runs
    ]  # fmt: skip
    findings = [below_bound(row, time, target, taken[row.case]) for row, time in pairs]
    return dataclasses.replace(
        target, times=tuple(times), below_bound=tuple(finding for finding in findings if finding)
    )


def below_bound(row: CaseRow, time: CaseTime, target: TargetAnalysis, measurement: Measurement) -> BelowBound | None:
    """Return the finding that a measurement is below the bound by more than the timer's resolution; none if it is not.

    Indices and masks that a runner makes up are values too, so that the lower end of an interval counts.
    """
    shortest_s = _shortest_s(measurement)
    if shortest_s is None or shortest_s + measurement.timer_s >= time.bound_s:
        return None
    return BelowBound(
        label=row.label, digest=row.case.digest, measured_s=shortest_s, samples_s=measurement.samples_s,
        timer_s=measurement.timer_s, bound_s=time.bound_s, limiter=time.limiter, terms_s=time.terms_s,
        runner=measurement.runner, assumptions=target.assumptions,
    )  # fmt: skip


def _shortest_s(measurement: Measurement) -> float | None:
    return measurement.best_s if measurement.samples_s else None
