"""Programs of the ranks of any captured training step: replicas, shards and pipeline stages by module."""

from collections.abc import Sequence
from dataclasses import replace

from nearpeak.core.systems.rank_program import RankCall, RankProgram
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops import case_of
from nearpeak.systems.training.pipeline_order import rank_stages
from nearpeak.systems.training.programs.captured_step import rank_call
from nearpeak.systems.training.programs.data_parallelism import DataParallelism, data_parallelism
from nearpeak.systems.training.programs.gradient_calls import (
    Unit,
    bucket_calls,
    gathers,
    reduction,
    replica_groups,
    shard_count,
)
from nearpeak.systems.training.programs.stage_calls import StageCalls, planned_step, stage_calls
from nearpeak.systems.training.schedules import plan_schedule
from nearpeak.systems.transformer.pass_calls import collective, pointwise

_PARTS = {"cp": "spatial", "tp": "branches"}
"""Words that state what the ranks of a dimension share of a captured step."""


def workload_program(
    workload: Workload, plan: TrainingPlan, stage: int = 0, *, starts: Sequence[str] = (),
    blocks: Sequence[str] = (), style: DataParallelism | None = None,
) -> RankProgram:  # fmt: skip
    """Return what one rank runs of a captured step, taken as one micro-batch of one replica.

    Works for any model: DDP, ZeRO, FSDP, pipeline stages and tiles of images need no knowledge of its layers.

    Args:
        workload: training step of one device, captured with its optimizer at the micro-batch of the plan.
        stage: stage of the model: chunk c of rank r is c · pp + r.
        starts: module paths at which the second and further stages begin; those of the plan unless given.
        blocks: module paths that are sharded and gathered as a whole; blocks with a number unless given.
        style: how gradients and parameters travel; the framework's way unless given, in the step's formats.

    Raises:
        SpecError: a degree that needs a transformer, no training step, or starts that are none.
        NotModelledError: a call that no operator matches or tiles cannot share, or an optimizer that cannot be split.
    """
    check_degrees(workload.name, plan)
    stage_part = stage_calls(planned_step(workload, plan, blocks), plan, stage, starts=starts, blocks=blocks)
    return stage_program(stage_part, plan, style=style)


def check_degrees(name: str, plan: TrainingPlan) -> None:
    """Refuse degrees that only transformers of known extents have."""
    parts = {"cp": plan.tile_row_count * plan.tile_column_count > 1, "tp": plan.has_branches}
    for field in ("tp", "cp", "ep", "etp"):
        degree = getattr(plan, field)
        if degree > 1 and not parts.get(field):
            near = f"; {_PARTS[field]}={degree} may work" if field in _PARTS else ""
            raise SpecError(
                f"{name}: {field}={degree} needs the shape of a transformer; a captured step takes dp and pp, "
                f"{field}=1{near}"
            )


