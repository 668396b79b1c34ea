"""Simulation of one training step under a pipeline schedule: start, busy and idle time of each rank, lower bound."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.base.compilation import compiled
from nearpeak.core.systems.pipeline_schedule import PipelineOp, PipelineSchedule
from nearpeak.core.systems.pipeline_step import PipelineStep
from nearpeak.core.systems.system_timeline import Span
from nearpeak.errors import SpecError
from nearpeak.systems.training.pipeline_order import OrderedOps, ordered

PLAIN_OPS = 3_000_000
"""Ops that plain Python runs in about the time that compiling the loop takes."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Durations of the passes of one micro-batch through each stage."""

    forward_s: tuple[float, ...]
    """Forward pass by stage."""
    backward_s: tuple[float, ...]
    """Whole backward pass by stage."""
    weight_s: tuple[float, ...] = ()
    """Part of the backward pass that gives gradients of weights, by stage; for schedules that split it."""
    pair_s: Callable[[int, int], float] | None = None
    """Time of an overlapped pair from the stages of its forward and backward pass; without it, their sum."""

    def __post_init__(self) -> None:
        """Refuse times that are negative or of another number of stages."""
        counts = {len(self.forward_s), len(self.backward_s), len(self.weight_s or self.forward_s)}
        if len(counts) > 1 or not self.forward_s:
            raise SpecError(
                f"stage times: forward, backward and weight times are of {len(self.forward_s)}, {len(self.backward_s)} "
                f"and {len(self.weight_s)} stages; they must be of the same stages"
            )
        if min(self.forward_s) < 0 or any(
            not 0 <= part <= whole
            for part, whole in zip(self.weight_s or (0.0,) * len(self.backward_s), self.backward_s, strict=True)
        ):
            raise SpecError("stage times: must be at least 0, and the weight part at most the whole backward pass")

    @classmethod
    def equal(
        cls, stage_count: int, forward_s: float, backward_s: float, weight_s: float | None = None,
        pair_s: float | None = None,
    ) -> "StageTimes":  # fmt: skip
        """Return the times of stages that are alike."""
        return cls(
            forward_s=(forward_s,) * stage_count, backward_s=(backward_s,) * stage_count,
            weight_s=() if weight_s is None else (weight_s,) * stage_count,
            pair_s=None if pair_s is None else lambda _forward, _backward: pair_s,
        )  # fmt: skip

    def op_s(self, op: PipelineOp) -> float:
        """Return the duration of an op.

        Raises:
            SpecError: the schedule has more stages, or splits the backward pass and no weight part is known.
        """
        if max(op.stage, op.backward_stage) >= len(self.forward_s):
            raise SpecError(f"stage times: the schedule runs {op}, but times are of {len(self.forward_s)} stages")
        if op.kind in ("I", "W") and not self.weight_s:
            raise SpecError("stage times: the schedule splits the backward pass; give weight_s")
        stage = op.stage
        if op.kind == "FB":
            whole = self.forward_s[stage] + self.backward_s[op.backward_stage]
            return whole if self.pair_s is None else self.pair_s(stage, op.backward_stage)
        if op.kind == "F":
            return self.forward_s[stage]
        if op.kind == "B":
            return self.backward_s[stage]
        return self.weight_s[stage] if op.kind == "W" else self.backward_s[stage] - self.weight_s[stage]


def pipeline_step(
    schedule: PipelineSchedule, times: StageTimes | Callable[[PipelineOp], float],
    transfer_s: float | Callable[[int, int], float] = 0.0, *, has_spans: bool = False,
) -> PipelineStep:  # fmt: skip
    """Return when the ranks of a pipeline work in one step.

    Transfers run beside the computation: they delay the op that waits for them, not the rank that sends.

    Args:
        times: durations by stage, or a function that gives the duration of each op.
        transfer_s: time from one rank to another, the same for all or by sender and receiver; 0 within a rank.
        has_spans: whether the ops and transfers are returned one by one.

    Raises:
        SpecError: the schedule is no valid order, deadlocks, or has stages without times.

    >>> from nearpeak.systems.training.schedules import schedule_of
    >>> step = pipeline_step(schedule_of("1f1b", 4, 8), StageTimes.equal(4, 1.0, 2.0))
    >>> step.step_s, step.bubble_s[0], step.in_flight_count
    (33.0, 9.0, (4, 3, 2, 1))
    """
    order = ordered(schedule)
    cost = _costs(order, times)
    first_delay, second_delay = (_delays(order, source, transfer_s) for source in (order.first, order.second))
    stop = np.zeros(len(order.ops))
    _run(stop, order.rank, order.first, order.second, cost, first_delay, second_delay, np.zeros(schedule.rank_count))
    start = stop - cost
    busy = np.bincount(order.rank, cost, schedule.rank_count)
    starts, stops = np.full(schedule.rank_count, np.inf), np.zeros(schedule.rank_count)
    np.minimum.at(starts, order.rank, start)
    np.maximum.at(stops, order.rank, stop)
    ahead = np.array([op.stage if op.kind in ("F", "FB") else -1 for op in order.distinct_ops])[order.distinct]
    back = np.array([op.parts()[-1].stage if op.kind != "F" else -1 for op in order.distinct_ops])[order.distinct]
    shape = schedule.rank_count, schedule.stage_count
    firsts, lasts = np.full(shape, np.inf), np.zeros(shape)
    np.minimum.at(firsts, (order.rank[ahead >= 0], ahead[ahead >= 0]), start[ahead >= 0])
    np.maximum.at(lasts, (order.rank[back >= 0], back[back >= 0]), stop[back >= 0])
    return PipelineStep(
        schedule=schedule.name, busy_s=tuple(busy.tolist()), start_s=tuple(starts.tolist()),
        stop_s=tuple(stops.tolist()), in_flight_count=order.in_flight_count,
        stage_spans_s=tuple(
            {int(stage): (float(begin[stage]), float(end[stage])) for stage in np.flatnonzero(np.isfinite(begin))}
            for begin, end in zip(firsts, lasts, strict=True)
        ),
        spans=_spans(order, start, stop, (first_delay, second_delay)) if has_spans else (),
    )  # fmt: skip


