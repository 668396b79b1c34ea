"""Comparison of two analyses: calls that became faster, slower or stayed, and calls without a counterpart."""

from dataclasses import dataclass

BETTER = "better"
WORSE = "worse"
SAME = "same"
NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One figure in both analyses."""

    quantity: str
    """Field of the analysis, whose suffix is the unit: `bound_s`, `fused_bytes`."""
    pair: tuple[str, float, float]
    """Unit, figure of the baseline, figure of the candidate."""
    verdict: str
    """`better` (the candidate needs less), `worse` or `same`; `not comparable` where only one has the case."""

    @property
    def ratio(self) -> float | None:
        """Candidate over baseline; below 1 the candidate needs less, none when the baseline is 0."""
        _, baseline, candidate = self.pair
        return candidate / baseline if baseline else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseComparison:
    """One case on one target in both analyses."""

    label: str
    """The case in one line."""
    digest: str
    """Identity of the case."""
    verdict: str
    """That of the time of all its calls: the expected one where both have it, else that of the bounds."""
    reason: str
    """Reason for which it is not comparable; empty when it is."""
    changes: tuple[Change, ...]
    """Bound of one call where both have it, calls, the bound of all calls, and last their expected time, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetComparison:
    """One target in both analyses."""

    target: str
    """Target name."""
    verdict: str
    """That of the expected time of the whole step where both have one of the same calls, else that of its bound."""
    reason: str
    """Reason for which it is not comparable, or by its bounds only; else empty."""
    changes: tuple[Change, ...]
    """Times of the whole step, first the one that the verdict is of."""
    cases: tuple[CaseComparison, ...]
    """Cases of either analysis, largest difference of time first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A candidate against a baseline; with the roles swapped every verdict is mirrored."""

    baseline: str
    """Workload of the baseline."""
    candidate: str
    """Workload of the candidate."""
    reason: str
    """Reason for which whole steps are not comparable; empty when they are."""
    changes: tuple[Change, ...]
    """Work and memory of the step, which need no target."""
    targets: tuple[TargetComparison, ...]
    """Targets of either analysis."""
