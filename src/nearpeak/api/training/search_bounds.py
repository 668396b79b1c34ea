"""Bounds of training steps from predicted kernels, for the search over plans."""

from collections.abc import Callable

from nearpeak.api.training.training_time import BETWEEN_KERNELS, host_count, programs_of_plan, transfer_durations
from nearpeak.core.systems.duration import WHOLE
from nearpeak.core.systems.fabric import Cluster
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape


def program_bound(shape: TransformerShape, cluster: Cluster, stack: str) -> Callable[[TrainingPlan], float]:
    """Return a function that bounds the step that `training_time` gives for a plan from below.

    >>> from nearpeak.api.training.training_time import training_time
    >>> from nearpeak.frontends.huggingface.transformer_models import shape_of
    >>> from nearpeak.targets.clusters import cluster_of
    >>> shape, cluster = shape_of("llama-3-8b"), cluster_of("8xh100_sxm")
    >>> plan = TrainingPlan(tp=2, dp=4, micro_batch=1, global_batch=16, sequence=2048)
    >>> bound_s = program_bound(shape, cluster, "megatron-lm")(plan)
    >>> 0.7 < bound_s / training_time(shape, plan, cluster, "megatron-lm").step_s <= 1
    True
    """
    from nearpeak.api.device_durations import CLOCK_STEPS, kernel_durations, sustained_clock_ratio
    from nearpeak.core.work.case import Case
    from nearpeak.systems.training.plan_search.program_floor import (
        Counts,
        QueuedCalls,
        program_floor,
        queued_calls,
    )
    from nearpeak.systems.training.stack_files import stack_of
    from nearpeak.targets import target_of

    used, target = stack_of(stack), target_of(cluster.target)

    def program_calls(model: TransformerShape, plan: TrainingPlan) -> QueuedCalls:
        (program,) = programs_of_plan(model, plan, used.fusions, used.has_dropout)
        return queued_calls(program, has_tp=not plan.tp_overlap)

    def calls_time(plan: TrainingPlan, calls: Counts, mix: Counts) -> float:
        moves, has_tf32, clock = transfer_durations(plan, cluster), plan.precision == "tf32", 1.0
        if mix and not has_tf32:
            cases = {call: count for call, count in mix.items() if isinstance(call, Case)}
            idle_s = sum(
                count * moves(call).time_s for call, count in mix.items()
                if not isinstance(call, Case) and call.dim in BETWEEN_KERNELS
            )  # fmt: skip
            clock = min(sustained_clock_ratio(target, cases, idle_s) + 1 / CLOCK_STEPS, 1.0)  # steps round theirs
        kernels = kernel_durations(target, used.attention, clock, has_tf32=has_tf32)
        return sum(
            count * (kernels(call, WHOLE) if isinstance(call, Case) else moves(call)).time_s
            for call, count in calls.items()
        )

    return program_floor(shape, program_calls, calls_time, used, host_count(cluster))
