"""The space of training plans of a model on a cluster: which degrees and choices are legal, as columns."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.errors import SpecError

DEGREES = ("tp", "pp", "cp", "dp", "ep", "etp", "chunk_count", "micro_batch")
"""Columns of a group of plans."""
CHOICES = ("schedule", "sharding", "recompute", "precision", "tp_overlap")
"""What all plans of a group have in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSpace:
    """Choices among which a search looks; degrees are all that divide unless they are stated."""

    device_count: int
    """Devices of the cluster."""
    fast_count: int
    """Devices of its innermost tier, within which tensor parallelism stays."""
    global_batch: int
    """Sequences of one step."""
    sequence: int
    """Tokens per sequence."""
    framework: str = "megatron-lm"
    """Framework, which decides the memory per parameter."""
    tp: tuple[int, ...] = ()
    """Tensor-parallel degrees; none for all powers of two."""
    pp: tuple[int, ...] = ()
    """Pipeline degrees; none for all divisors of the devices."""
    cp: tuple[int, ...] = (1,)
    """Context-parallel degrees."""
    ep: tuple[int, ...] = ()
    """Expert-parallel degrees; none for all divisors of the experts."""
    etp: tuple[int, ...] = (1,)
    """Tensor-parallel degrees inside experts."""
    chunk_counts: tuple[int, ...] = (1, 2, 4)
    """Model chunks per rank; more than one takes the interleaved schedule."""
    micro_batches: tuple[int, ...] = (1, 2, 4, 8)
    """Sequences per micro-batch."""
    schedules: tuple[str, ...] = ("1f1b", "interleaved")
    """Pipeline schedules."""
    shardings: tuple[str, ...] = ("zero1",)
    """Shardings over replicas."""
    recomputes: tuple[str, ...] = ("none", "selective", "full")
    """Recomputation."""
    precisions: tuple[str, ...] = ("bf16",)
    """Precisions."""
    tp_overlaps: tuple[bool, ...] = (False,)
    """Whether tensor-parallel collectives run under products."""
    is_even: bool = False
    """Whether stages must have equally many layers; otherwise those without interleaving may differ by one."""
    sequence_parallel: bool = True
    """Whether plans with tensor parallelism split the residual stream too."""
    is_compiled: bool = False
    """Whether pointwise calls are fused."""
    expert_load: str = "balanced"
    """Rows of experts, as plans state them."""

    def __post_init__(self) -> None:
        """Refuse spaces without devices."""
        if self.device_count < 1 or self.fast_count < 1:
            raise SpecError(f"{self.device_count} devices in tiers of {self.fast_count}: both must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanGroup:
    """Plans that differ in degrees alone: integer columns under the names of a TrainingPlan's fields."""

    space: PlanSpace
    """Space that the plans belong to."""
    schedule: str
    """Pipeline schedule."""
    sharding: str
    """Sharding over replicas."""
    recompute: str
    """Recomputation."""
    precision: str
    """Precision."""
    tp_overlap: bool
    """Whether tensor-parallel collectives run under products."""
    tp: Any
    """Column: tensor-parallel degrees."""
    pp: Any
    """Column: pipeline stages."""
    cp: Any
    """Column: context-parallel degrees."""
    dp: Any
    """Column: replicas."""
    ep: Any
    """Column: expert-parallel degrees."""
    etp: Any
    """Column: tensor-parallel degrees inside experts."""
    chunk_count: Any
    """Column: model chunks per rank."""
    micro_batch: Any
    """Column: sequences per micro-batch."""
    shard_count: int = 0
    """Ranks of a shard group under hsdp; 0 for all of dp."""
    adapter_rank: int = 0
    """Width of low-rank adapters; 0 where all weights are trained."""
    dp_overlap: bool = True
    """Whether gradients are reduced during the backward pass."""

    @property
    def framework(self) -> str:
        """Framework of all plans."""
        return self.space.framework

    @property
    def expert_load(self) -> str:
        """Even rows of experts for the closed form of the memory, which need least."""
        return "balanced"

    @property
    def global_batch(self) -> int:
        """Sequences of one step."""
        return self.space.global_batch

    @property
    def sequence(self) -> int:
        """Tokens per sequence."""
        return self.space.sequence

    @property
    def sequence_parallel(self) -> bool:
        """Whether the residual stream is split where tp is above 1."""
        return self.space.sequence_parallel

    @property
    def is_compiled(self) -> bool:
        """Whether pointwise calls are fused."""
        return self.space.is_compiled

    @property
    def micro_batch_count(self) -> Any:
        """Micro-batches per replica and step."""
        return self.space.global_batch // (self.dp * self.micro_batch)

    @property
    def rank_count(self) -> Any:
        """Ranks of each plan."""
        return self.tp * self.pp * self.cp * self.dp

    def __len__(self) -> int:
        """Count the plans."""
        return len(self.tp)

    def chosen(self, rows: Any) -> "PlanGroup":
        """Return the plans of a mask or of row numbers."""
        return replace(self, **{name: getattr(self, name)[rows] for name in DEGREES})

    def plan(self, row: int) -> TrainingPlan:
        """Return one plan as a value."""
        degrees: dict[str, Any] = {name: int(getattr(self, name)[row]) for name in DEGREES}
        return TrainingPlan(
            **degrees, global_batch=self.global_batch, sequence=self.sequence, schedule=self.schedule,
            sharding=self.sharding, recompute=self.recompute, precision=self.precision, tp_overlap=self.tp_overlap,
            framework=self.framework, sequence_parallel=self.sequence_parallel and degrees["tp"] > 1,
            is_compiled=self.is_compiled, dp_overlap=self.dp_overlap, shard_count=self.shard_count,
            expert_load=self.space.expert_load,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LegalPlans:
    """All legal plans of a space, and how many were refused for which reason."""

    groups: tuple[PlanGroup, ...]
    """Legal plans, group by group."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Combinations refused, by reason; each counts under the first that applies."""

    @property
    def count(self) -> int:
        """Legal plans."""
        return sum(len(group) for group in self.groups)


def legal_plans(shape: TransformerShape, space: PlanSpace) -> LegalPlans:
    """Return the legal plans of a model in a space.

    >>> from nearpeak.core.systems.transformer import TransformerShape
    >>> gpt = TransformerShape(name="gpt", layer_count=4, hidden=64, head_count=4, kv_head_count=4, head_width=16,
    ...                        ffn=256, is_gated=False, vocabulary=100)
    >>> plans = legal_plans(gpt, PlanSpace(device_count=8, fast_count=8, global_batch=8, sequence=64))
    >>> plans.count, sorted(plans.refused)
    (84, ['batch is no multiple of dp × micro-batch', 'chunks do not divide layers', 'micro-batches'])
    """
    degrees = _degrees(shape, space)
    groups, refused = [], dict.fromkeys(_REASONS, 0)
    choices = product(space.schedules, space.shardings, space.recomputes, space.precisions, space.tp_overlaps)
    for schedule, sharding, recompute, precision, overlap in choices:
        group = PlanGroup(
            space=space, schedule=schedule, sharding=sharding, recompute=recompute, precision=precision,
            tp_overlap=overlap, **degrees,
        )  # fmt: skip
        legal = _asked(group)
        for reason, mask in _illegal(shape, group):
            refused[reason] += int((legal & mask).sum())
            legal &= ~mask
        if legal.any():
            groups.append(group.chosen(legal))
    return LegalPlans(groups=tuple(groups), refused={reason: count for reason, count in refused.items() if count})


_REASONS = (
    "tp beyond the fast tier", "tp does not divide heads", "tp does not divide widths", "chunks do not divide layers",
    "cp does not divide sequence", "ep does not divide ranks", "batch is no multiple of dp × micro-batch",
    "micro-batches",
)  # fmt: skip


def _degrees(shape: TransformerShape, space: PlanSpace) -> dict[str, Any]:
    """Return columns of all combinations of degrees whose product is the number of devices."""
    divisors = [degree for degree in range(1, space.device_count + 1) if space.device_count % degree == 0]
    powers = [degree for degree in divisors if degree & (degree - 1) == 0 and degree <= shape.head_count]
    experts = shape.experts.count if shape.experts else 1
    expert_degrees = [degree for degree in range(1, min(experts, space.device_count) + 1) if experts % degree == 0]
    axes = (
        space.tp or powers,
        space.pp or [degree for degree in divisors if degree <= shape.layer_count],
        space.cp,
        space.ep or expert_degrees,
        space.etp,
        space.chunk_counts,
        space.micro_batches,
    )
    grid = np.meshgrid(*[np.array(axis, np.int64) for axis in axes], indexing="ij")
    tp, pp, cp, ep, etp, chunks, micro = (axis.ravel() for axis in grid)
    whole = space.device_count % (tp * pp * cp) == 0
    columns = {"tp": tp, "pp": pp, "cp": cp, "ep": ep, "etp": etp, "chunk_count": chunks, "micro_batch": micro}
    columns = {name: column[whole] for name, column in columns.items()}
    columns["dp"] = space.device_count // (columns["tp"] * columns["pp"] * columns["cp"])
    return columns


def _asked(group: PlanGroup) -> Any:
    """Return which combinations differ: chunks belong to interleaving, sharding and overlap to several ranks."""
    is_interleaved = group.schedule == "interleaved"
    is_searched = (group.chunk_count > 1) == is_interleaved
    is_searched &= (group.pp > 1) | (group.schedule == group.space.schedules[0])
    if group.sharding != group.space.shardings[0]:
        is_searched &= group.dp * group.cp > 1
    if group.tp_overlap != group.space.tp_overlaps[0]:
        is_searched &= group.tp > 1
    return is_searched


def _illegal(shape: TransformerShape, group: PlanGroup) -> Iterator[tuple[str, Any]]:
    """Yield each reason with the plans that it refuses."""
    space = group.space
    yield "tp beyond the fast tier", group.tp > space.fast_count
    yield "tp does not divide heads", (shape.head_count % group.tp) != 0
    yield "tp does not divide widths", _undivided(shape, group)
    is_divided = shape.layer_count % (group.pp * group.chunk_count) == 0
    is_split = is_divided | ((group.chunk_count == 1) & (group.pp <= shape.layer_count) & (not space.is_even))
    yield "chunks do not divide layers", ~is_split
    yield "cp does not divide sequence", (group.cp > 1) & (space.sequence % (2 * group.cp) != 0)
    yield "ep does not divide ranks", (group.tp * group.cp * group.dp) % (group.ep * group.etp) != 0
    each = group.dp * group.micro_batch
    yield "batch is no multiple of dp × micro-batch", (space.global_batch % each) != 0
    batches = space.global_batch // each
    if group.schedule == "interleaved":
        yield "micro-batches", batches % group.pp != 0
    elif group.schedule.startswith("dualpipe"):
        yield "micro-batches", batches < 2 * group.pp
    else:
        yield "micro-batches", batches < 1


def _undivided(shape: TransformerShape, group: PlanGroup) -> Any:
    """Return which plans split a width or the key heads unevenly."""
    heads = shape.kv_head_count
    uneven = (shape.hidden % group.tp != 0) | (np.maximum(heads, group.tp) % np.minimum(heads, group.tp) != 0)
    if shape.dense_layer_count:
        uneven |= shape.ffn % group.tp != 0
    if shape.experts:
        uneven |= (shape.experts.width % group.etp != 0) | (shape.experts.shared_width % group.tp != 0)
    return uneven
