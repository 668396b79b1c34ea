"""Plans of training jobs: step, memory and changes of one, or the search for the fastest that fits."""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from nearpeak.api.training.search_bounds import program_bound
from nearpeak.api.training.second_order_time import second_order_time
from nearpeak.api.training.step_neighbour import nearest_step
from nearpeak.api.training.training_time import training_time
from nearpeak.base.registry import unknown_name
from nearpeak.core.systems.fabric import Cluster
from nearpeak.core.systems.goodput import GoodputReport
from nearpeak.core.systems.plan_answer import PlanAnswer, PlanEdit
from nearpeak.core.systems.plan_words import training_plan_of
from nearpeak.core.systems.rank_memory import RankMemory
from nearpeak.core.systems.training_answer import TrainingAnswer
from nearpeak.core.systems.training_job import PlannedTraining
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.core.work.target import Target
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.systems.training.plan_search.plan_space import PlanSpace

MOST_DEVICES = 1 << 20
"""Devices of a cluster that a plan is answered for."""
SHARED_ERROR_RATIO = 0.5
"""Part of the half-width of an interval that two plans on the same devices do not share: an assumption."""
FRONT_STEPS = 16
"""Parts of a device's memory by which plans that leave more of it free are told apart."""
CONTEXT_BYTES = 1 << 30
"""Driver context, libraries and communicators of one process: 0.6 to 1.5 GB, an assumption of nearpeak."""


def plan_training(
    model: str | TransformerShape, cluster: Cluster, plan: TrainingPlan | None = None, *, stack: str = "megatron-lm",
    sequence: int = 0, global_batch: int = 0, precision: str = "", usd_per_device_hour: float | None = None,
    goodput: GoodputReport | None = None, optimizer: str = "adamw", expert_load: str = "balanced",
    with_edits: bool = True,
) -> PlannedTraining:  # fmt: skip
    """Return step, memory and changes of a training plan; without one, of the fastest that fits.

    Args:
        model: shape, model name or path of a config.json.
        sequence, global_batch, precision, expert_load: of the search; a plan states its own. Without a precision it
            is that of `usual_precision`.
        goodput: shares of a long run, which the cost then counts.
        optimizer: adamw, or words of a second-order method, whose time is stated beside the step.

    Raises:
        SpecError: no plan fits, degrees do not divide the model, figures are missing, or a load is of experts that the
            model lacks.
    """
    from nearpeak.frontends.huggingface.transformer_models import shape_of
    from nearpeak.targets import target_of

    shape = shape_of(model) if isinstance(model, str) else model
    precision = plan.precision if plan else precision or usual_precision(cluster)
    _check_precision(precision, target_of(cluster.target))
    if shape.experts is None and (plan.expert_load if plan else expert_load) != "balanced":
        raise SpecError(f"--expert-load: {shape.name} has no experts; leave it out")
    device_bytes = target_of(cluster.target).dram.capacity_bytes
    time = _time_of(shape, cluster, stack)
    search = None
    if plan is None:
        if not sequence or not global_batch:
            raise SpecError("plan train: a search needs --sequence and --global-batch (or --tokens-per-step)")
        space = _space(cluster, stack, (sequence, global_batch, precision), expert_load)
        search = _searched(shape, cluster, time, stack, space, usd_per_device_hour or 0.0)
        plan = search.best.plan
    held = _memory_of(shape, device_bytes)
    answer = training_time(shape, plan, cluster, stack, has_spans=True)
    edits: tuple[PlanEdit, ...] = ()
    if with_edits:
        from nearpeak.systems.training.plan_search.neighbour_plans import neighbours_of, plan_edits, uneven_split

        peaks = target_of(cluster.target).peaks
        others = list(neighbours_of(plan, fast_count(cluster), has_fp8="tensor.fp8" in peaks))
        others += filter(None, [uneven_split(plan, answer.stages, shape.layer_count)])
        edits = plan_edits(
            plan, others, step_time=lambda other: time(other).step_s, memory=lambda other: _fullest(held(other)),
            interval_ratio=resolution(answer),
        )  # fmt: skip
    neighbour = nearest_step(shape, plan, target_of(cluster.target), stack) if with_edits else None
    nearest = "" if _fullest(held(plan)).fits else _nearest_change(shape, cluster, plan, stack, device_bytes)
    return PlannedTraining(
        model=shape.name, target=cluster.target, device_count=cluster.device_count, fabric=cluster.fabric.name,
        plan=plan, time=answer, memory=held(plan), usd_per_device_hour=usd_per_device_hour, edits=edits, search=search,
        goodput=goodput, nearest_change=nearest, neighbour=neighbour,
        second_order=None if optimizer == "adamw" else second_order_time(shape, plan, cluster, answer, optimizer),
    )  # fmt: skip


