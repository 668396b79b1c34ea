"""Least memory of a rank that runs a captured training step with replicas or shards of its parameters."""

from nearpeak.bounds.step.liveness import occupancy_of
from nearpeak.core.systems.rank_memory import MEMORY_KINDS, RankMemory
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.workload import Workload
from nearpeak.systems.training.programs.captured_step import captured_step
from nearpeak.systems.training.programs.gradient_calls import shard_count

SHARDED = ("zero3", "fsdp", "hsdp")
GATHERED_COUNT = 2
"""Units beside the root that are whole at once: the one that runs and the next, whose gather runs beside it."""


def workload_memory(
    workload: Workload, plan: TrainingPlan, *, device_bytes: int | None = None, context_bytes: int = 0
) -> RankMemory:
    """Return the memory of a rank at the peak of a captured step, without pipeline stages.

    Tensors live from their first write to their last use, as captured on one device. What is sharded is divided by the
    shards. DistributedDataParallel holds its buckets beside the gradients (gradient_as_bucket_view is off by default:
    PyTorch 2.13, documentation of DistributedDataParallel); fully_shard holds the root and the largest blocks whole.

    Args:
        workload: training step of one device at the micro-batch of the plan.
        device_bytes: memory of the device, where it is stated.
        context_bytes: what lies outside the framework's allocator.
    """
    occupancy, step = occupancy_of(workload), captured_step(workload)
    use, is_sharded, split = occupancy.use, plan.sharding in SHARDED, shard_count(plan)
    shards, states = split if is_sharded else 1, 1 if plan.sharding == "none" else split
    held = use.weight_bytes + use.state_bytes
    # Gradients of earlier micro-batches stay until the update.
    alive = [use.gradient_bytes if plan.micro_batch_count > 1 else fixed - held for fixed in occupancy.fixed_bytes]
    totals = [-(-live_bytes // shards) + more for live_bytes, more in zip(alive, occupancy.growing_bytes, strict=True)]
    peak = max(range(len(totals)), key=totals.__getitem__)
    root, *blocks = (unit.elements("dense") for unit in step.units)
    whole = dtype_of(step.gradient_dtype).bytes(root + sum(sorted(blocks)[-GATHERED_COUNT:]))
    parts = dict.fromkeys(MEMORY_KINDS, 0) | {
        "weights": -(-use.weight_bytes // shards), "gradients": -(-alive[peak] // shards),
        "optimizer": -(-use.state_bytes // states), "activations": occupancy.growing_bytes[peak],
        "gathers": whole if is_sharded and plan.dp > 1 else 0,
        "buckets": use.gradient_bytes if not is_sharded and plan.dp > 1 else 0,
    }  # fmt: skip
    call = workload.calls[min(peak, len(workload.calls) - 1)]
    where = " of ".join(filter(None, (call.phase, call.module)))
    return RankMemory(
        stage=0, place=f"{where}; workspaces not counted", parts=parts,
        reserved_bytes=sum(parts.values()), context_bytes=context_bytes, device_bytes=device_bytes,
    )  # fmt: skip
