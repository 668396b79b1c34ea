"""What a run of a suite came to: which cases ran and were right, what each took, and why the others did not count."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nearpeak.core.case import Case
from nearpeak.core.measurement import TIMED, Measurement
from nearpeak.core.suite import Suite
from nearpeak.suite.weights import fleet_of, weights_of

NOT_RUN = "not run"
"""Reason of chosen cases of which there is no result."""


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
    """Digests of cases that ran and whose results were not wrong."""
    unchecked_count: int
    """Of these, how many were timed without a check of their results."""
    time_s: Mapping[Case, float]
    """Median of one call of each."""
    excluded: tuple[Excluded, ...]
    """Chosen cases that did not pass, by reason, the heaviest first."""


def run_of(suite: Suite, found: Iterable[Measurement]) -> RunOfSuite:
    """Return what the measurements `found` say of the chosen cases of `suite`; others are not looked at.

    Of several measurements of a case one that passed counts.

    >>> from nearpeak.suite.directed import directed_suite
    >>> suite = directed_suite("fill")
    >>> run_of(suite, []).excluded[0].case_count == len(suite.chosen)
    True
    """
    chosen = {one.case: one for one in suite.chosen}
    best: dict[Case, Measurement] = {}
    for one in found:
        if one.case in chosen and (one.case not in best or one.outcome in TIMED):
            best[one.case] = one
    right = {case: one for case, one in best.items() if one.outcome in TIMED}
    return RunOfSuite(
        passed=frozenset(case.digest for case in right),
        unchecked_count=sum(one.validation is None for one in right.values()),
        time_s={case: one.estimate().centre_s for case, one in right.items()},
        excluded=_excluded(suite, {case: best[case].outcome.value if case in best else NOT_RUN
                                   for case in chosen if case not in right}),
    )  # fmt: skip


def _excluded(suite: Suite, reasons: Mapping[Case, str]) -> tuple[Excluded, ...]:
    weights = fleet_of(weights_of(suite, "flop"))
    rows: dict[str, tuple[int, float]] = {}
    for case, reason in reasons.items():
        count, weight = rows.get(reason, (0, 0.0))
        rows[reason] = (count + 1, weight + weights.get(case, 0.0))
    found = [Excluded(reason=name, case_count=n, flop_ratio=weight) for name, (n, weight) in rows.items()]
    return tuple(sorted(found, key=lambda one: (-one.flop_ratio, -one.case_count, one.reason)))
