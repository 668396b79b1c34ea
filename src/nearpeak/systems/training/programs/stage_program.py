"""Programs of the ranks of a training job by the rules of a plan: kernels and collectives of each stage chunk."""

from collections.abc import Sequence
from dataclasses import dataclass

from nearpeak.core.systems.rank_program import RankCall, RankProgram
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.core.work.dtype import dtype_of
from nearpeak.systems.training.programs.data_parallelism import DataParallelism, data_parallelism
from nearpeak.systems.training.programs.gradient_calls import Unit, bucket_calls, gathers, reduction, replica_groups
from nearpeak.systems.training.programs.optimizer_calls import optimizer_calls
from nearpeak.systems.training.programs.plan_layout import plan_layout
from nearpeak.systems.training.programs.rank_parameters import (
    ParameterTensor,
    embedding_tensors,
    head_tensors,
    layer_tensors,
)
from nearpeak.systems.training.programs.virtual_stages import VirtualStage, virtual_stage
from nearpeak.systems.transformer.layer import is_windowed, layer_calls
from nearpeak.systems.transformer.layout import Layout
from nearpeak.systems.transformer.model_ends import embedding_calls, head_calls
from nearpeak.systems.transformer.pass_calls import PassCalls, collective
from nearpeak.systems.transformer.token_batch import TrainingBatch, row_count

_CORE = ("attention", "attention.hop", "attention.merge", "attention.scores", "attention.scale", "attention.mask",
         "attention.softmax", "attention.dropout", "attention.values")  # fmt: skip
"""Calls that selective recomputation runs again (Korthikanti et al. 2022, arXiv:2205.05198, section 5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One unit of a chunk: its calls, its parameters."""

    calls: PassCalls
    """Calls of each pass."""
    unit: Unit
    """Parameters that are sharded and reduced together."""
    is_layer: bool = True
    """Whether it is a layer; otherwise an end of the model."""


def rank_program(
    shape: TransformerShape, plan: TrainingPlan, stage: int = 0, chunk: int = 0, *,
    layer_counts: Sequence[int] | None = None, layout: Layout | None = None, style: DataParallelism | None = None,
) -> RankProgram:  # fmt: skip
    """Return what one rank of a stage chunk runs for one micro-batch, and at the end of a step.

    All ranks of a stage run alike, but for the load of experts: the program is that of the busiest rank.

    Args:
        layer_counts: layers of each virtual stage in order of the model; equal shares unless given.
        layout: formats and fusions of the layers; those of the plan's framework unless given.
        style: how gradients and parameters travel over replicas; the framework's way unless given.

    Raises:
        SpecError: a degree does not divide the shape, the sequence or the layers.

    >>> from nearpeak.frontends.huggingface.transformer_models import shape_of
    >>> plan = TrainingPlan(tp=8, pp=2, dp=2, micro_batch=1, global_batch=8, sequence=4096, sequence_parallel=True)
    >>> program = rank_program(shape_of("llama-3-8b"), plan, stage=1)
    >>> program.layer_count, program.parameter_count, program.forward[-1].name
    (16, 502403072, 'loss')
    """
    layout = layout or plan_layout(shape, plan)
    style = style or data_parallelism(plan)
    place = virtual_stage(shape, plan, stage, chunk, layer_counts)
    batch = TrainingBatch(sequences=plan.micro_batch, length=plan.sequence)
    parts = _parts(shape, layout, batch, place)
    units = [part.unit for part in parts]
    trained = [unit.trained for unit in units]
    forward, backward, weight = _passes(parts, plan, style)
    rows = row_count(batch, layout.cp) // layout.split_rows
    size = dtype_of(layout.formats.activation).bytes(rows * shape.hidden)
    send = (collective("stage.send", "send", size, "pp"),) if plan.pp > 1 else ()  # chunks of one rank are neighbours
    layers = [call for part in parts if part.is_layer for call in part.calls.forward]
    is_full = plan.recompute == "full"
    again = [call for call in layers if is_full or (call.case and call.name in _CORE)]
    return RankProgram(
        stage=stage, chunk=chunk, layer_count=place.layer_count,
        forward=forward if place.is_last else (*forward, *send),
        backward=backward if place.is_first else (*backward, *send),
        weight=weight, recomputed=() if plan.recompute == "none" else tuple(again),
        gradient=_gradient(shape, plan, layout, trained, style, place),
        optimizer=(*optimizer_calls(trained, plan, style), *(call for part in parts for call in part.calls.step)),
        parameter_count=sum(unit.elements("dense") for unit in units),
        expert_parameter_count=sum(unit.elements("experts") for unit in units),
    )  # fmt: skip


