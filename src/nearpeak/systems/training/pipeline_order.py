"""A pipeline schedule in an order that respects its dependencies, with those dependencies as indices."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearpeak.core.systems.pipeline_schedule import PipelineOp, PipelineSchedule
from nearpeak.errors import SpecError

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedOps:
    """The ops of a schedule, each after those that it waits for."""

    ops: tuple[PipelineOp, ...]
    """Ops of all ranks."""
    rank: Indices
    """Rank of each op."""
    first: Indices
    """Op on which each waits beside those of its own rank, -1 for none."""
    second: Indices
    """Second such op, of overlapped pairs; -1 for none."""
    distinct_ops: tuple[PipelineOp, ...]
    """Ops that differ in kind or stages, of micro-batch 0."""
    distinct: Indices
    """Place of each op among the distinct ones."""
    in_flight_count: tuple[int, ...]
    """Most passes through a stage whose activations a rank holds at once."""


class _Passes(NamedTuple):
    """Number of the op that runs each pass, by stage times micro-batches plus micro-batch; -1 for none."""

    forward: list[int]
    backward: list[int]
    weight: list[int]
    split: list[bool]


@lru_cache(maxsize=64)
def ordered(schedule: PipelineSchedule) -> OrderedOps:
    """Return the ops of a schedule in an order in which they can run.

    Raises:
        SpecError: a pass is missing, stands twice or before one that it needs on its rank, or ranks wait for each
            other (deadlock).
    """
    batch_count, stage_count = schedule.micro_batch_count, schedule.stage_count
    flat = [op for ops in schedule.ranks for op in ops]
    starts = [0, *accumulate(map(len, schedule.ranks))]
    first, second = _needs(flat, _passes(schedule, stage_count, batch_count), stage_count, batch_count)
    places, order = [-1] * len(flat), list[int]()
    waiting: dict[int, list[int]] = {}
    reached, ready = starts[:-1], list(range(schedule.rank_count))
    while ready:
        rank = ready.pop()
        number, end = reached[rank], starts[rank + 1]
        while number < end:
            late = next((need for need in (first[number], second[number]) if need >= 0 and places[need] < 0), -1)
            if late >= 0:
                waiting.setdefault(late, []).append(rank)
                break
            places[number] = len(order)
            order.append(number)
            ready += waiting.pop(number, ())
            number += 1
        reached[rank] = number
    if len(order) < len(flat):
        raise SpecError(_deadlock(schedule, starts, reached, (first, second), places))
    codes: dict[tuple[str, int, int], int] = {}
    distinct = [codes.setdefault((kind, stage, other), len(codes)) for kind, stage, _, other, _ in flat]
    turn = np.array(order, np.int64)
    shifted = np.array([*places, -1], np.int64)  # of no op, -1, the place is -1
    return OrderedOps(
        ops=tuple(map(flat.__getitem__, order)), rank=np.searchsorted(np.array(starts), turn, "right") - 1,
        first=shifted[np.array(first, np.int64)[turn]], second=shifted[np.array(second, np.int64)[turn]],
        distinct_ops=tuple(
            PipelineOp(kind, stage, 0, other, 0 if kind == "FB" else -1) for kind, stage, other in codes
        ),
        distinct=np.array(distinct, np.int64)[turn],
        in_flight_count=tuple(int(max(held(ops, lambda _: 1), default=0)) for ops in schedule.ranks),
    )  # fmt: skip


def held(ops: tuple[PipelineOp, ...], weight: Callable[[int], float]) -> Iterator[float]:
    """Yield what a rank holds while each of its ops runs: the weights of the stages whose backward pass is to come.

    Activations of a split backward pass are held until the gradients of weights are done.

    Args:
        weight: gives the weight of a stage: 1 to count passes, its activation bytes to add them up.

    >>> from nearpeak.systems.training.schedules.one_f_one_b import one_f_one_b
    >>> max(held(one_f_one_b(4, 8)[0], lambda stage: 10))
    40
    """
    total: float = 0
    for kind, stage, _, backward_stage, _ in ops:
        if kind in ("F", "FB"):
            total += weight(stage)
        yield total
        if kind in ("B", "W"):
            total -= weight(stage)
        elif kind == "FB":
            total -= weight(backward_stage)


def rank_stages(schedule: PipelineSchedule) -> tuple[Mapping[int, int], ...]:
    """Return the stages that each rank runs, with the micro-batches that it runs through each.

    >>> from nearpeak.systems.training.schedules import schedule_of
    >>> rank_stages(schedule_of("dualpipev", 2, 4, 2)), rank_stages(schedule_of("dualpipe", 2, 4))
    (({0: 4, 3: 4}, {1: 4, 2: 4}), ({0: 2, 1: 2}, {0: 2, 1: 2}))
    """
    ranks = []
    for ops in schedule.ranks:
        counts = Counter(stage for kind, stage, *_ in ops if kind in ("F", "FB"))
        ranks.append(dict(sorted(counts.items())))
    return tuple(ranks)


def _passes(schedule: PipelineSchedule, stage_count: int, batch_count: int) -> _Passes:
    """Return which op runs each pass, after checking that each stage runs every micro-batch once, on one rank."""
    slot_count = stage_count * batch_count
    forward, backward, weight = ([-1] * slot_count for _ in range(3))
    split, number = [False] * slot_count, 0
    for rank, ops in enumerate(schedule.ranks):
        start = number
        for op in ops:
            kind, stage, batch, backward_stage, backward_batch = op
            slot = stage * batch_count + batch
            if kind in ("F", "FB"):
                is_right = forward[slot] < 0
                if kind == "FB":
                    other = backward_stage * batch_count + backward_batch
                    is_right = is_right and backward[other] < 0 and forward[other] >= start
                    backward[other] = number
                forward[slot] = number
            elif kind == "W":
                is_right = weight[slot] < 0 and backward[slot] >= start and split[slot]
                weight[slot] = number
            else:
                is_right = backward[slot] < 0 and forward[slot] >= start
                backward[slot], split[slot] = number, kind == "I"
            if not is_right:
                raise SpecError(
                    f"schedule {schedule.name}: rank {rank}, op {number - start + 1}: {op} stands twice, or before the "
                    "pass of the same rank that it needs (F before B and I, I before W)"
                )
            number += 1
    for slot in range(slot_count):
        if forward[slot] < 0 or backward[slot] < 0 or (split[slot] and weight[slot] < 0):
            stage, batch = divmod(slot, batch_count)
            raise SpecError(
                f"schedule {schedule.name}: stage {stage} lacks a pass of micro-batch {batch}; it needs F and B, or F, "
                "I and W"
            )
    return _Passes(forward=forward, backward=backward, weight=weight, split=split)


def _needs(flat: list[PipelineOp], passes: _Passes, stage_count: int, batch_count: int) -> tuple[list[int], list[int]]:
    """Return for each op the one or two whose results it receives from other stages; -1 for none."""
    first, second = [-1] * len(flat), [-1] * len(flat)
    last = stage_count - 1
    for number, (kind, stage, batch, backward_stage, backward_batch) in enumerate(flat):
        if kind in ("F", "FB"):
            if stage > 0:
                first[number] = passes.forward[(stage - 1) * batch_count + batch]
            if kind == "FB" and backward_stage < last:
                above = passes.backward[(backward_stage + 1) * batch_count + backward_batch]
                (second if first[number] >= 0 else first)[number] = above
        elif kind != "W" and stage < last:
            first[number] = passes.backward[(stage + 1) * batch_count + batch]
    return first, second


def _deadlock(
    schedule: PipelineSchedule, starts: list[int], reached: list[int], needs: tuple[list[int], list[int]],
    places: list[int],
) -> str:  # fmt: skip
    """Return the line that names one rank that waits and what it waits for."""
    flat = [op for ops in schedule.ranks for op in ops]
    rank = next(number for number in range(schedule.rank_count) if reached[number] < starts[number + 1])
    late = next(need[reached[rank]] for need in needs if need[reached[rank]] >= 0 and places[need[reached[rank]]] < 0)
    other = next(number for number in range(schedule.rank_count) if late < starts[number + 1])
    return (
        f"schedule {schedule.name}: deadlock: rank {rank} waits at {flat[reached[rank]]} for {flat[late]}, and rank "
        f"{other} waits at {flat[reached[other]]}, which it runs before; change the order of one of them"
    )
