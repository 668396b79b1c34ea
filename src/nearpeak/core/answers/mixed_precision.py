"""Expected gain of mixed precision: bounds of a step as written and of the same step under autocast."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nearpeak.errors import SpecError

BASELINES = ("fp32", "tf32", "default")
"""How fp32 products run: on fp32 units; rounded to TF32; as PyTorch's flags stand at first, which is TF32 for
convolutions (`torch.backends.cudnn.allow_tf32`) and fp32 for matrix products (`float32_matmul_precision`)."""
LEAST_SPEED_UP = 1.05
"""Expected speed-up below which nothing is concluded from how much of it was reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Measured share of documented rates that operators reach; 1 is the bound."""

    flop_ratio: float = 1.0
    """FLOP over time over the documented rate, of products that the rate limits."""
    bandwidth_ratio: float = 1.0
    """Bytes over time over the documented bandwidth, of operators that memory limits."""
    source: str = ""
    """Source of the measurement; empty without one."""
    flop_count: int = 0
    """Operators behind `flop_ratio`; 1 is kept where there are too few."""
    bandwidth_count: int = 0
    """Operators behind `bandwidth_ratio`; likewise."""

    def __post_init__(self) -> None:
        """Refuse what is no part of a documented rate."""
        if not (0 < self.flop_ratio <= 1 and 0 < self.bandwidth_ratio <= 1):
            raise SpecError(
                f"efficiency: {self.flop_ratio:g} and {self.bandwidth_ratio:g} must be above 0 and at most 1"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """One change of format that autocast inserts."""

    shape: tuple[int, ...]
    """Extents of what is cast."""
    before: str
    """Format that it had."""
    after: str
    """Format that it gets."""
    of: str
    """Kind of tensor that is cast: weight, input, activation, …; gradient in the backward pass."""
    consumer: str
    """Operator that it is made for: the one that reads it, in the backward pass the one whose gradient it casts."""
    module: str
    """Module in which it runs."""
    time_s: float
    """Least time of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredPart:
    """All calls of one operator, in both precisions."""

    operator: str
    """Name under which the framework calls it."""
    call_count: int
    """Calls of the step as written."""
    lowered_count: int
    """Calls of it in the lowered step."""
    baseline_s: Mapping[str, float]
    """Its time as written, by one of BASELINES."""
    lowered_s: float
    """Its time lowered, casts apart."""
    cast_s: float
    """Time of the casts made for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedPrecision:
    """Expected times of a step as written, under autocast, and converted as a whole."""

    name: str
    """Workload."""
    step: str
    """`forward`, `decode` or `train`."""
    target: str
    """Device."""
    format: str
    """Format that autocast lowers to: bf16 or fp16."""
    call_count: int
    """Operators of the step as written."""
    lowered_count: int
    """Operators of the lowered step, casts included."""
    fixed_s: float
    """Host time added to each operator in sequence; 0 gives the device's sum alone."""
    baseline_s: Mapping[str, float]
    """Time of the step as written, by one of BASELINES."""
    lowered_s: float
    """Time of the lowered step, casts and scaler included."""
    cast_s: float
    """Part of `lowered_s` that casts take."""
    scaler_s: float
    """Part of it that scaling the loss and checking gradients take; fp16 training only."""
    converted_s: float | None
    """Time of the model converted as a whole (`.half()`), without casts; none where that was not captured."""
    ahead_s: Mapping[str, float]
    """Time of the step as written, by one of BASELINES, with a host that issues ahead: `fixed_s` for each operator."""
    ahead_lowered_s: float
    """The same of the lowered step; a GradScaler makes the host wait once."""
    fused_s: float
    """Time of the lowered step where a compiler puts casts into its own kernels, and fuses nothing else."""
    kept_cast_count: int
    """Casts that stay kernels then: those that kernels of libraries need of weights and inputs."""
    parts: tuple[LoweredPart, ...]
    """Operators, largest first."""
    casts: tuple[Cast, ...]
    """Casts in the order in which they run."""
    memory_bound_ratio: float
    """Part of the step's fp32 time in operators that memory limits, whose speed-up is at most 2."""
    assumptions: tuple[str, ...] = field(default=())
    """Assumptions behind the figures, in sentences."""

    def speed_up_ratio(self, baseline: str = "default") -> float:
        """Return time as written over time lowered."""
        return self.baseline_s[baseline] / self.lowered_s

    def ahead_ratio(self, baseline: str = "default") -> float:
        """Return time as written over time lowered, with a host that issues ahead."""
        return self.ahead_s[baseline] / self.ahead_lowered_s

    @property
    def cast_count(self) -> int:
        """Casts that autocast inserts."""
        return len(self.casts)

    @property
    def cast_ratio(self) -> float:
        """Part of the lowered step that casts take."""
        return self.cast_s / self.lowered_s if self.lowered_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionVerdict:
    """Whether autocast will pay."""

    verdict: str
    """`pays`, `pays only in a graph` or `does not pay`."""
    speed_up_ratio: float
    """Expected time as PyTorch's flags stand over time lowered, on the device alone."""
    eager_ratio: float
    """The same with an eager host, which issues ahead and takes its time for each operator."""
    serial_ratio: float
    """The same with a host that waits for each operator, whose host time is added."""
    reasons: tuple[str, ...]
    """Assumptions, in sentences."""
