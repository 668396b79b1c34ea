"""Result of a numerics validation: checks that ran, largest error over tolerance, and how to reproduce it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nearpeak.core.work.case import Case

PASS, SKIPPED = "PASS", "SKIPPED"
FAILURES = (
    "DEGENERATE_CASE", "SHAPE_FAIL", "DTYPE_FAIL", "MUTATED_INPUT", "ALIASED_OUTPUT", "OOB_WRITE", "NUMERIC_FAIL",
    "CHANGED_STATE", "NONDET", "FALLBACK", "CRASH", "TIMEOUT", "OOM", "UNSUPPORTED", "INVALID_REFERENCE",
)  # fmt: skip
"""Statuses of a check that did not pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstElement:
    """The element that came nearest to its bound, or went furthest beyond it."""

    output: str
    """Output by name; a gradient as `grad_<input>`."""
    offset: tuple[int, ...]
    """Its position, in elements along each dimension."""
    got: str
    """Value of the implementation, as Python writes it."""
    expected: str
    """Value of the reference."""
    bound: str
    """Greatest difference that the contract permits there."""
    bound_ratio: float
    """Difference over the bound; above 1 it fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Result of one check."""

    check: str
    """`V0` to `V12`."""
    status: str
    """`PASS`, `SKIPPED` or one of FAILURES."""
    reason: str = ""
    """Reason of failure or skipping, in one line."""
    worst: WorstElement | None = None
    """Of checks that compare values."""
    figures: Mapping[str, str] = field(default_factory=dict)
    """Further observations by name: units in the last place, bias, counts of NaN and infinities."""

    @property
    def failed(self) -> bool:
        """Whether the check found something."""
        return self.status in FAILURES


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The record of one implementation on one case; the same seed gives it again."""

    case: Case
    """The case."""
    implementation: str
    """Implementation."""
    seed: int
    """Seed of all inputs."""
    results: tuple[CheckResult, ...]
    """One for each check, in order."""
    command: str
    """Command line that shows it again."""
    policy: Mapping[str, str] = field(default_factory=dict)
    """The contract as it read for the case: its kind, what it says of NaN, how much may be stored on the way."""
    engine: str = ""
    """Versions of nearpeak, of its validation, and of the library that generated inputs and ran."""

    @property
    def status(self) -> str:
        """Status of the first failing check, or PASS.

        >>> nothing = Validation(case=Case(op="fill", phase="forward", axes=(), dtypes=()), implementation="x", seed=0,
        ...                      results=(CheckResult(check="V1", status="SHAPE_FAIL"),), command="")
        >>> nothing.status, nothing.failed
        ('SHAPE_FAIL', ('V1',))
        """
        return next((result.status for result in self.results if result.failed), PASS)

    @property
    def reason(self) -> str:
        """Reason of the first failed check; empty when none failed."""
        return next((result.reason for result in self.results if result.failed), "")

    @property
    def failed(self) -> tuple[str, ...]:
        """Checks that failed."""
        return tuple(result.check for result in self.results if result.failed)

    @property
    def worst(self) -> WorstElement | None:
        """The element furthest from the reference in units of its bound, over all checks."""
        worst = [result.worst for result in self.results if result.worst is not None]
        return max(worst, key=lambda check: check.bound_ratio, default=None)

    @property
    def worst_bound_ratio(self) -> float:
        """Largest difference over its bound; 0 where nothing was compared."""
        return 0.0 if self.worst is None else self.worst.bound_ratio
