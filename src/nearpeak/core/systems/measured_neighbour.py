"""A public measurement near a question about many devices, and what is predicted for it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredNeighbour:
    """A public measurement near a question, and what is predicted for it."""

    name: str
    """Devices, model, layout and load or batch of the measurement."""
    source: str
    """Where it was published."""
    distance: str
    """What differs from the question, in words."""
    distance_count: float
    """The same as a number: 0 for the very same question, 1 for another engine or a model of four times the size."""
    measured_s: float
    """Measured time per output token of a service, or of a training step."""
    predicted_s: float
    """Predicted time of the same."""

    @property
    def error_ratio(self) -> float:
        """Predicted over measured time, less one."""
        return self.predicted_s / self.measured_s - 1
