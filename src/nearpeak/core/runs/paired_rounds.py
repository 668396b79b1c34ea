"""Interleaved A/B rounds: baseline and candidate of one case in alternating child processes."""

from dataclasses import dataclass

from nearpeak.core.work.case import Case

IMPROVEMENT, INVARIANT, REGRESSION, INCONCLUSIVE = "improvement", "invariant", "regression", "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One pair of processes of their own that took turns."""

    four_log_ratio: tuple[float, ...]
    """Of each four turns A B B A or B A A B: mean logarithm of the candidate's times minus that of the baseline's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A ratio of times with its interval, and what follows."""

    verdict: str
    """`improvement`, `invariant`, `regression` or `inconclusive`."""
    time_ratio: float
    """Candidate over baseline; below 1 the candidate is faster."""
    low_ratio: float
    """Lower end of the interval."""
    high_ratio: float
    """Upper end."""
    tolerance_ratio: float
    """Change up to which the two count as the same."""
    detectable_ratio: float
    """Smallest change that as many rounds of this spread would find in 95 of 100 cases."""
    round_count: int
    """Rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedComparison:
    """Two runners, or two software stacks, on one case."""

    case: Case
    """The case that ran."""
    baseline: str
    """Runner of the baseline."""
    candidate: str
    """Runner of the candidate."""
    clock: str
    """Compared time: `cpu`, `wall` or the device's `device`."""
    rounds: tuple[Round, ...]
    """Observations."""
    judgement: Judgement | None
    """Verdict; none where one of the two could not run."""
    outcome: str
    """`compared`, or the outcome of the one that could not run."""
    note: str = ""
    """Reason for having no verdict."""
    differences: tuple[tuple[str, str, str], ...] = ()
    """Differences of the environments: name, baseline value, candidate value."""
