"""Coverage of a suite: share of workload time, of directed test obligations, and of detected mutants."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UseShare:
    """Share of a workload's weight that the selected cases represent."""

    workload: str
    """Name of the source; `fleet` for all, each workload counting alike."""
    currency: str
    """Weight: calls, flop or time."""
    identity: str
    """Criterion by which a case represents another: exact, class or saturated."""
    covered_ratio: float | None
    """Weight covered over weight of all cases; none where nothing weighs anything, or a weight is unknown."""
    effective_ratio: float | None = None
    """The same, each case times its mutation score; none where no score was measured."""
    untimed_count: int = 0
    """Cases called that no time is known for; above 0 this share of time is unknown. 0 in other currencies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectedShare:
    """Share of the obligations of an operator that the cases which are run meet."""

    op: str
    """Operator; `all` for all of them together."""
    met_count: int
    """Obligations that a case meets."""
    valid_count: int
    """Obligations that a legal case can meet."""
    infeasible_count: int
    """Obligations that none was found for; the suite names each with the reason."""
    effective_count: float | None = None
    """Sum of the best mutation score of a case for each obligation met; none where no score was measured."""

    @property
    def covered_ratio(self) -> float | None:
        """Met over valid; none without any obligation."""
        return self.met_count / self.valid_count if self.valid_count else None

    @property
    def effective_ratio(self) -> float | None:
        """Scores over valid; none where nothing was measured."""
        return None if self.effective_count is None or not self.valid_count else self.effective_count / self.valid_count


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteCoverage:
    """All three numbers, none of which replaces another."""

    use: tuple[UseShare, ...]
    """By workload and for the fleet, by currency and identity."""
    directed: tuple[DirectedShare, ...]
    """By operator, and all together last."""
    scored_count: int | None
    """Cases run that have a mutation score; none where no scores were given."""
    chosen_count: int
    """Cases that are run."""
    case_count: int
    """Cases that the suite knows."""
    uncovered: Mapping[str, int]
    """Calls of the workloads that no operator covers, by name; they count as uncovered in calls, and are not in the
    other currencies, where their weight is not known."""
    untimed_count: int = 0
    """Cases that no time is known for; where a workload calls one, its share of time is unknown."""
