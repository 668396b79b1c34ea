"""Results of a suite run: passed cases, time per case, and reasons for exclusion."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nearpeak.core.answers.suite import Suite
from nearpeak.core.runs.estimate import quantile
from nearpeak.core.runs.measurement import TIMED, Measurement, Outcome
from nearpeak.core.work.case import Case
from nearpeak.suites.case_weights import fleet_of, weights_of

NOT_RUN, DEGENERATE = "not run", "degenerate"
"""Reasons of chosen cases of which there is no result, and of those that could not have told a wrong one."""


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
    """Digests of cases that ran, whose results were not wrong, and that could have told a wrong one (check V0)."""
    unchecked_count: int
    """Of these, how many were timed without a check of their results."""
    time_s: Mapping[Case, float]
    """Median of one call of each case of the suite that was timed, whether it counts as passed or not."""
    excluded: tuple[Excluded, ...]
    """Chosen cases that did not pass, by reason, the heaviest first."""


def run_of(suite: Suite, found: Iterable[Measurement]) -> RunOfSuite:
    """Return what the measurements `found` say of the chosen cases of `suite`; of its others only times are taken.

    A case passes when one of its measurements does and none is wrong; of several launches the median counts.

    >>> from nearpeak.suites.directed_cases import directed_suite
    >>> suite = directed_suite("fill")
    >>> run_of(suite, []).excluded[0].case_count == len(suite.chosen)
    True
    """
    rows: dict[Case, list[Measurement]] = {one.case: [] for one in suite.cases}
    for one in found:
        if one.case in rows:
            rows[one.case].append(one)
    reasons = {one.case: _reason(rows[one.case]) for one in suite.chosen}
    timed = {case: right for case, own in rows.items() if (right := [one for one in own if one.outcome in TIMED])}
    passed = [case for case, reason in reasons.items() if not reason]
    return RunOfSuite(
        passed=frozenset(case.digest for case in passed),
        unchecked_count=sum(all(one.validation is None for one in timed[case]) for case in passed),
        time_s={case: quantile(sorted(one.estimate().centre_s for one in own), 0.5) for case, own in timed.items()},
        excluded=_excluded(suite, {case: reason for case, reason in reasons.items() if reason}),
    )  # fmt: skip


def _reason(own: list[Measurement]) -> str:
    """Return why a case with these measurements does not count; empty when it does."""
    outcomes = [one.outcome for one in own]
    if Outcome.INCORRECT in outcomes:
        return Outcome.INCORRECT.value
    if any(one in TIMED for one in outcomes):
        return DEGENERATE if any(map(_degenerate, own)) else ""
    return outcomes[-1].value if outcomes else NOT_RUN


def _degenerate(one: Measurement) -> bool:
    """Return whether the contract says that a constant would pass."""
    return one.validation is not None and any(row.status == "DEGENERATE_CASE" for row in one.validation.results)


def _excluded(suite: Suite, reasons: Mapping[Case, str]) -> tuple[Excluded, ...]:
    weights = fleet_of(weights_of(suite, "flop"))
    rows: dict[str, tuple[int, float]] = {}
    for case, reason in reasons.items():
        count, weight = rows.get(reason, (0, 0.0))
        rows[reason] = (count + 1, weight + weights.get(case, 0.0))
    found = [Excluded(reason=name, case_count=n, flop_ratio=weight) for name, (n, weight) in rows.items()]
    return tuple(sorted(found, key=lambda one: (-one.flop_ratio, -one.case_count, one.reason)))
