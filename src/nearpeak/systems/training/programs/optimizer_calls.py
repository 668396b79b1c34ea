"""Calls of the end of a training step: gradient norm, update, gathering of updated parameters."""

from collections.abc import Sequence

from nearpeak.core.systems.rank_program import RankCall
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.work.dtype import dtype_of
from nearpeak.systems.training.programs.data_parallelism import DataParallelism
from nearpeak.systems.training.programs.gradient_calls import Unit, replica_groups, shard_count
from nearpeak.systems.transformer.pass_calls import collective, kernel, pointwise

_SCALAR_BYTES = 4


def optimizer_calls(units: Sequence[Unit], plan: TrainingPlan, style: DataParallelism) -> tuple[RankCall, ...]:
    """Return the calls of the optimizer on one rank: norm of gradients, clipping, AdamW, gathering of parameters.

    Counts: one pass over the gradients of the rank's share for the norm, one to scale them, one fused AdamW; a scalar
    reduction for the norm over each dimension that splits parameters.
    """
    shares = _shares(units, plan, style)
    calls: list[RankCall] = []
    replicas = plan.dp * plan.cp if style.states_are_split else 1
    dims = [dim for dim, degree in (("tp", plan.tp), ("pp", plan.pp), ("dp", replicas)) if degree > 1]
    if plan.precision == "fp16":  # gradients are divided by the scale of the loss, and searched for infinities
        calls += [pointwise(f"optimizer.{kind}.unscale", count, style.gradient_dtype, "mul") for kind, count in shares]
        calls += [collective("optimizer.overflow", "all_reduce", _SCALAR_BYTES, dim) for dim in dims]
    for kind, elements in shares:
        calls.append(kernel(f"optimizer.{kind}.norm", "reduce", outputs=1, reduced=elements,
                            dtype=style.gradient_dtype))  # fmt: skip
    calls += [collective("optimizer.norm", "all_reduce", _SCALAR_BYTES, dim) for dim in dims]
    for kind, elements in shares:
        calls.append(pointwise(f"optimizer.{kind}.clip", elements, style.gradient_dtype, "mul"))
    for kind, elements in shares:
        calls.append(
            kernel(f"optimizer.{kind}.update", "adamw", parameters=elements, dtype=style.parameter_dtype,
                   grad_dtype=style.gradient_dtype, state_dtype="fp32", master=style.master or None)
        )  # fmt: skip
    if style.gathers_after_update:
        calls += _updated(units, plan, style)
    if style.zeroes_gradients:
        held = sum(unit.elements(kind) for unit in units for kind in ("dense", "experts"))
        calls.append(kernel("optimizer.zero", "fill", elements=held, dtype=style.gradient_dtype))
    return tuple(calls)


def _shares(units: Sequence[Unit], plan: TrainingPlan, style: DataParallelism) -> list[tuple[str, int]]:
    """Return the parameters that the rank updates, by kind."""
    shares = []
    for dim, ranks, kind in replica_groups(plan):
        elements = sum(unit.elements(kind) for unit in units)
        split = (shard_count(plan) if dim == "dp" else ranks) if style.states_are_split else 1
        if elements:
            shares.append((kind, -(-elements // split)))
    return shares


def _updated(units: Sequence[Unit], plan: TrainingPlan, style: DataParallelism) -> list[RankCall]:
    """Return the gathering of parameters after the update, in buckets of whole sizes."""
    width = dtype_of(style.parameter_dtype)
    calls: list[RankCall] = []
    for dim, ranks, kind in replica_groups(plan):
        elements = sum(unit.elements(kind) for unit in units)
        if ranks < 2 or not elements:
            continue
        bucket = style.bucket_elements or elements
        whole, rest = divmod(elements, bucket)
        sizes = [bucket] * whole + ([rest] if rest else [])
        calls += [
            collective(f"optimizer.{kind}.parameters", "all_gather", width.bytes(size), dim, is_beside=plan.dp_overlap)
            for size in sizes
        ]
    return calls
