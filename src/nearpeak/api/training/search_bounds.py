"""Bounds of training steps from predicted kernels, for the search over plans."""

from collections.abc import Callable

from nearpeak.api.training.training_time import programs_of_plan, transfer_durations
from nearpeak.core.systems.fabric import Cluster
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape


def program_bound(
    shape: TransformerShape, cluster: Cluster, stack: str, *, expert_load: str = "balanced"
) -> Callable[[TrainingPlan], float]:
    """Return a function that bounds the step that `training_time` gives for a plan from below.

    Args:
        expert_load: rows of experts, as `training_time` takes them.

    >>> from nearpeak.api.training.training_time import training_time
    >>> from nearpeak.frontends.huggingface.transformer_models import shape_of
    >>> from nearpeak.targets.clusters import cluster_of
    >>> shape, cluster = shape_of("llama-3-8b"), cluster_of("8xh100_sxm")
    >>> plan = TrainingPlan(tp=2, dp=4, micro_batch=1, global_batch=16, sequence=2048)
    >>> bound_s = program_bound(shape, cluster, "megatron-lm")(plan)
    >>> 0.7 < bound_s / training_time(shape, plan, cluster, "megatron-lm").step_s <= 1
    True
    """
    from nearpeak.api.device_durations import kernel_durations
    from nearpeak.systems.training.plan_search.program_floor import busy_time, program_floor
    from nearpeak.systems.training.rank_lanes import Times
    from nearpeak.systems.training.stack_files import stack_of
    from nearpeak.targets import target_of

    used, target = stack_of(stack), target_of(cluster.target)

    def program_time(model: TransformerShape, plan: TrainingPlan) -> tuple[float, float]:
        kernels = kernel_durations(target, used.attention, has_tf32=plan.precision == "tf32")
        times = Times(kernels, transfer_durations(plan, cluster), used)
        (program,) = programs_of_plan(model, plan, used.fusions, used.has_dropout, expert_load)
        return busy_time(program, times, has_tp=not plan.tp_overlap)

    return program_floor(shape, program_time)