def rank_programs(
    shape: TransformerShape, plan: TrainingPlan, *, layer_counts: Sequence[int] | None = None,
    layout: Layout | None = None, style: DataParallelism | None = None,
) -> tuple[RankProgram, ...]:  # fmt: skip
    """Return the programs of all stages, chunk by chunk."""
    return tuple(
        rank_program(shape, plan, stage, chunk, layer_counts=layer_counts, layout=layout, style=style)
        for stage in range(plan.pp)
        for chunk in range(plan.chunk_count)
    )


def _parts(shape: TransformerShape, layout: Layout, batch: TrainingBatch, place: VirtualStage) -> list[_Part]:
    parts: list[_Part] = []
    if place.is_first:
        unit = Unit(name="embedding", tensors=embedding_tensors(shape, layout))
        parts.append(_Part(calls=embedding_calls(shape, layout, batch), unit=unit, is_layer=False))
    for layer in range(place.first_layer, place.first_layer + place.layer_count):
        has_experts = shape.has_experts(layer)
        calls = layer_calls(shape, layout, batch, has_experts=has_experts, is_windowed=is_windowed(shape, layer))
        unit = Unit(name="layer", tensors=layer_tensors(shape, layout, has_experts=has_experts))
        parts.append(_Part(calls=calls, unit=unit))
    if place.is_last:
        unit = Unit(name="head", tensors=head_tensors(shape, layout, holds_embedding=place.is_first))
        parts.append(_Part(calls=head_calls(shape, layout, batch), unit=unit, is_layer=False))
    return parts


def _passes(
    parts: Sequence[_Part], plan: TrainingPlan, style: DataParallelism
) -> tuple[tuple[RankCall, ...], tuple[RankCall, ...], tuple[RankCall, ...]]:
    """Return the passes of a micro-batch, with gathers and reductions of units where parameters are sharded."""
    # The ends of the model are gathered and scattered together, as the root unit.
    ends = tuple(tensor for part in parts if not part.is_layer for tensor in part.unit.tensors)
    units = [Unit(name="root", tensors=ends), *(part.unit for part in parts if part.is_layer)]
    gathered = iter(gathers(units, plan, style) if style.gathers_in_passes else [[] for _ in units])
    root = next(gathered)
    of_layers = {id(part): calls for part, calls in zip((p for p in parts if p.is_layer), gathered, strict=True)}
    forward: list[RankCall] = [*root]
    for part in parts:
        forward += [*of_layers.get(id(part), ()), *part.calls.forward]
    backward: list[RankCall] = []
    weight: list[RankCall] = []
    due: tuple[ParameterTensor, ...] = ()
    for part in reversed(parts):
        # The ends of the model stay gathered from the forward pass to the backward pass.
        backward += [*(of_layers.get(id(part), ()) if style.reshards else ()), *part.calls.backward]
        weight += part.calls.weight
        if style.reduces_each_micro_batch and (part.is_layer or not style.gathers_in_passes):
            due = (*part.unit.trained.tensors, *due)
            if sum(tensor.elements for tensor in due) >= style.bucket_elements:
                weight += _unit_reductions(Unit(name=part.unit.name, tensors=due), plan, style)
                due = ()
    if style.reduces_each_micro_batch:
        rest = (*due, *units[0].trained.tensors) if style.gathers_in_passes else due
        weight += _unit_reductions(Unit(name="root", tensors=rest), plan, style)
    return tuple(forward), tuple(backward), tuple(weight)


def _unit_reductions(unit: Unit, plan: TrainingPlan, style: DataParallelism) -> list[RankCall]:
    calls: list[RankCall] = []
    for dim, ranks, kind in replica_groups(plan):
        if ranks > 1 and unit.of_kind(kind):
            calls += reduction(f"{unit.name}.gradient", unit.of_kind(kind), dim, plan, style)
    return calls


def _gradient(
    shape: TransformerShape, plan: TrainingPlan, layout: Layout, units: Sequence[Unit], style: DataParallelism,
    place: VirtualStage,
) -> tuple[RankCall, ...]:  # fmt: skip
    """Return the reductions once a step: over replicas, of norms split by sequence, of a tied embedding."""
    width = dtype_of(style.gradient_dtype)
    calls: list[RankCall] = []
    if not style.reduces_each_micro_batch:
        calls += bucket_calls(units, plan, style)
    if layout.sequence_parallel:
        alike = sum(tensor.elements for unit in units for tensor in unit.tensors if tensor.is_replicated)
        calls.append(collective("gradient.norms", "all_reduce", width.bytes(alike), "tp"))
    if shape.is_tied and not layout.adapters and plan.pp > 1 and (place.is_first or place.is_last):
        tied = embedding_tensors(shape, layout)[0].elements
        calls.append(collective("gradient.embedding", "all_reduce", width.bytes(tied), "pp"))
    return tuple(calls)
