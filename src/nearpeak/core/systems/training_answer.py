"""The predicted step of a training plan: its time, interval, parts that add up, stages and provenance."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from nearpeak.core.systems.system_timeline import Span

PART_NAMES = (
    "proved bound", "kernels below peak", "host", "exposed tp", "exposed pp", "exposed dp", "exposed ep", "exposed cp",
    "bubble", "imbalance", "branch idle", "optimizer", "straggler",
)  # fmt: skip
"""Parts of a step, in the order of a waterfall."""


class StepPart(NamedTuple):
    """A part of the time of a step."""

    name: str
    """One of PART_NAMES."""
    time_s: float
    """Its time."""
    ground: str
    """What it rests on."""


class StageTime(NamedTuple):
    """Times of one micro-batch on one pipeline stage."""

    stage: int
    """Stage."""
    forward_s: float
    """Forward pass."""
    backward_s: float
    """Backward pass with gradients of weights and recomputation."""
    kernel_s: float
    """Kernels alone, both passes."""
    host_s: float
    """Device waiting for the host, both passes."""
    exposed_s: float
    """Collectives that no kernel hides, both passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingAnswer:
    """What one training step takes."""

    step_s: float
    """Expected time of a step."""
    low_s: float
    """Low end of the 90 % interval."""
    high_s: float
    """High end of the 90 % interval."""
    resolved_ratio: float
    """Half-width of the interval over the step, without what a stack that nothing confirms adds: other plans of the
    same installation share that."""
    token_count: int
    """Tokens of a step over all replicas."""
    device_count: int
    """Devices."""
    model_flop: float
    """FLOP of the model's products on one device in one step, without recomputation."""
    peak_flop_per_s: float
    """Documented rate of the products' format on one device; 0 where no document states it."""
    parts: tuple[StepPart, ...]
    """Parts of the step; they add up to `step_s`."""
    stages: tuple[StageTime, ...]
    """Times of each stage."""
    spans: tuple[Span, ...] = ()
    """Timeline of the pipeline, one rank per stage."""
    trust: Mapping[str, float]
    """Share of the step's time by provenance: `measured`, `neighbours`, `assumptions`."""
    stack: str
    """Software stack whose host times were taken."""
    notes: tuple[str, ...] = ()
    """Assumptions, a sentence each."""

    @property
    def tokens_per_s_device(self) -> float:
        """Tokens per second and device."""
        return self.token_count / self.step_s / self.device_count

    @property
    def mfu(self) -> float | None:
        """Model FLOP utilisation: FLOP of the model over what the products' peak allows; none without a peak."""
        return self.model_flop / self.step_s / self.peak_flop_per_s if self.peak_flop_per_s else None

    @property
    def parts_s(self) -> Mapping[str, float]:
        """Time by part."""
        return {part.name: part.time_s for part in self.parts}
