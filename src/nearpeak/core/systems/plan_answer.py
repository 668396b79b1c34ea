"""Answers of a search for plans: the best, the undominated ones, counts of the refused, and measured neighbours."""

from collections.abc import Mapping
from dataclasses import dataclass

from nearpeak.core.systems.rank_memory import RankMemory
from nearpeak.core.systems.training_plan import TrainingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """One plan with its figures."""

    plan: TrainingPlan
    """The plan."""
    step_s: float
    """Time of a step."""
    tokens_per_s: float
    """Tokens of a step over its time."""
    token_price: float
    """Price of one token, in the currency of the device's price; 0 without one."""
    allocated_bytes: int
    """Memory of the fullest rank's tensors."""
    free_bytes: int
    """Memory that its device has left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer:
    """What a search found."""

    best: PlanResult
    """Fastest plan; among equals the one that leaves most memory."""
    ties: tuple[PlanResult, ...]
    """Executed plans whose time lies within the interval of the best's."""
    open_count: int
    """Plans that were not executed although their bound lies within that interval."""
    front: tuple[PlanResult, ...]
    """Executed plans that no executed plan beats in tokens per second, price and free memory at once."""
    refused: Mapping[str, int]
    """Combinations that are no plan, by reason; `memory` counts legal plans that do not fit, `step` plans that
    the model of the step, or the closer look at their memory, refused."""
    legal_count: int
    """Legal plans, whether they fit or not."""
    fitting_count: int
    """Plans that fit."""
    executed_count: int
    """Plans whose step was timed."""

    @property
    def executed_ratio(self) -> float:
        """Executed over legal plans."""
        return self.executed_count / self.legal_count


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEdit:
    """One change of a plan with what it brings."""

    change: str
    """Field, old and new value: `tp 8 → 4, dp 4 → 8`."""
    plan: TrainingPlan
    """The changed plan."""
    memory: RankMemory
    """Memory of its fullest rank."""
    step_s: float | None
    """Its step; none where it does not fit."""
    gain_ratio: float | None
    """Saved time over the present step's, negative where it is slower; none where it does not fit."""
    is_beyond_interval: bool
    """Whether the change is larger than the interval of predictions."""


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
