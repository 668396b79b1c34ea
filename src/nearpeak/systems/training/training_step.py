"""Time of a training step from rank programs, durations and a software stack, in parts that add up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import NamedTuple

from nearpeak.core.systems.pipeline_schedule import PipelineSchedule
from nearpeak.core.systems.pipeline_step import PipelineStep
from nearpeak.core.systems.rank_program import RankCall, RankProgram
from nearpeak.core.systems.system_timeline import Span
from nearpeak.core.systems.training_answer import StageTime
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.errors import SpecError
from nearpeak.systems.collectives.tier_times import straggler_wait_s
from nearpeak.systems.training.pass_order import pass_order
from nearpeak.systems.training.pipeline_executor import StageTimes, pipeline_step
from nearpeak.systems.training.pipeline_order import rank_stages
from nearpeak.systems.training.rank_lanes import LaneTime, Times, run_lanes
from nearpeak.systems.training.replica_overlap import ReplicaTraffic, replica_loss_s
from nearpeak.systems.training.schedules import plan_schedule, splits_backward
from nearpeak.systems.training.tensor_overlap import overlapped

HOST_SPREAD_RATIO = 0.01
"""Standard deviation of the step of equal hosts over its mean: median over 42 suites on 39 H100 hosts."""
ROUNDING_RATIO = 1e-12
"""Share of a rank's work below which a difference of two sums is rounding."""
_SHARED_DIMS = {"edp": "dp", "dp_shard": "dp", "dp_replica": "dp"}
"""Dimensions whose exposed time counts as that of another."""
_EXPOSED = ("tp", "pp", "dp", "ep", "cp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRun:
    """The passes of one micro-batch through one model chunk, and the end of its step."""

    forward: LaneTime
    """Forward pass."""
    backward: LaneTime
    """Backward pass with recomputation and gradients of weights."""
    weight_s: float
    """Gradients of weights alone, for schedules that split them off."""
    shared: ReplicaTraffic
    """Reductions of gradients and gathers of parameters beside the passes."""
    optimizer: LaneTime
    """Update of the parameters."""


class Beside(NamedTuple):
    """What other ranks run while a rank of a stage runs its program: branches of the graph, for one micro-batch."""

    program: RankProgram
    """Passes of all of them."""
    rank_count: int
    """Other ranks."""
    wait_s: float
    """Time that the rank itself waits for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """A step and its parts."""

    step_s: float
    """Time of the step."""
    parts_s: Mapping[str, float]
    """Its parts by name of `PART_NAMES`, which add up to it.

    Kernels, host and collectives of a micro-batch are the mean over the pipeline's ranks; what the busier ranks run
    beyond it is imbalance. Under branches they are the mean over the ranks of a replica, and waits for each other are
    branch idle. The end of the step is that of the rank that ends last.
    """
    stages: tuple[StageTime, ...]
    """Times of each stage."""
    device: LaneTime
    """Everything that the rank runs in a step."""
    model_flop: float
    """Products of matrices of the model on one device in one step, on average, without recomputation."""
    spans: tuple[Span, ...] = ()
    """Passes and transfers of the pipeline, where they were requested."""


def step_time(
    programs: Sequence[RankProgram], plan: TrainingPlan, times: Times, *, hop_s: float = 0.0,
    beside: Beside | None = None, host_count: int = 1, has_spans: bool = False,
) -> StepTime:  # fmt: skip
    """Return the time of one step of `plan`.

    Args:
        programs: those of one rank of each stage, chunk by chunk.
        hop_s: time of a message between stages.
        beside: what other ranks of the only stage run meanwhile.
        host_count: hosts that wait for one another in each step.
        has_spans: whether the timeline of the pipeline is returned.

    Raises:
        SpecError: the programs are not those of the plan's stages, or no schedule has the plan's name and degrees.
    """
    chunks = _run_chunks(programs, plan, times)
    schedule = plan_schedule(plan)
    others = _others(beside, chunks[0], plan, times)
    fixed_s = times.stack.micro_batch_s + others.wait_s
    pipelines = _pipelines(schedule, chunks, plan, fixed_s, hop_s, has_spans=has_spans)
    moving = pipelines.moving
    ranks = [[(chunks[stage], count) for stage, count in entries.items()] for entries in rank_stages(schedule)]
    shared_s = [
        replica_loss_s([chunks[stage].shared._replace(start_s=start_s, stop_s=stop_s)
                        for stage, (start_s, stop_s) in entries.items()], moving.stop_s[rank])
        for rank, entries in enumerate(moving.stage_spans_s)
    ]  # fmt: skip
    ends_s = [
        moving.stop_s[rank] + shared_s[rank] + sum(chunk.optimizer.time_s for chunk, _ in entries)
        for rank, entries in enumerate(ranks)
    ]
    last = max(range(plan.pp), key=ends_s.__getitem__)
    parts_s, device = _parts(ranks, plan, times, pipelines, last, others)
    parts_s["exposed dp"] += shared_s[last]
    parts_s["straggler"] = straggler_wait_s(host_count, HOST_SPREAD_RATIO * fsum(parts_s.values()))
    flop = sum(chunk.forward.flop for chunk in chunks) * plan.micro_batch_count / plan.pp
    return StepTime(
        step_s=fsum(parts_s.values()), parts_s=parts_s,
        stages=tuple(_stage_time(rank, [chunk for chunk, _ in entries]) for rank, entries in enumerate(ranks)),
        device=device,
        model_flop=3 * flop,  # gradients of inputs and of weights are one product each
        spans=moving.spans,
    )  # fmt: skip


class _Pipelines(NamedTuple):
    """One pipeline under three assumptions."""

    even: PipelineStep
    """Without transfers, all stages as long as their mean."""
    still: PipelineStep
    """Without transfers between stages."""
    moving: PipelineStep
    """With them."""


class _Others(NamedTuple):
    """Other ranks of a stage."""

    work: LaneTime
    """All that they run for one micro-batch."""
    rank_count: int
    """How many they are."""
    wait_s: float
    """Wait of the rank that is shown, for one micro-batch."""


_Chunks = Sequence[tuple[ChunkRun, int]]
"""Runs of a rank's chunks, and the micro-batches that it runs through each."""


def _parts(
    ranks: Sequence[_Chunks], plan: TrainingPlan, times: Times, pipelines: _Pipelines, last: int, others: _Others
) -> tuple[dict[str, float], LaneTime]:
    """Return the parts of the step but for stragglers, and all that the rank runs that ends last.

    Args:
        last: the rank that ends last.
        others: the other ranks of the stage.
    """
    even, still, moving = pipelines
    update = LaneTime()
    for chunk, _ in ranks[last]:
        update = update.joined(chunk.optimizer)
    busy_s, shown = fsum(still.busy_s) / len(ranks), ranks
    if busy_s > still.stop_s[last]:  # the end of the step decides which rank is last: it may be one with little work
        busy_s, shown = still.busy_s[last], ranks[last : last + 1]
    passes, wait_s = _passes(shown), plan.micro_batch_count * others.wait_s
    work = passes.joined(others.work.scaled(plan.micro_batch_count)).scaled(1 / (1 + others.rank_count))
    fixed_s = plan.micro_batch_count * times.stack.micro_batch_s
    exposed_s = dict.fromkeys(_EXPOSED, 0.0)
    for dim, dim_s in (*work.exposed_s.items(), *update.exposed_s.items()):
        exposed_s[_SHARED_DIMS.get(dim, dim)] += dim_s
    exposed_s["pp"] += moving.stop_s[last] - still.stop_s[last]
    hidden_s = passes.time_s + fixed_s + wait_s - busy_s  # what overlapped passes hide of each other
    exposed_s["ep"] -= hidden_s if abs(hidden_s) > ROUNDING_RATIO * busy_s else 0.0
    idle_s = still.stop_s[last] - busy_s
    uneven_s = min(max(still.stop_s[last] - even.stop_s[last], 0.0), idle_s)
    parts_s = {
        "proved bound": work.bound_s,
        "kernels below peak": work.kernel_s - work.bound_s,
        "host": work.host_s + fixed_s + times.stack.step_s + update.host_s,
        **{f"exposed {dim}": exposed_s[dim] for dim in _EXPOSED},
        "bubble": idle_s - uneven_s,
        "imbalance": uneven_s,
        "branch idle": passes.time_s + wait_s - work.time_s,
        "optimizer": update.kernel_s,
    }
    return parts_s, _passes(ranks[last : last + 1]).joined(update)


def _others(beside: Beside | None, chunk: ChunkRun, plan: TrainingPlan, times: Times) -> _Others:
    """Return what the other ranks of a stage run; the rank waits at least for what they cannot have done before."""
    if beside is None:
        return _Others(LaneTime(), 0, 0.0)
    run = _run_chunk(beside.program, plan, times)
    work, alone_s = run.forward.joined(run.backward), chunk.forward.time_s + chunk.backward.time_s
    return _Others(work, beside.rank_count, max(beside.wait_s, work.time_s / beside.rank_count - alone_s))


def _passes(ranks: Sequence[_Chunks]) -> LaneTime:
    """Return the mean of what ranks run in their passes."""
    counts: dict[int, int] = {}  # chunks with the same calls are one object
    runs = {id(chunk): chunk for rank in ranks for chunk, _ in rank}
    for chunk, count in (pair for rank in ranks for pair in rank):
        counts[id(chunk)] = counts.get(id(chunk), 0) + count
    work = LaneTime()
    for key, chunk in runs.items():
        work = work.joined(chunk.forward.joined(chunk.backward).scaled(counts[key] / len(ranks)))
    return work


def _pipelines(
    schedule: PipelineSchedule, chunks: Sequence[ChunkRun], plan: TrainingPlan, fixed_s: float, hop_s: float, *,
    has_spans: bool,
) -> _Pipelines:  # fmt: skip
    """Return the pipelines of a step; the fixed time of a micro-batch falls on the first chunks.

    A forward and a backward pass that overlap hide the exchanges of their experts under each other's kernels.
    """
    if schedule.stage_count != len(chunks):
        raise SpecError(
            f"schedule {plan.schedule}: has {schedule.stage_count} stages on pp={plan.pp}, but the plan has "
            f"{len(chunks)} chunks; {schedule.stage_count // plan.pp} chunk(s) per rank would be right"
        )
    is_split = splits_backward(plan.schedule) and plan.pp > 1
    forward_s = tuple(chunk.forward.time_s + fixed_s * (place < plan.pp) for place, chunk in enumerate(chunks))
    backward_s = tuple(chunk.backward.time_s for chunk in chunks)

    def pair_s(ahead: int, back: int) -> float:
        exchange_s = chunks[ahead].forward.exposed_s.get("ep", 0.0) + chunks[back].backward.exposed_s.get("ep", 0.0)
        kernels_s = forward_s[ahead] + backward_s[back] - exchange_s
        return max(kernels_s, exchange_s, forward_s[ahead], backward_s[back])

    stage_times = StageTimes(
        forward_s=forward_s,
        backward_s=backward_s,
        pair_s=pair_s,
        weight_s=tuple(min(chunk.weight_s, chunk.backward.time_s) for chunk in chunks) if is_split else (),
    )
    still = pipeline_step(schedule, stage_times, has_spans=has_spans and not hop_s)
    is_even = len({*forward_s}) == len({*backward_s}) == 1
    return _Pipelines(
        even=still if is_even else pipeline_step(schedule, _evened(stage_times, chunks)), still=still,
        moving=pipeline_step(schedule, stage_times, hop_s, has_spans=has_spans) if hop_s else still,
    )  # fmt: skip


def _evened(stages: StageTimes, chunks: Sequence[ChunkRun]) -> StageTimes:
    """Return as many stages of the same times in sum, all as long as their mean.

    Passes that overlap hide the mean of what they hide.
    """
    count = len(chunks)
    forward_s, backward_s, weight_s = (fsum(part) / count for part in (stages.forward_s, stages.backward_s,
                                                                       stages.weight_s))  # fmt: skip
    exchanges_s = fsum(chunk.forward.exposed_s.get("ep", 0.0) + chunk.backward.exposed_s.get("ep", 0.0)
                       for chunk in chunks) / count  # fmt: skip
    pair_s = max(forward_s + backward_s - exchanges_s, exchanges_s, forward_s, backward_s)
    split_s = min(weight_s, backward_s) if stages.weight_s else None
    return StageTimes.equal(count, forward_s, backward_s, split_s, pair_s)


def _run_chunks(programs: Sequence[RankProgram], plan: TrainingPlan, times: Times) -> list[ChunkRun]:
    """Return the runs of all chunks in the order of the model; chunks with the same calls are run once."""
    places = {(program.chunk, program.stage): program for program in programs}
    known: dict[tuple[int, ...], ChunkRun] = {}
    runs = []
    for chunk in range(plan.chunk_count):
        for stage in range(plan.pp):
            program = places.get((chunk, stage))
            if program is None:
                raise SpecError(f"rank programs: none of stage {stage}, chunk {chunk}, which the plan has")
            key = tuple(
                id(calls)
                for calls in (
                    program.forward, program.recomputed, program.backward, program.weight, program.gradient,
                    program.optimizer,
                )
            )  # fmt: skip
            if key not in known:
                known[key] = _run_chunk(program, plan, times)
            runs.append(known[key])
    return runs


def _run_chunk(program: RankProgram, plan: TrainingPlan, times: Times) -> ChunkRun:
    def run(calls: Sequence[RankCall], *, is_backward: bool = False) -> LaneTime:
        return run_lanes(overlapped(calls) if plan.tp_overlap else calls, times, is_backward=is_backward)

    order = pass_order(program)
    forward, backward = run(order.forward), run(order.backward, is_backward=True)
    last = run(order.last_backward, is_backward=True) if program.gradient else backward
    first = run(order.first_forward) if order.first_forward is not order.forward else forward
    is_split = splits_backward(plan.schedule)
    gather_s, reduction_s = (
        sum(call.count * times.transfer(call.transfer).time_s for call in calls if call.is_beside and call.transfer)
        for calls in (program.optimizer, program.gradient)
    )
    slowing_ratio = 0.0
    if reduction_s and plan.chunk_count > 1:  # passes of other chunks, beside which the collectives run on
        beside = run([*(call for call in program.gradient if call.is_beside), *order.backward], is_backward=True)
        slowing_ratio = (beside.time_s - backward.time_s) / max(reduction_s - beside.tail_s, reduction_s / 2)
    shared = ReplicaTraffic(
        start_s=0.0, stop_s=0.0, gather_s=gather_s, gather_wait_s=first.time_s - forward.time_s,
        reduction_s=reduction_s, reduction_tail_s=last.tail_s, slowing_s=last.time_s - backward.time_s,
        slowing_ratio=slowing_ratio,
    )  # fmt: skip
    return ChunkRun(
        forward=forward, backward=backward,
        weight_s=run(program.weight, is_backward=True).time_s if is_split else 0.0, shared=shared,
        optimizer=run_lanes(order.optimizer, times),
    )  # fmt: skip


def _stage_time(stage: int, chunks: Sequence[ChunkRun]) -> StageTime:
    both = LaneTime()
    for chunk in chunks:
        both = both.joined(chunk.forward).joined(chunk.backward)
    return StageTime(
        stage=stage, forward_s=sum(chunk.forward.time_s for chunk in chunks),
        backward_s=sum(chunk.backward.time_s for chunk in chunks), kernel_s=both.kernel_s, host_s=both.host_s,
        exposed_s=sum(both.exposed_s.values()),
    )  # fmt: skip
