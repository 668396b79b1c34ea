"""Memory of a rank that runs part of a captured step: pipeline stages, a tile of the images, its branches."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from nearpeak.bounds.step.liveness import occupancy_of
from nearpeak.core.systems.pipeline_schedule import PipelineOp
from nearpeak.core.systems.rank_memory import MEMORY_KINDS, RankMemory
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.workload import Workload
from nearpeak.systems.training.memory.workload_memory import GATHERED_COUNT, SHARDED
from nearpeak.systems.training.pipeline_order import held
from nearpeak.systems.training.programs.gradient_calls import shard_count
from nearpeak.systems.training.programs.stage_calls import StageCalls
from nearpeak.systems.training.schedules import plan_schedule

_HELD = ("weight", "state", "kv_cache")
"""Kinds of buffers that live throughout."""


class PassMemory(NamedTuple):
    """Passing tensors of one micro-batch on one stage."""

    saved_bytes: int
    """What lives from the forward to the backward pass."""
    forward: tuple[int, str]
    """Bytes at the peak of the forward pass, and the place of that peak."""
    backward: tuple[int, str]
    """Bytes at the peak of the backward pass, and the place of that peak."""


def stage_memory(
    workload: Workload, stages: Sequence[StageCalls], plan: TrainingPlan, *, device_bytes: int | None = None,
    context_bytes: int = 0,
) -> RankMemory:  # fmt: skip
    """Return the memory of a rank at the peak of its part of a step.

    A tensor lives on the rank from its first to its last use there. Each pass of the schedule meets what the
    micro-batches in flight hold for theirs; gradients stay until the update. Weights and states are the rank's share of
    the step's by its parameters.

    Args:
        stages: the stages of the model that the rank runs: one, or its chunks.
        device_bytes: memory of the device, where it is stated.
        context_bytes: what lies outside the framework's allocator.
    """
    use, step = occupancy_of(workload).use, stages[0].step
    own_units = [unit for stage in stages for unit in stage.units]
    owned, every = (sum(unit.elements("dense") for unit in units) for units in (own_units, step.units))
    part = owned / every if every else 0.0
    is_sharded, split = plan.sharding in SHARDED, shard_count(plan)
    shards, states = split if is_sharded else 1, 1 if plan.sharding == "none" else split
    rank, ops = _rank_ops(plan, {stage.stage for stage in stages})
    activation_bytes, where = _peak(ops, {stage.stage: pass_memory(workload, stage) for stage in stages})
    root = sum(stage.units[0].elements("dense") for stage in stages)
    blocks = sorted(unit.elements("dense") for stage in stages for unit in stage.units[1:])
    whole = dtype_of(step.gradient_dtype).bytes(root + sum(blocks[-GATHERED_COUNT:]))
    replicas = plan.dp * plan.cp
    parts = dict.fromkeys(MEMORY_KINDS, 0) | {
        "weights": round(part * use.weight_bytes / shards), "gradients": round(part * use.gradient_bytes / shards),
        "optimizer": round(part * use.state_bytes / states), "activations": activation_bytes,
        "gathers": whole if is_sharded and replicas > 1 else 0,
        "buckets": round(part * use.gradient_bytes) if not is_sharded and replicas > 1 else 0,
    }  # fmt: skip
    return RankMemory(
        stage=rank, place=f"{where}; workspaces not counted", parts=parts, reserved_bytes=sum(parts.values()),
        context_bytes=context_bytes, device_bytes=device_bytes,
    )  # fmt: skip


def pass_memory(workload: Workload, stage: StageCalls) -> PassMemory:
    """Return what one micro-batch holds on a stage, between its passes and at the peak of each."""
    calls = (*stage.forward, *stage.backward)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, call in enumerate(calls):
        for use in (*call.reads, *call.writes):
            if workload.buffers[use.buffer].kind not in _HELD and use.buffer not in stage.step.gradients:
                first.setdefault(use.buffer, place)
                last[use.buffer] = place
    sizes = {buffer: round(workload.buffers[buffer].bytes * stage.share(buffer)) for buffer in first}
    changes = [0] * (len(calls) + 1)
    for buffer, size in sizes.items():
        changes[first[buffer]] += size
        changes[last[buffer] + 1] -= size
    border, alive = len(stage.forward), list(accumulate(changes))[:-1]
    saved_bytes = sum(size for buffer, size in sizes.items() if first[buffer] < border <= last[buffer])

    def peak(places: range) -> tuple[int, str]:
        place = max(places, key=alive.__getitem__, default=-1)
        if place < 0:
            return 0, ""
        return alive[place], " of ".join(filter(None, (calls[place].phase, calls[place].module)))

    return PassMemory(saved_bytes, peak(range(border)), peak(range(border, len(calls))))


def _rank_ops(plan: TrainingPlan, stages: set[int]) -> tuple[int, tuple[PipelineOp, ...]]:
    """Return the rank that runs some stages, and its ops."""
    schedule = plan_schedule(plan)
    return next((rank, ops) for rank, ops in enumerate(schedule.ranks) if ops[0].stage in stages)


def _peak(ops: Sequence[PipelineOp], passes: Mapping[int, PassMemory]) -> tuple[int, str]:
    """Return the most bytes of passing tensors while a rank runs its ops, and the place of that peak."""
    peak_bytes, where = 0, "optimizer"
    for op, saved_bytes in zip(ops, held(tuple(ops), lambda stage: passes[stage].saved_bytes), strict=True):
        alive, place = int(saved_bytes), ""
        for part in op.parts():
            memory = passes[part.stage]
            if part.kind != "W":  # gradients of weights read what is held anyway
                at_peak, place = memory.forward if part.kind == "F" else memory.backward
                alive += max(at_peak - memory.saved_bytes, 0)
        if alive > peak_bytes:
            peak_bytes, where = alive, place or where
    return peak_bytes, where
