"""A baseline and a candidate on one case, in turns of fresh processes: what each round saw, and what it amounts to."""

from dataclasses import dataclass

from nearpeak.core.work.case import Case

IMPROVEMENT, INVARIANT, REGRESSION, INCONCLUSIVE = "improvement", "invariant", "regression", "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One pair of fresh processes that took turns."""

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
    """What ran."""
    baseline: str
    """Runner of the baseline."""
    candidate: str
    """Runner of the candidate."""
    clock: str
    """Which time was compared: `cpu`, `wall` or the device's `device`."""
    rounds: tuple[Round, ...]
    """What was seen."""
    judgement: Judgement | None
    """What it amounts to; none where one of the two could not run."""
    outcome: str
    """`compared`, or the outcome of the one that could not run."""
    note: str = ""
    """Why there is no judgement."""
    differences: tuple[tuple[str, str, str], ...] = ()
    """Where the environments differ: what, in the baseline, in the candidate."""
