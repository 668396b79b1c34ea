"""Difference of expected and executed time by cause, in integer nanoseconds that add up exactly."""

from dataclasses import dataclass
from typing import NamedTuple

TERMS = {
    "units": "products that matrix units could form, on vector units",
    "casts": "casts between formats",
    "layout": "conversions of layouts",
    "comm": "communication that nothing covers",
    "copies": "copies and fills that nothing covers",
    "idle": "idle time",
    "scaler": "scaling of the loss",
    "kernels": "kernels slower than expected",
    "unmatched": "work that is not expected, less expected work that was never seen",
}
"""Names of the terms and what they hold, in the order in which they take events."""


class Part(NamedTuple):
    """One part of the difference."""

    term: str
    """One of TERMS."""
    detail: str
    """Cause of idle time, or empty."""
    time_ns: int
    """Executed less expected time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """Executed less expected time of the steps looked at, by cause."""

    expected_ns: int
    """Expected time of all steps, one operator after the other, nothing idle."""
    executed_ns: int
    """Time of all steps."""
    parts: tuple[Part, ...]
    """Parts of the difference; they add up to it."""
    covered_ratio: float
    """Part of the busy time in operators that have an expected time."""

    @property
    def residual_ns(self) -> int:
        """Return the unexplained rest of the difference; 0 unless something is counted twice."""
        return self.executed_ns - self.expected_ns - sum(part.time_ns for part in self.parts)
