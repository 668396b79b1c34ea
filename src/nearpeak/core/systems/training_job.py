"""A training job on a cluster: the step's time, memory by stage, changes, alternatives and goodput."""

from dataclasses import dataclass
from typing import Any

from nearpeak.core.records.record_codec import Codec
from nearpeak.core.systems.goodput import GoodputReport
from nearpeak.core.systems.plan_answer import MeasuredNeighbour, PlanAnswer, PlanEdit
from nearpeak.core.systems.rank_memory import RankMemory
from nearpeak.core.systems.second_order import SecondOrderStep
from nearpeak.core.systems.training_answer import TrainingAnswer
from nearpeak.core.systems.training_plan import TrainingPlan

_RECORDS = Codec(pairs_as_objects=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTraining:
    """Everything `nearpeak plan train` answers."""

    model: str
    """Model."""
    target: str
    """Device."""
    device_count: int
    """Devices."""
    fabric: str
    """Name of the fabric."""
    plan: TrainingPlan
    """The plan that is answered for."""
    time: TrainingAnswer
    """Time of a step."""
    memory: tuple[RankMemory, ...]
    """Peak memory of a rank of each stage."""
    usd_per_device_hour: float | None = None
    """Price of one device, as it was given."""
    edits: tuple[PlanEdit, ...] = ()
    """Single changes of the plan, best first, then those that do not fit."""
    nearest_change: str = ""
    """Change that leads to the nearest plan that fits; empty where the plan fits, or none on the devices does."""
    search: PlanAnswer | None = None
    """What the search for the plan looked at; none where the plan was given."""
    goodput: GoodputReport | None = None
    """Shares of a long run's time; none unless asked for."""
    second_order: SecondOrderStep | None = None
    """What a second-order optimizer adds to the step; none unless asked for."""
    item: str = "tokens"
    """What the step's count is of: tokens, or the images, sequences or samples of a captured step."""
    neighbour: MeasuredNeighbour | None = None
    """The nearest public measurement; none for captured steps, and where it was not asked for."""
    scaling_ratio: float | None = None
    """Items per second over those of as many single devices with the same micro-batches; none where not computed."""

    @property
    def fullest(self) -> RankMemory:
        """Memory of the stage with the highest peak."""
        return max(self.memory, key=lambda memory: memory.used_bytes)

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of the whole cluster."""
        return self.time.token_count / self.time.step_s

    @property
    def usd_per_million_tokens(self) -> float | None:
        """Cost of a million tokens at the goodput that was asked for; none without a price."""
        return self.cost_of(self.tokens_per_s)

    def cost_of(self, tokens_per_s: float) -> float | None:
        """Return the cost of a million tokens at another speed; none without a price."""
        if self.usd_per_device_hour is None:
            return None
        paid_ratio = self.goodput.cost_ratio if self.goodput else 1.0  # of an hour of progress, spot prices included
        return paid_ratio * self.device_count * self.usd_per_device_hour / (3600 * tokens_per_s) * 1e6

    def record(self) -> dict[str, Any]:
        """Return the answer as plain data, with what follows from its fields."""
        record: dict[str, Any] = _RECORDS.plain(self)
        time = self.time
        for name in ("parts", "stages", "spans"):
            record["time"][name] = [row._asdict() for row in getattr(time, name)]
        if self.goodput is not None:
            record["goodput"] |= {
                "shares": {name: share._asdict() for name, share in self.goodput.shares.items()},
                "failure_count": self.goodput.failure_count._asdict(),
            }  # fmt: skip
        record |= {
            "tokens_per_s": self.tokens_per_s, "tokens_per_s_device": time.tokens_per_s_device, "mfu": time.mfu,
            "usd_per_million_tokens": self.usd_per_million_tokens, "fits": all(held.fits for held in self.memory),
        }  # fmt: skip
        if self.item != "tokens":  # the count of a captured step is of other items
            names = ("tokens_per_s", "tokens_per_s_device", "usd_per_million_tokens")
            record |= {name.replace("tokens", "items"): record.pop(name) for name in names}
            record["time"]["item_count"] = record["time"].pop("token_count")
        for held, row in zip(self.memory, record["memory"], strict=True):
            row |= {"allocated_bytes": held.allocated_bytes, "used_bytes": held.used_bytes, "fits": held.fits}
        return record
