"""Peak memory of one rank of a training job, by kind of memory, with its place in the step."""

from collections.abc import Sequence

from nearpeak.core.systems.rank_memory import MEMORY_KINDS, RankMemory
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.errors import SpecError
from nearpeak.systems.training.memory.framework_rules import MemoryRules, plan_rules
from nearpeak.systems.training.memory.memory_places import memory_places, rank_parameters
from nearpeak.systems.training.memory.saved_tensors import ActivationRules
from nearpeak.systems.training.memory.stage_layers import (
    InFlight,
    StageLayers,
    chunks_in_flight,
    rank_layers,
    stage_layers,
)
from nearpeak.systems.training.memory.tensor_events import RankEvents, step_peaks
from nearpeak.systems.training.programs.plan_layout import plan_layout
from nearpeak.systems.training.schedules import is_schedule_file, schedule_of

ALLOCATORS = ("segments", "expandable", "none")


def rank_memory(
    shape: TransformerShape,
    plan: TrainingPlan,
    stage: int = 0,
    *,
    device_bytes: int | None = None,
    context_bytes: int = 0,
    layers: Sequence[int] | None = None,
    in_flight: InFlight = chunks_in_flight,
    rules: MemoryRules | None = None,
    activations: ActivationRules | None = None,
    allocator: str = "segments",
) -> RankMemory:
    """Return the peak memory of a rank of a pipeline stage.

    Args:
        device_bytes: memory of the device, for the verdict whether it fits.
        context_bytes: driver context and communicators, as the software stack states it.
        layers: layers of each stage; those of the plan where none, or equal shares.
        in_flight: model chunks whose activations a stage holds at once, by the schedule.
        rules, activations: those of the plan's framework where none.
        allocator: `segments` (PyTorch's default), `expandable` segments, or `none`: nothing is lost to it.

    Raises:
        SpecError: no such stage or allocator, or degrees that do not divide the model.

    >>> from nearpeak.core.systems.training_plan import TrainingPlan
    >>> from nearpeak.core.systems.transformer import TransformerShape
    >>> shape = TransformerShape(name="gpt", layer_count=4, hidden=1024, head_count=16, kv_head_count=16,
    ...     head_width=64, ffn=4096, is_gated=False, vocabulary=51200)
    >>> plan = TrainingPlan(tp=2, pp=2, micro_batch=1, global_batch=8, sequence=1024)
    >>> memory = rank_memory(shape, plan, device_bytes=2 * 10**9)
    >>> memory.place, memory.fits
    ('backward of layer 1', True)
    """
    check_degrees(shape, plan, stage)
    layers = layers or rank_layers(plan) or None
    if allocator not in ALLOCATORS:
        raise SpecError(f"allocator={allocator!r} is not one of {', '.join(ALLOCATORS)}")
    stage_part, chunks = stage_layers(shape, plan, stage, layers), in_flight(plan, stage)
    default_rules, default_activations = plan_rules(shape, plan)
    rules, activations = rules or default_rules, activations or default_activations
    places = memory_places(shape, plan, stage_part, chunks=chunks, rules=rules, activations=activations)
    peak = max(places, key=lambda place: sum(place.parts.values()))
    parts = {kind: round(peak.parts.get(kind, 0)) for kind in MEMORY_KINDS}
    lost_bytes = 0
    if allocator != "none":
        parameters = rank_parameters(shape, plan, stage_part, rules)
        update = parameters.bytes(rules.optimizer_transient_bytes, is_sharded=plan.sharding != "none")
        events = RankEvents(
            shape=shape, plan=plan, stage=stage_part, rules=rules, activations=activations,
            parameters=parameters, optimizer_bytes=round(update),
            static={kind: parts[kind] for kind in ("weights", "optimizer", "gradients", "buckets", "workspace")},
        )  # fmt: skip
        lost_bytes = _lost_bytes(events, stage, chunks, is_expandable=allocator == "expandable")
    return RankMemory(
        stage=stage,
        place=_place_name(peak.name, stage_part),
        parts=parts,
        reserved_bytes=sum(parts.values()) + lost_bytes,
        context_bytes=context_bytes,
        device_bytes=device_bytes,
    )


def _lost_bytes(events: RankEvents, stage: int, chunks: int, *, is_expandable: bool) -> int:
    """Return what the allocator holds beyond the tensors at its peak, over a few micro-batches of the schedule."""
    plan = events.plan
    name, batches = plan.schedule if plan.pp > 1 else "1f1b", plan.micro_batch_count
    if not is_schedule_file(name):
        batches = min(batches, 4 * plan.pp)
    ops = schedule_of(name, plan.pp, batches, plan.chunk_count).ranks[stage]
    peaks = step_peaks(events, ops, -(-chunks // plan.chunk_count), is_expandable=is_expandable)
    return peaks.reserved_bytes - peaks.allocated_bytes


def fullest_rank(
    shape: TransformerShape,
    plan: TrainingPlan,
    *,
    device_bytes: int | None = None,
    context_bytes: int = 0,
    layers: Sequence[int] | None = None,
    in_flight: InFlight = chunks_in_flight,
    allocator: str = "segments",
) -> RankMemory:
    """Return the memory of the stage whose peak is the largest.

    >>> from nearpeak.core.systems.training_plan import TrainingPlan
    >>> from nearpeak.core.systems.transformer import TransformerShape
    >>> shape = TransformerShape(name="gpt", layer_count=4, hidden=1024, head_count=16, kv_head_count=16,
    ...     head_width=64, ffn=4096, is_gated=False, vocabulary=51200)
    >>> fullest_rank(shape, TrainingPlan(pp=4, micro_batch=1, global_batch=8, sequence=256)).stage
    3
    """
    allocated = [
        rank_memory(shape, plan, stage, layers=layers, in_flight=in_flight, allocator="none").allocated_bytes
        for stage in range(plan.pp)
    ]
    return rank_memory(
        shape, plan, allocated.index(max(allocated)), device_bytes=device_bytes, context_bytes=context_bytes,
        layers=layers, in_flight=in_flight, allocator=allocator,
    )  # fmt: skip


def check_degrees(shape: TransformerShape, plan: TrainingPlan, stage: int) -> None:
    """Refuse degrees that do not divide the model, and stages that the plan does not have."""
    if not 0 <= stage < plan.pp:
        raise SpecError(f"stage {stage}: the plan has stages 0 to {plan.pp - 1}")
    if plan.pp * plan.chunk_count > shape.layer_count:
        raise SpecError(
            f"{shape.name}: pp={plan.pp} × {plan.chunk_count} chunks leave some without one of its {shape.layer_count} "
            f"layers; pp={max(shape.layer_count // plan.chunk_count, 1)} would not"
        )
    plan_layout(shape, plan)


def _place_name(name: str, stage: StageLayers) -> str:
    last = stage.first_layer + max(stage.layer_count - 1, 0)
    return {
        "forward": f"forward of layer {last}",
        "backward": f"backward of layer {last}",
        "later backward": f"backward of layer {max(last - 1, stage.first_layer)}",
        "second backward": f"backward of layer {min(stage.first_layer + 1, last)}",
        "first backward": f"backward of layer {stage.first_layer}",
        "ends": "gradients of embedding and head",
    }.get(name, name)
