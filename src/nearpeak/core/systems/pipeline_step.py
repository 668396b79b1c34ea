"""The time of one training step of a pipeline, with idle time and micro-batches in flight by rank."""

from collections.abc import Mapping
from dataclasses import dataclass

from nearpeak.core.systems.system_timeline import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStep:
    """When the ranks of a pipeline worked and idled in one step."""

    schedule: str
    """Name of the schedule."""
    busy_s: tuple[float, ...]
    """Time that each rank computes."""
    start_s: tuple[float, ...]
    """Start of each rank's first op."""
    stop_s: tuple[float, ...]
    """End of each rank's last op."""
    in_flight_count: tuple[int, ...]
    """Most passes through a stage whose activations a rank holds at once."""
    stage_spans_s: tuple[Mapping[int, tuple[float, float]], ...] = ()
    """Start of the first forward and end of the last backward pass of each stage of each rank."""
    spans: tuple[Span, ...] = ()
    """Ops and transfers, where they were requested."""

    @property
    def step_s(self) -> float:
        """Time from the start of the step to the end of its last op."""
        return max(self.stop_s)

    @property
    def period_s(self) -> float:
        """Time between two steps that follow each other without a barrier: the longest stretch of any rank."""
        return max(stop - start for start, stop in zip(self.start_s, self.stop_s, strict=True))

    @property
    def idle_s(self) -> tuple[float, ...]:
        """Time of the step that each rank does not compute."""
        return tuple(self.step_s - busy for busy in self.busy_s)

    @property
    def bubble_s(self) -> tuple[float, ...]:
        """Time between a rank's first and last op in which it does not compute."""
        return tuple(
            stop - start - busy for start, stop, busy in zip(self.start_s, self.stop_s, self.busy_s, strict=True)
        )

    @property
    def idle_ratio(self) -> float:
        """Idle time of all ranks over their time in the step."""
        return sum(self.idle_s) / (self.step_s * len(self.busy_s)) if self.step_s else 0.0
