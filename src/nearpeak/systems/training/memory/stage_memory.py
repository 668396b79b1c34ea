"""Memory of a rank that runs part of a captured step: a pipeline stage, a tile of the images, its branches."""

from itertools import accumulate

from nearpeak.bounds.step.liveness import occupancy_of
from nearpeak.core.systems.rank_memory import MEMORY_KINDS, RankMemory
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.workload import Workload
from nearpeak.systems.training.memory.stage_layers import chunks_in_flight
from nearpeak.systems.training.memory.workload_memory import GATHERED_COUNT, SHARDED
from nearpeak.systems.training.programs.gradient_calls import shard_count
from nearpeak.systems.training.programs.stage_calls import StageCalls

_HELD = ("weight", "state", "kv_cache")
"""Kinds of buffers that live throughout."""


def stage_memory(
    workload: Workload, own: StageCalls, plan: TrainingPlan, *, device_bytes: int | None = None, context_bytes: int = 0
) -> RankMemory:
    """Return the memory of a rank at the peak of its part of a step.

    A tensor lives on the rank from its first to its last use there. Micro-batches in flight hold what the backward pass
    reads; gradients stay until the update. Weights and states are the rank's share of the step's by its parameters.

    Args:
        device_bytes: memory of the device, where it is stated.
        context_bytes: what lies outside the framework's allocator.
    """
    use, step = occupancy_of(workload).use, own.step
    held, every = (sum(unit.elements("dense") for unit in units) for units in (own.units, step.units))
    part = held / every if every else 0.0
    is_sharded, split = plan.sharding in SHARDED, shard_count(plan)
    shards, states = split if is_sharded else 1, 1 if plan.sharding == "none" else split
    alive, saved_bytes = _alive(workload, own)
    peak = max(range(len(alive)), key=alive.__getitem__, default=0)
    root, *blocks = (unit.elements("dense") for unit in own.units)
    whole = dtype_of(step.gradient_dtype).bytes(root + sum(sorted(blocks)[-GATHERED_COUNT:]))
    replicas = plan.dp * plan.cp
    parts = dict.fromkeys(MEMORY_KINDS, 0) | {
        "weights": round(part * use.weight_bytes / shards), "gradients": round(part * use.gradient_bytes / shards),
        "optimizer": round(part * use.state_bytes / states),
        "activations": (chunks_in_flight(plan, own.stage) - 1) * saved_bytes + (alive[peak] if alive else 0),
        "gathers": whole if is_sharded and replicas > 1 else 0,
        "buckets": round(part * use.gradient_bytes) if not is_sharded and replicas > 1 else 0,
    }  # fmt: skip
    calls = (*own.forward, *own.backward)
    where = " of ".join(filter(None, (calls[peak].phase, calls[peak].module))) if calls else "optimizer"
    return RankMemory(
        stage=own.stage, place=f"{where}; workspaces not counted", parts=parts, reserved_bytes=sum(parts.values()),
        context_bytes=context_bytes, device_bytes=device_bytes,
    )  # fmt: skip


def saved_bytes_of(workload: Workload, own: StageCalls) -> int:
    """Return what a micro-batch in flight holds between its passes."""
    return _alive(workload, own)[1]


def _alive(workload: Workload, own: StageCalls) -> tuple[list[int], int]:
    """Return the bytes of passing tensors during each call, and of those that live across both passes."""
    calls = (*own.forward, *own.backward)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, call in enumerate(calls):
        for use in (*call.reads, *call.writes):
            if workload.buffers[use.buffer].kind not in _HELD and use.buffer not in own.step.gradients:
                first.setdefault(use.buffer, place)
                last[use.buffer] = place
    sizes = {buffer: round(workload.buffers[buffer].bytes * own.share(buffer)) for buffer in first}
    changes = [0] * (len(calls) + 1)
    for buffer, size in sizes.items():
        changes[first[buffer]] += size
        changes[last[buffer] + 1] -= size
    border = len(own.forward)
    saved_bytes = sum(size for buffer, size in sizes.items() if first[buffer] < border <= last[buffer])
    return list(accumulate(changes))[:-1], saved_bytes
