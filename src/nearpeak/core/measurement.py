"""A measurement: every sample of one case on one target, and who took it; and what a runner must be able to do."""

from dataclasses import dataclass
from typing import Protocol

from nearpeak.core.case import Case
from nearpeak.errors import MeasureError


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """All samples of one case; centres and ratios are derived from them."""

    case: Case
    """What ran."""
    target: str
    """Where it ran."""
    runner: str
    """What ran it."""
    samples_s: tuple[float, ...]
    """Wall time of each run; empty when it could not run."""
    timer_s: float = 0.0
    """Resolution of the timer."""
    note: str = ""
    """Why there are no samples."""

    @property
    def best_s(self) -> float:
        """Shortest sample: how near the machine came to its peak, which other load on it can only lengthen.

        Raises:
            MeasureError: there are none.
        """
        if not self.samples_s:
            raise MeasureError(f"{self.case.label()} on {self.target}: no samples: {self.note}")
        return min(self.samples_s)


class Runner(Protocol):
    """Something that can time a case."""

    name: str
    target: str

    def measure(self, case: Case) -> Measurement:
        """Return the measurement of `case`; a case that cannot run becomes one without samples."""
        ...
