"""Difference of two traces: step time, contributions to the difference, and operators present in both."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class OperatorPair(NamedTuple):
    """One operator with its shapes, aligned between two traces; times of a step in nanoseconds."""

    name: str
    """Operator and case."""
    baseline_ns: float
    """Device time in the baseline."""
    candidate_ns: float
    """Device time in the candidate."""
    baseline_calls: float
    """Calls in the baseline."""
    candidate_calls: float
    """Calls in the candidate."""
    baseline_of_bound: float | None
    """Bound over measured in the baseline, each on its own device."""
    candidate_of_bound: float | None
    """Bound over measured in the candidate."""


class UnpairedDevice(NamedTuple):
    """A device that only one of two traces has, so that nothing can be compared with it."""

    device_number: int | None
    """Its number."""
    name: str
    """Trace."""
    where: str
    """`baseline` or `candidate`."""

    @property
    def verdict(self) -> str:
        """Return the verdict on it."""
        return "not comparable"

    @property
    def reason(self) -> str:
        """Return the reason for having none."""
        return f"device {self.device_number} is only in the {self.where}, {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceDifference:
    """Changes from a baseline to a candidate."""

    baseline: str
    """Trace of the baseline, with its device."""
    candidate: str
    """Trace of the candidate, with its device."""
    verdict: str
    """Of the step: `improvement`, `invariant`, `regression`, `inconclusive` or `not comparable`."""
    reason: str
    """Basis of the verdict, or the reason for having none."""
    step_ratio: float
    """Step of the candidate over that of the baseline."""
    low_ratio: float | None
    """Low end of the 95 % interval; none where steps are too few."""
    high_ratio: float | None
    """High end."""
    tolerance_ratio: float
    """Change up to which the two count as the same."""
    baseline_step_s: float
    """Mean step of the baseline."""
    candidate_step_s: float
    """Mean step of the candidate."""
    parts: tuple[tuple[str, float], ...]
    """Causes of the step difference, in seconds; they add up to it."""
    operators: tuple[OperatorPair, ...]
    """Aligned operators, largest change first."""
    aligned_ratio: float | None
    """Part of all operator calls that is aligned; none where one of the traces has no operators."""
    by_kernel: bool
    """Whether `operators` are kernels of the same name instead, as neither trace has operators."""
    classes: tuple[tuple[str, float, float], ...]
    """Busy time, then device time by what kernels compute, in seconds of a step: baseline and candidate."""
    unnamed: tuple[str, ...]
    """Traces whose device is not known, so that they have no bounds."""
    findings: tuple[tuple[str, float | None, float | None], ...]
    """Findings with their gains in baseline and candidate, in seconds; 0 where there is none, none where the trace
    cannot tell."""
    device_numbers: tuple[int | None, int | None] = (None, None)
    """Numbers of the device in baseline and candidate."""


DeviceResult = TraceDifference | UnpairedDevice
"""What is said of one device of two traces."""
_WORST_FIRST = ("regression", "not comparable", "inconclusive", "improvement", "invariant")


def worst_of(results: Sequence[DeviceResult]) -> DeviceResult:
    """Return the device with the worst verdict: a regression, then one that nothing can be said of."""
    return min(results, key=lambda result: _WORST_FIRST.index(result.verdict))