def step_bound_s(
    schedule: PipelineSchedule, times: StageTimes | Callable[[PipelineOp], float],
    transfer_s: float | Callable[[int, int], float] = 0.0,
) -> float:  # fmt: skip
    """Return a time that no order of the same ops on the same ranks beats.

    It is the larger of the most work of a rank and the longest way of a micro-batch through all stages and back.

    >>> from nearpeak.systems.training.schedules import schedule_of
    >>> step_bound_s(schedule_of("1f1b", 4, 8), StageTimes.equal(4, 1.0, 2.0))
    24.0
    """
    order = ordered(schedule)
    cost = _costs(order, times)
    delay = _delays(order, order.first, transfer_s)
    way = [0.0] * schedule.micro_batch_count
    for op, time, wait in zip(order.ops, cost.tolist(), delay.tolist(), strict=True):
        for part in op.parts():
            if part.kind != "W":
                way[part.micro_batch] += time + (wait if op.kind != "FB" else 0.0)
    return float(max(*np.bincount(order.rank, cost), *way))


def _costs(order: OrderedOps, times: StageTimes | Callable[[PipelineOp], float]) -> Floats:
    """Return the duration of each op."""
    if isinstance(times, StageTimes):
        return np.array([times.op_s(op) for op in order.distinct_ops], np.float64)[order.distinct]
    return np.array([times(op) for op in order.ops], np.float64)


def _delays(order: OrderedOps, source: Any, transfer_s: float | Callable[[int, int], float]) -> Floats:
    """Return how long after the end of its source the input of each op arrives."""
    senders = order.rank[source]
    is_sent = (source >= 0) & (senders != order.rank)
    if not callable(transfer_s):
        return np.where(is_sent, transfer_s, 0.0)
    delays = np.zeros(len(source))
    rank_count = int(order.rank.max()) + 1
    pairs = np.where(is_sent, senders * rank_count + order.rank, -1)
    for pair in np.unique(pairs[is_sent]).tolist():
        delays[pairs == pair] = transfer_s(pair // rank_count, pair % rank_count)
    return delays


@compiled(PLAIN_OPS)
def _run(
    stop: Any, rank: Any, first: Any, second: Any, cost: Any, first_delay: Any, second_delay: Any, free: Any
) -> None:
    """Write the end of each op; `free` is when each rank can start its next one."""
    for place in range(len(stop)):
        owner = rank[place]
        start = free[owner]
        source = first[place]
        if source >= 0:
            start = max(start, stop[source] + first_delay[place])
            source = second[place]
            if source >= 0:
                start = max(start, stop[source] + second_delay[place])
        end = start + cost[place]
        stop[place] = end
        free[owner] = end


def _spans(order: OrderedOps, start: Floats, stop: Floats, delays: tuple[Floats, Floats]) -> tuple[Span, ...]:
    """Return ops as spans of the compute lane and transfers as spans of the receiver's pipeline lane."""
    ranks, starts, stops = order.rank.tolist(), start.tolist(), stop.tolist()
    spans = [
        Span(rank, "compute", begin, end, str(op)) for rank, begin, end, op in zip(ranks, starts, stops, order.ops,
                                                                                   strict=True)
    ]  # fmt: skip
    for source, delay in zip((order.first, order.second), delays, strict=True):
        for place in np.flatnonzero(delay > 0).tolist():
            sender = int(source[place])
            spans.append(Span(
                ranks[place], "pp", stops[sender], stops[sender] + float(delay[place]),
                f"{order.ops[sender]} from rank {ranks[sender]}",
            ))  # fmt: skip
    return tuple(sorted(spans))
