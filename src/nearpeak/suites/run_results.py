"""Results of a suite run: passed cases, time per case, and reasons for exclusion."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nearpeak.core.answers.suite import Suite
from nearpeak.core.runs.estimate import quantile
from nearpeak.core.runs.measurement import TIMED, Measurement, Outcome
from nearpeak.core.work.case import Case
from nearpeak.suites.case_weights import fleet_of, weights_of

NOT_RUN, DEGENERATE = "not run", "degenerate"
"""Reasons: the case has no result; the case passes although its check could not have detected an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """Chosen cases that do not count, for one reason."""

    reason: str
    """Outcome of the measurement, or NOT_RUN."""
    case_count: int
    """Cases."""
    flop_ratio: float
    """Their share of the FLOP-weighted calls, workloads alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOfSuite:
    """Results of a suite's cases."""

    passed: frozenset[str]
    """Digests of cases that ran with correct results and whose check can detect wrong ones (check V0)."""
    unchecked_count: int
    """Of these, how many were timed without a check of their results."""
    time_s: Mapping[Case, float]
    """Median of one call of each case of the suite that was timed, whether it counts as passed or not."""
    excluded: tuple[Excluded, ...]
    """Chosen cases that did not pass, by reason, the heaviest first."""


def run_of(suite: Suite, measurements: Iterable[Measurement]) -> RunOfSuite:
    """Return outcomes and times of the chosen cases of `suite`; of the other cases only times are used.

    A case passes when one of its measurements does and none is wrong; of several launches the median counts.

    >>> from nearpeak.suites.directed_cases import directed_suite
    >>> suite = directed_suite("fill")
    >>> run_of(suite, []).excluded[0].case_count == len(suite.chosen)
    True
    """
    rows: dict[Case, list[Measurement]] = {entry.case: [] for entry in suite.cases}
    for entry in measurements:
        if entry.case in rows:
            rows[entry.case].append(entry)
    reasons = {entry.case: _reason(rows[entry.case]) for entry in suite.chosen}
    timed = {case: [entry for entry in entries if entry.outcome in TIMED] for case, entries in rows.items()}
    passed = [case for case, reason in reasons.items() if not reason]
    return RunOfSuite(
        passed=frozenset(case.digest for case in passed),
        unchecked_count=sum(all(entry.validation is None for entry in timed[case]) for case in passed),
        time_s={case: quantile(sorted(entry.estimate().centre_s for entry in entries), 0.5)
                for case, entries in timed.items() if entries},
        excluded=_excluded(suite, {case: reason for case, reason in reasons.items() if reason}),
    )  # fmt: skip


def _reason(measurements: list[Measurement]) -> str:
    """Return why a case with these measurements does not count; empty when it does."""
    outcomes = [measurement.outcome for measurement in measurements]
    if Outcome.INCORRECT in outcomes:
        return Outcome.INCORRECT.value
    if any(outcome in TIMED for outcome in outcomes):
        return DEGENERATE if any(map(_degenerate, measurements)) else ""
    return outcomes[-1].value if outcomes else NOT_RUN


def _degenerate(measurement: Measurement) -> bool:
    """Return whether validation found that a constant output would pass."""
    return measurement.validation is not None and any(
        row.status == "DEGENERATE_CASE" for row in measurement.validation.results
    )


def _excluded(suite: Suite, reasons: Mapping[Case, str]) -> tuple[Excluded, ...]:
    weights = fleet_of(weights_of(suite, "flop"))
    rows: dict[str, tuple[int, float]] = {}
    for case, reason in reasons.items():
        count, weight = rows.get(reason, (0, 0.0))
        rows[reason] = (count + 1, weight + weights.get(case, 0.0))
    excluded = [Excluded(reason=name, case_count=n, flop_ratio=weight) for name, (n, weight) in rows.items()]
    return tuple(sorted(excluded, key=lambda row: (-row.flop_ratio, -row.case_count, row.reason)))