def usual_precision(cluster: Cluster) -> str:
    """Return the format of a language model's training unless one is stated: that of the device's matrix units.

    >>> from nearpeak.targets.clusters import cluster_of
    >>> usual_precision(cluster_of("8xa100_sxm_80gb")), usual_precision(cluster_of("8xv100_sxm"))
    ('bf16', 'fp16')
    """
    from nearpeak.targets import target_of

    peaks = target_of(cluster.target).peaks
    return "fp16" if "tensor.fp16" in peaks and "tensor.bf16" not in peaks else "bf16"


def stated_plan(
    words: str, cluster: Cluster, *, stack: str, sequence: int, global_batch: int = 0, tokens_per_step: float = 0.0,
    precision: str = "", expert_load: str = "balanced",
) -> TrainingPlan:  # fmt: skip
    """Return the plan that words state for a cluster, by the memory rules of the framework that a stack runs.

    Raises:
        SpecError: a word is unknown or stated twice, or the degrees do not make up the devices.
    """
    from nearpeak.systems.training.stack_files import stack_of

    return training_plan_of(
        words, cluster.device_count, sequence=sequence, global_batch=global_batch, tokens_per_step=tokens_per_step,
        precision=precision or usual_precision(cluster),
        defaults={"framework": stack_of(stack).framework, "expert_load": expert_load},
    )  # fmt: skip


def _nearest_change(
    shape: TransformerShape, cluster: Cluster, plan: TrainingPlan, stack: str, device_bytes: int | None
) -> str:
    """Return the change that leads from a plan to the nearest one that fits; empty where none does."""
    from nearpeak.systems.training.plan_search.neighbour_plans import describe_change, nearest_fitting

    space = _space(cluster, stack, (plan.sequence, plan.global_batch, plan.precision), plan.expert_load)
    neighbour = nearest_fitting(shape, plan, space, (device_bytes or 0) - CONTEXT_BYTES)
    return describe_change(plan, neighbour[0]) if neighbour else ""


def _space(cluster: Cluster, stack: str, sizes: tuple[int, int, str], expert_load: str) -> "PlanSpace":
    """Return the plans among which a search looks: sequence, global batch and precision are given."""
    from nearpeak.systems.training.plan_search.plan_space import PlanSpace
    from nearpeak.systems.training.stack_files import stack_of

    framework = stack_of(stack).framework
    shardings = {"fsdp2": ("fsdp",), "ddp": ("none",), "deepspeed": ("zero1", "zero3")}.get(framework, ("zero1",))
    return PlanSpace(
        device_count=cluster.device_count, fast_count=fast_count(cluster), global_batch=sizes[1], sequence=sizes[0],
        framework=framework, shardings=shardings, precisions=(sizes[2],), expert_load=expert_load,
    )  # fmt: skip


