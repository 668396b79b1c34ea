"""Sharding of parameters and reduction of gradients over replicas, by framework."""

from dataclasses import dataclass, replace

from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.work.dtype import dtype_of
from nearpeak.errors import SpecError

_MEBI = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class DataParallelism:
    """Formats, buckets and times of the collectives over replicas."""

    parameter_dtype: str = "bf16"
    """Format in which parameters are gathered."""
    gradient_dtype: str = "fp32"
    """Format in which gradients are reduced."""
    bucket_elements: int = 0
    """Gradients of one reduction; 0 for one reduction per unit (a layer)."""
    first_bucket_elements: int = 0
    """Gradients of the first reduction where it is smaller."""
    scatters: bool = False
    """Whether gradients are reduced and scattered rather than reduced on all replicas."""
    reduces_each_micro_batch: bool = False
    """Whether gradients are reduced after each micro-batch rather than once a step."""
    gathers_in_passes: bool = False
    """Whether parameters are gathered unit by unit in each pass."""
    reshards: bool = True
    """Whether gathered parameters are dropped after the forward pass and gathered again for the backward pass."""
    gathers_after_update: bool = False
    """Whether updated parameters are gathered once a step."""
    states_are_split: bool = False
    """Whether each replica updates its share of the parameters alone."""
    copies: bool = False
    """Whether tensors are copied into and out of the buffers of collectives (DDP's buckets, fully_shard)."""
    zeroes_gradients: bool = False
    """Whether a buffer of gradients is set to zero once a step."""
    master: str = "fp32"
    """Format of the copy that the optimizer updates; empty where the parameters themselves are."""


def data_parallelism(plan: TrainingPlan) -> DataParallelism:
    """Return what the plan's framework does by default under the plan's sharding.

    Source: Megatron-LM, core/distributed/distributed_data_parallel_config.py (buckets of max(40 M, 1 M × replicas)
    elements, main gradients in fp32) and core/optimizer/distrib_optimizer.py; DeepSpeed, docs/_pages/config-json.md
    (buckets of 5e8 elements, ZeRO-2 and 3 reduce after each micro-batch); PyTorch 2.13, DistributedDataParallel
    (first bucket 1 MiB, then 25 MiB, of gradients in the parameters' format) and fully_shard (one reduction a unit).
    """
    half = {"fp32": "fp32", "tf32": "fp32", "fp16": "fp16"}.get(plan.precision, "bf16")
    sharding, framework = plan.sharding, plan.framework
    base = DataParallelism(parameter_dtype=half, master="" if half == "fp32" else "fp32")
    if sharding in ("fsdp", "hsdp", "zero3"):
        return replace(
            base, scatters=True, reduces_each_micro_batch=True, gathers_in_passes=True, states_are_split=True,
            gradient_dtype=half if framework == "deepspeed" else "fp32", copies=framework == "fsdp2",
        )  # fmt: skip
    states = sharding in ("zero1", "zero2")
    base = replace(base, states_are_split=states, gathers_after_update=states)
    if framework == "megatron-lm":
        return replace(
            base, scatters=states, bucket_elements=max(40_000_000, 1_000_000 * plan.dp * plan.cp),
            reduces_each_micro_batch=sharding == "zero2", zeroes_gradients=True,
        )  # fmt: skip
    if framework == "deepspeed":
        return replace(
            base, scatters=sharding == "zero2", bucket_elements=500_000_000, gradient_dtype=half,
            reduces_each_micro_batch=sharding == "zero2",
        )  # fmt: skip
    if sharding == "zero2":
        raise SpecError(f"sharding=zero2 is no mode of {framework}; fsdp (zero3), zero1 or none would be")
    width = dtype_of(half).bytes(1)
    return replace(
        base, gradient_dtype=half, master="", bucket_elements=25 * _MEBI // width, first_bucket_elements=_MEBI // width,
        copies=True,
    )  # fmt: skip
