"""Predicted time of a step of kernels in sequence, and the parts by which it exceeds the sum of bounds."""

from collections.abc import Mapping
from dataclasses import dataclass

from nearpeak.core.answers.expected_energy import ExpectedEnergy

CAUSES = {
    "launch": "starting kernels and filling the device",
    "wave tail": "multiprocessors that wait for the last tiles",
    "bandwidth": "memory and caches below their documented rate",
    "power": "clocks that fall under load",
    "library": "tiles, padding and pipelines of kernels as they are written",
    "bound": "the bound itself is above what the model gives",
}
"""Causes of predicted time above the bound, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPrediction:
    """The expected time of one call."""

    time_s: float
    """Expected time."""
    low_s: float
    """Low end of the 90 % interval."""
    high_s: float
    """High end of the 90 % interval."""
    gap_s: Mapping[str, float]
    """Expected time beyond the bound by cause; adds up to `time_s` less the bound."""
    energy: ExpectedEnergy | None = None
    """Expected energy; none where the power limit of the device is not documented."""
    distance_count: int = 0
    """Steps from the data of its coefficients: 0 this device … 3 another maker's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPrediction:
    """The expected time of a step's predictable calls in sequence."""

    time_s: float
    """Sum of their expected times."""
    low_s: float
    """Sum of the low ends: as if all calls missed the same way."""
    high_s: float
    """Sum of the high ends."""
    bound_s: float
    """Sum of the same calls' own bounds."""
    gap_s: Mapping[str, float]
    """Time beyond these bounds by cause; adds up to `time_s` less `bound_s`."""
    call_count: int
    """Calls that are predicted."""
    unpredicted: Mapping[str, int]
    """Calls without a prediction, by operator and reason."""
    unpredicted_bound_s: float
    """Sum of the bounds of calls without a prediction, which `time_s` does not hold."""
    grounds_s: Mapping[str, float]
    """Expected time by the steps from the data of its coefficients: `0` this device … `3` another maker's."""
    energy: ExpectedEnergy | None = None
    """Energy of the predicted calls, the sum of theirs, idle power included; none where it is unknown."""
    holds_for: str = ""
    """Duration and duty that the times hold for: seconds without a pause, or bursts."""
