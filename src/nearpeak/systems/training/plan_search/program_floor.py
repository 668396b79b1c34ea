"""Lower bound of a plan's step by the model of its kernels: queues without gaps, in the shortest pipeline."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import compress
from typing import NamedTuple

from nearpeak.core.systems.rank_program import RankProgram, Transfer
from nearpeak.core.systems.stack import Stack
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.core.work.case import Case
from nearpeak.systems.collectives.tier_times import straggler_wait_s
from nearpeak.systems.training.plan_search.step_floor import fill_ratio
from nearpeak.systems.training.training_step import HOST_SPREAD_RATIO

Counts = Mapping[Case | Transfer, float]
"""Kernels and queued collectives with how often each runs."""


class QueuedCalls(NamedTuple):
    """Calls of a micro-batch on one rank."""

    forward: Counts
    """Forward pass."""
    whole: Counts
    """All passes."""
    head: Counts
    """Those of them that only a last stage has: output head and loss."""
    embedding: Counts
    """Those of them that only a first stage has."""


ProgramCalls = Callable[[TransformerShape, TrainingPlan], QueuedCalls]
"""Calls on a rank that holds the whole of a model."""
CallsTime = Callable[[TrainingPlan, Counts, Counts], float]
"""Seconds of calls of a plan, at the clock that a mix of calls sustains; as in bursts where the mix is empty."""


def program_floor(
    shape: TransformerShape, program_calls: ProgramCalls, calls_time: CallsTime, stack: Stack, host_count: int = 1
) -> Callable[[TrainingPlan], float]:
    """Return a bound of single plans that lies close to the step, from the programs of a layer of each kind.

    Plans that differ in stages, replicas or schedule run the same kernels, so that few programs serve all plans. The
    stages' times are those of a queue that never waits; fill_ratio gives the shortest pipeline of such stages, whatever
    their layers, and where all have as many alike, the last one with the head decides. Time in which a board rests
    raises the clock of its kernels by less than it takes itself: their energy has to fit into both together. So the mix
    without rests bounds the mean stage; what one stage has beyond it runs as in bursts.

    Args:
        program_calls: called with models of few layers on one stage.
        stack: its fixed times of micro-batches and steps are never hidden.
        host_count: hosts that wait for one another in each step.
    """
    wait_ratio = 1 + straggler_wait_s(host_count, HOST_SPREAD_RATIO)
    known: dict[TrainingPlan, _ModelTime] = {}

    def floor(plan: TrainingPlan) -> float:
        key = replace(
            plan, pp=1, chunk_count=1, schedule="1f1b", global_batch=plan.dp * plan.micro_batch, dp_overlap=True
        )
        if key not in known:
            known[key] = _model_time(shape, key, program_calls, calls_time)
        model, batches = known[key], plan.micro_batch_count
        mean_s = model.whole_s / plan.pp
        busy_s = mean_s * float(fill_ratio(plan, model.forward_s / model.whole_s))
        longest_s = -(-shape.layer_count // plan.pp) * model.layer_s  # some stage has that many layers
        if _has_equal_stages(shape, plan):
            passing_s = (
                (plan.pp - 1) * longest_s / plan.chunk_count / batches
            )  # first and last micro-batch, others wait
            longest_s = passing_s + mean_s + model.head_s - (model.head_s + model.embedding_s) / plan.pp
        return (batches * (max(busy_s, longest_s) + stack.micro_batch_s) + stack.step_s) * wait_ratio

    return floor


def queued_calls(program: RankProgram, *, has_tp: bool) -> QueuedCalls:
    """Return the kernels and queued collectives of one micro-batch.

    Args:
        has_tp: whether tensor-parallel collectives count, which they do not where they run under products.
    """
    counters = [Counter[Case | Transfer]() for _ in QueuedCalls._fields]
    forward_count = len(program.forward)
    for place, call in enumerate(program.micro_batch_calls()):
        move = None if call.is_beside or (call.transfer and call.transfer.dim == "tp" and not has_tp) else call.transfer
        key = call.case or move
        if key is None:
            continue
        part = call.name.partition(".")[0]
        is_in = (place < forward_count, True, part in ("head", "loss"), part == "embedding")
        for counts in compress(counters, is_in):
            counts[key] += call.count
    return QueuedCalls(*counters)


def _has_equal_stages(shape: TransformerShape, plan: TrainingPlan) -> bool:
    """Return whether all stages of a plan have as many layers of one kind, and a micro-batch of their own each."""
    is_alike = not ((shape.dense_layer_count and shape.expert_layer_count) or plan.stage_layer_count)
    is_even = not shape.layer_count % (plan.pp * plan.chunk_count) and plan.micro_batch_count >= plan.pp
    return is_alike and is_even and plan.schedule in ("gpipe", "1f1b", "interleaved")


@dataclass(frozen=True, slots=True, kw_only=True)
class _ModelTime:
    """Busy time of one micro-batch."""

    forward_s: float
    """Forward pass of the whole model."""
    whole_s: float
    """All passes of the whole model."""
    layer_s: float
    """All passes of its quickest kind of layer, as in bursts."""
    head_s: float
    """Output head and loss, as in bursts."""
    embedding_s: float
    """Embedding, as in bursts."""


def _model_time(
    shape: TransformerShape, plan: TrainingPlan, program_calls: ProgramCalls, calls_time: CallsTime
) -> _ModelTime:
    """Return the time of the whole model from models of few layers, whose differences are the layers' own."""
    kinds = [(count, kind) for count, kind in ((shape.dense_layer_count, 0), (shape.expert_layer_count, 1)) if count]
    first = kinds[0][1]
    base = (1 - first, first)
    least = program_calls(_short_model(shape, *base), plan)
    forward, whole = dict(least.forward), dict(least.whole)
    layers = []
    for count, kind in kinds:
        more = program_calls(_short_model(shape, base[0] + (kind == 0), base[1] + (kind == 1)), plan)
        own_forward, all_calls = (
            {call: number - few.get(call, 0) for call, number in many.items() if number != few.get(call, 0)}
            for many, few in ((more.forward, least.forward), (more.whole, least.whole))
        )
        extra = count - (kind == first)
        for counts, each in ((forward, own_forward), (whole, all_calls)):
            for call, number in each.items():
                counts[call] = counts.get(call, 0) + extra * number
        layers.append(calls_time(plan, all_calls, {}))
    return _ModelTime(
        forward_s=calls_time(plan, forward, whole), whole_s=calls_time(plan, whole, whole), layer_s=min(layers),
        head_s=calls_time(plan, least.head, {}), embedding_s=calls_time(plan, least.embedding, {}),
    )  # fmt: skip


def _short_model(shape: TransformerShape, dense: int, experts: int) -> TransformerShape:
    """Return the model with so many layers of each kind."""
    if not shape.experts:
        return replace(shape, layer_count=dense)
    few = replace(shape.experts, dense_layer_count=dense, layer_step=1)
    return replace(shape, layer_count=dense + experts, experts=few)