def stage_program(calls: StageCalls, plan: TrainingPlan, *, style: DataParallelism | None = None) -> RankProgram:
    """Return what a rank of a stage runs for one micro-batch, and at the end of a step.

    Args:
        style: how gradients and parameters travel; the framework's way unless given, in the step's formats.

    Raises:
        NotModelledError: an optimizer that cannot be split.
    """
    style = style or replace(data_parallelism(plan), gradient_dtype=calls.step.gradient_dtype)
    forward, backward, weight, ready = _passes(calls, plan, style)
    tile_count = plan.tile_row_count * plan.tile_column_count
    return RankProgram(
        stage=calls.stage % plan.pp, chunk=calls.stage // plan.pp, layer_count=len(calls.units) - 1,
        forward=(*forward, *_sent(calls.places.activation_bytes[calls.stage] // tile_count)),
        backward=(*backward, *_sent(calls.places.gradient_bytes[calls.stage] // tile_count)),
        weight=weight,
        gradient=(
            *(() if style.reduces_each_micro_batch else bucket_calls((ready,), plan, style)),
            *_tied(calls, plan, style),
        ),
        optimizer=_optimizer(calls, plan, style),
        parameter_count=sum(unit.elements("dense") for unit in calls.units),
    )  # fmt: skip


def workload_programs(
    workload: Workload, plan: TrainingPlan, *, starts: Sequence[str] = (), blocks: Sequence[str] = (),
    style: DataParallelism | None = None,
) -> tuple[RankProgram, ...]:  # fmt: skip
    """Return the programs of all stages of a captured step."""
    return tuple(
        workload_program(workload, plan, stage, starts=starts, blocks=blocks, style=style)
        for stage in range(plan.pp * plan.chunk_count)
    )


def _passes(
    stage_part: StageCalls, plan: TrainingPlan, style: DataParallelism
) -> tuple[tuple[RankCall, ...], tuple[RankCall, ...], tuple[RankCall, ...], Unit]:
    """Return the passes of a micro-batch, and the parameters in reverse order of their gradients' readiness."""
    step = stage_part.step
    gathered = gathers(stage_part.units, plan, style) if style.gathers_in_passes else [[] for _ in stage_part.units]
    before = {unit.name: calls for unit, calls in zip(stage_part.units, gathered, strict=True)}
    forward = [*before["root"], *_with_gathers(stage_part, before)]
    last_writer = {use.buffer: place for place, call in enumerate(stage_part.backward) for use in call.writes}
    due = {place: [step.gradients[b] for b in dict.fromkeys(use.buffer for use in call.writes)
                   if b in step.gradients and last_writer[b] == place]
           for place, call in enumerate(stage_part.backward)}  # fmt: skip
    (dim, ranks, _), _ = replica_groups(plan)
    left = {unit.name: len(unit.tensors) for unit in stage_part.units}
    backward: list[RankCall] = []
    weight: list[RankCall] = []
    ready: list[Unit] = []
    opened: set[str] = set()
    for place, call in enumerate(stage_part.backward):
        unit = step.unit_of(call.module)
        if unit and unit not in opened and style.reshards:
            backward += before.get(unit, ())
            opened.add(unit)
        is_weight = bool(call.writes) and all(use.buffer in step.gradients for use in call.writes)
        (weight if is_weight else backward).extend(stage_part.ranked(call, is_backward=True))
        for name, tensor in due[place]:
            ready.append(Unit(name=name, tensors=(tensor,)))
            if plan.micro_batch_count > 1 and not style.reduces_each_micro_batch:
                weight.append(
                    pointwise("gradient.accumulate", tensor.elements, style.gradient_dtype, "add", operands=2)
                )
            left[name or "root"] -= 1
            if not left[name or "root"] and style.reduces_each_micro_batch and ranks > 1:
                unit_tensors = next(unit.tensors for unit in stage_part.units if unit.name == (name or "root"))
                weight += reduction(f"{name or 'root'}.gradient", unit_tensors, dim, plan, style)
    order = tuple(tensor for unit in reversed(ready) for tensor in unit.tensors)
    return tuple(forward), tuple(backward), tuple(weight), Unit(name="gradient", tensors=order)


def _with_gathers(calls: StageCalls, before: dict[str, list[RankCall]]) -> list[RankCall]:
    order: list[RankCall] = []
    opened: set[str] = set()
    for call in calls.forward:
        unit = calls.step.unit_of(call.module)
        if unit and unit not in opened:
            order += before.get(unit, ())
            opened.add(unit)
        order += calls.ranked(call)
    return order


def _tied(calls: StageCalls, plan: TrainingPlan, style: DataParallelism) -> list[RankCall]:
    """Return the sums of the gradients of parameters that stages of several ranks hold, once a step."""
    if not calls.places.tied:
        return []
    ranks = rank_stages(plan_schedule(plan))
    width = dtype_of(style.gradient_dtype)
    tensors = {tensor.name: tensor for unit in calls.units for tensor in unit.tensors}
    return [
        collective("gradient.embedding", "all_reduce", width.bytes(tensors[name].elements), "pp")
        for name, stages in calls.places.tied.items()
        if calls.stage in stages and not any(stages <= held.keys() for held in ranks)
    ]


def _sent(size: int) -> tuple[RankCall, ...]:
    return (collective("stage.send", "send", size, "pp"),) if size else ()


def _optimizer(stage_part: StageCalls, plan: TrainingPlan, style: DataParallelism) -> tuple[RankCall, ...]:
    """Return the captured optimizer's calls over the parameters of the stage, or over its share of them."""
    step = stage_part.step
    every = sum(unit.elements("dense") for unit in step.units)
    held = sum(unit.elements("dense") for unit in stage_part.units)
    split = shard_count(plan) if style.states_are_split else 1
    share = -(-held // split)
    calls = [
        rank_call(call)
        if share == every
        else replace(rank_call(call), case=_scaled(call.case, share, every, step.name))
        for call in step.optimizer
    ]
    if style.gathers_after_update and split > 1:
        unit = Unit(name="optimizer", tensors=tuple(tensor for unit in stage_part.units for tensor in unit.tensors))
        calls += [call for part in gathers((unit,), plan, style) for call in part]
    return tuple(calls)


def _scaled(case: Case | None, share: int, every: int, name: str) -> Case | None:
    """Return an update of `share` of `every` parameters; calls over one number a tensor stay as they are."""
    if case is None or "parameters" not in dict(case.axes):
        if case is not None and max((extent for _, extent in case.axes), default=0) * 2 > every:
            raise NotModelledError(f"{name}: the optimizer's {case.op} cannot be split over ranks; capture it fused")
        return case
    record = case.record()
    return case_of(record | {"parameters": max(int(record["parameters"]) * share // every, 1)})  # type: ignore[call-overload]