def _check_precision(precision: str, target: Target) -> None:
    """Refuse a recipe that is unknown, or whose products a device with tensor units does not have."""
    from nearpeak.api.training.training_time import PEAK_UNITS

    if precision not in PEAK_UNITS:
        raise unknown_name("precision", precision, tuple(PEAK_UNITS))
    if precision == "mxfp8" and "tensor.fp8" in target.peaks and "tensor.fp4" not in target.peaks:
        # Products scaled by blocks of 32 came with FP4: PTX ISA, tcgen05.mma .block_scale; AMD CDNA 4 instruction set.
        raise SpecError(
            f"{target.name}: has no mxfp8 products (no block-scaled FP8); fp8-current or fp8-block run on it"
        )
    unit = PEAK_UNITS[precision]
    narrow = ("tensor.tf32", "tensor.fp8", "tensor.fp4")
    if unit in narrow and "tensor.bf16" in target.peaks and unit not in target.peaks:
        raise SpecError(
            f"{target.name}: has no {precision} products: no document states a rate of {unit}; bf16 has one"
        )


def _time_of(shape: TransformerShape, cluster: Cluster, stack: str) -> Callable[[TrainingPlan], TrainingAnswer]:
    """Return the function that times a plan, which remembers plans."""

    @lru_cache(maxsize=4096)
    def time(plan: TrainingPlan) -> TrainingAnswer:
        return training_time(shape, plan, cluster, stack)

    return time


def _memory_of(
    shape: TransformerShape, device_bytes: int | None
) -> Callable[[TrainingPlan], tuple[RankMemory, ...]]:  # fmt: skip
    """Return the function that gives the peak memory of a rank of each stage of a plan."""
    from nearpeak.systems.training.memory.memory_peak import rank_memory

    @lru_cache(maxsize=4096)
    def held(plan: TrainingPlan) -> tuple[RankMemory, ...]:
        return tuple(
            rank_memory(shape, plan, stage, device_bytes=device_bytes, context_bytes=CONTEXT_BYTES)
            for stage in range(plan.pp)
        )

    return held


def _fullest(memory: tuple[RankMemory, ...]) -> RankMemory:
    return max(memory, key=lambda held: held.used_bytes)


def fast_count(cluster: Cluster) -> int:
    """Return the devices of the innermost tier."""
    return cluster.fabric.tiers[0].device_count or cluster.device_count


def resolution(answer: TrainingAnswer) -> float:
    """Return the change of a step that two plans on the same devices can be told apart by."""
    return SHARED_ERROR_RATIO * answer.resolved_ratio


def _searched(
    shape: TransformerShape, cluster: Cluster, time: Callable[[TrainingPlan], TrainingAnswer], stack: str,
    space: "PlanSpace", price: float,
) -> PlanAnswer:  # fmt: skip
    """Return the fastest plan that fits, and what the search looked at."""
    from nearpeak.api.training.training_time import PEAK_UNITS
    from nearpeak.systems.training.memory.memory_peak import fullest_rank
    from nearpeak.systems.training.plan_search.branch_and_bound import SearchLimits, search_plans
    from nearpeak.systems.training.plan_search.step_floor import DeviceRates, step_floor
    from nearpeak.targets import target_of

    (precision,) = space.precisions
    target = target_of(cluster.target)
    peak = target.peaks.get(PEAK_UNITS[precision])
    if peak is None or target.dram.capacity_bytes is None:
        raise SpecError(
            f"{cluster.target}: states no rate of {precision} products or no memory; --parallel needs neither"
        )
    limits = SearchLimits(
        device_bytes=target.dram.capacity_bytes, context_bytes=CONTEXT_BYTES, device_price_per_s=price / 3600,
        interval_ratio=0.05, free_step_bytes=max(target.dram.capacity_bytes // FRONT_STEPS, 1),
    )  # fmt: skip

    def fits(plan: TrainingPlan) -> bool:
        return fullest_rank(shape, plan, device_bytes=limits.device_bytes, context_bytes=CONTEXT_BYTES).fits

    rates = DeviceRates(flop_per_s=target.highest_flop_per_s(PEAK_UNITS[precision]))
    return search_plans(
        shape, space, limits, step_time=lambda plan: time(plan).step_s,
        floor=lambda plans: step_floor(shape, plans, rates, cluster.fabric),
        tighter=[program_bound(shape, cluster, stack)], fits=fits, with_front=True,
    )  # fmt: skip
