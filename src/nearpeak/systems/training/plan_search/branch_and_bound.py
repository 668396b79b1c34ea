"""Exact search for the fastest training plan: memory first, then proved bounds from cheap to tight, then the step."""

import heapq
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearpeak.core.systems.plan_answer import PlanAnswer, PlanResult
from nearpeak.core.systems.plan_words import plan_words
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.systems.training.memory.stage_layers import InFlight, chunks_in_flight
from nearpeak.systems.training.plan_search.pareto_front import pareto_front
from nearpeak.systems.training.plan_search.plan_memory import group_memory
from nearpeak.systems.training.plan_search.plan_space import PlanGroup, PlanSpace, legal_plans
from nearpeak.units import show

PlanTime = Callable[[TrainingPlan], float]
"""Seconds of a step of one plan."""
GroupBound = Callable[[PlanGroup], Any]
"""Seconds that no step of each plan of a group undercuts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """What a search compares plans by besides time."""

    device_bytes: int
    """Memory of one device."""
    context_bytes: int = 0
    """Memory of a device that the framework's allocator does not get."""
    reserved_ratio: float = 1.0
    """Reserved over allocated memory: what the allocator's fragmentation takes."""
    device_price_per_s: float = 0.0
    """Price of one device and second."""
    interval_ratio: float = 0.0
    """Half-width of a predicted step's interval over the step: plans within it are ties."""
    free_step_bytes: int = 2**30
    """Free memory is compared in steps of this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidates:
    """Plans that fit, as columns over all groups."""

    groups: Sequence[PlanGroup]
    """Groups of plans."""
    group: Any
    """Column: number of each plan's group."""
    row: Any
    """Column: row of each plan in its group."""
    floor_s: Any
    """Column: seconds that no step of the plan undercuts, lowest first."""
    free_bytes: Any
    """Column: memory that the plan leaves free."""

    def plan(self, number: int) -> TrainingPlan:
        """Return one plan as a value."""
        return self.groups[int(self.group[number])].plan(int(self.row[number]))


def search_plans(
    shape: TransformerShape,
    space: PlanSpace,
    limits: SearchLimits,
    *,
    step_time: PlanTime,
    floor: GroupBound,
    tighter: Sequence[PlanTime] = (),
    in_flight: InFlight = chunks_in_flight,
    fits: Callable[[TrainingPlan], bool] | None = None,
    with_front: bool = False,
) -> PlanAnswer:
    """Return the fastest plan that fits, found without timing most others.

    A plan is timed only when every one of its bounds lies below the best time so far, so that the answer is that of an
    exhaustive search as long as the bounds are proved.

    Args:
        floor: cheap bound of whole groups of plans.
        tighter: bounds of single plans from cheap to dear, each at least as high as the one before.
        fits: closer look at the memory of a plan before it is timed, with what the allocator loses.
        with_front: whether plans that may be on the Pareto front are timed as well.

    Raises:
        SpecError: no plan is legal or fits; the message counts them by reason.
    """
    legal = legal_plans(shape, space)
    refused = dict(legal.refused)
    candidates = _candidates(shape, legal.groups, limits, floor, in_flight)
    refused["memory"] = legal.count - len(candidates.row)
    if not len(candidates.row):
        raise SpecError(_no_plan_fits(shape, legal.groups, space, limits, in_flight, refused))
    bounds = (*tighter, _guarded(step_time, fits) if fits else step_time)
    known = candidates.floor_s.copy()
    levels = candidates.free_bytes // limits.free_step_bytes if with_front else np.zeros(len(candidates.row))
    executed, refused["step"] = _executed(candidates, bounds, known, levels)
    if not executed:
        bounds[-1](candidates.plan(0))  # says why it refuses
        raise SpecError(f"{shape.name}: no plan that fits has a step")
    known[list(executed)] = list(executed.values())
    results = {number: _result(candidates, number, time_s, space, limits) for number, time_s in executed.items()}
    best = min(results.values(), key=lambda result: (result.step_s, -result.free_bytes))
    edge_s = best.step_s * (1 + limits.interval_ratio)
    ties = tuple(sorted((r for r in results.values() if r.step_s <= edge_s), key=lambda result: result.step_s))
    return PlanAnswer(
        best=best, ties=ties, open_count=int((known <= edge_s).sum()) - len(ties), front=pareto_front(results.values()),
        refused={name: count for name, count in refused.items() if count}, legal_count=legal.count,
        fitting_count=len(candidates.row), executed_count=len(executed),
    )  # fmt: skip


def _no_plan_fits(
    shape: TransformerShape, groups: Sequence[PlanGroup], space: PlanSpace, limits: SearchLimits,
    in_flight: InFlight, refused: Mapping[str, int],
) -> str:  # fmt: skip
    """Return the error of a search without a plan: counts by reason, and what the least plan needs of a device."""
    counts = ", ".join(f"{reason} {count}" for reason, count in refused.items() if count)
    error = f"{shape.name}: no plan on {space.device_count} devices fits; refused: {counts}"
    needs = [limits.reserved_ratio * group_memory(shape, group, in_flight) for group in groups]
    if not needs:
        return error
    least = min(range(len(needs)), key=lambda number: float(needs[number].min()))
    words = plan_words(groups[least].plan(int(needs[least].argmin())))
    need_bytes = float(needs[least].min()) + limits.context_bytes
    return (
        f"{error}; the least, {words}, needs {show(need_bytes, 'B')} a device, which has "
        f"{show(limits.device_bytes, 'B')}: more devices, or a shorter --sequence or --global-batch"
    )


def _guarded(step_time: PlanTime, fits: Callable[[TrainingPlan], bool]) -> PlanTime:
    """Return a step time that refuses plans that do not fit."""

    def guarded(plan: TrainingPlan) -> float:
        if not fits(plan):
            raise SpecError("fits by its tensors, but not with what the allocator loses")
        return step_time(plan)

    return guarded


def _candidates(
    shape: TransformerShape, groups: Sequence[PlanGroup], limits: SearchLimits, floor: GroupBound, in_flight: InFlight
) -> _Candidates:
    """Return the plans that fit with their cheap bounds, lowest first."""
    places, rows, floors, free = [], [], [], []
    room = limits.device_bytes - limits.context_bytes
    for number, group in enumerate(groups):
        left = room - limits.reserved_ratio * group_memory(shape, group, in_flight)
        fitting = np.flatnonzero(left >= 0)
        if not len(fitting):
            continue
        rows.append(fitting)
        places.append(np.full(len(fitting), number))
        free.append(left[fitting])
        floors.append(np.broadcast_to(floor(group.chosen(fitting)), len(fitting)))
    joined = [np.concatenate(columns) if columns else np.array([]) for columns in (places, rows, floors, free)]
    order = np.lexsort((-joined[3], joined[2]))
    group_column, row, floor_s, free_bytes = (column[order] for column in joined)
    return _Candidates(groups=groups, group=group_column, row=row, floor_s=floor_s, free_bytes=free_bytes)


def _executed(
    candidates: _Candidates, bounds: Sequence[PlanTime], known: Any, levels: Any
) -> tuple[dict[int, float], int]:
    """Return the times of the plans that had to be executed, best first over all bounds, and how many were refused.

    A plan is left out once its bound is no better than the time of an executed plan of its level or a higher one.

    Args:
        known: highest bound known of each plan, which this raises.
        levels: free memory of each plan in steps; equal ones ask for the fastest alone.
    """
    executed: dict[int, float] = {}
    refused, best = 0, _BestTimes()
    open_plans: list[tuple[float, int, int]] = []
    following, count, highest = 0, len(candidates.row), levels.max()
    while following < count or open_plans:
        if following < count and (not open_plans or candidates.floor_s[following] <= open_plans[0][0]):
            heapq.heappush(open_plans, (float(candidates.floor_s[following]), 0, following))  # deeper levels first
            following += 1
            continue
        bound_s, depth, number = heapq.heappop(open_plans)
        if bound_s >= best.time_s(highest):
            break
        if bound_s >= best.time_s(levels[number]):
            continue
        try:
            time_s = bounds[-depth](candidates.plan(number))
        except (SpecError, NotModelledError):
            refused, known[number] = refused + 1, np.inf
            continue
        if -depth == len(bounds) - 1:
            executed[number] = time_s
            best.add(levels[number], time_s)
            continue
        known[number] = max(time_s, bound_s)
        heapq.heappush(open_plans, (known[number], depth - 1, number))
    return executed, refused


class _BestTimes:
    """The best time of each level of free memory or a higher one."""

    def __init__(self) -> None:
        self._levels: list[float] = []  # ascending, with ascending times: more memory left is slower
        self._times_s: list[float] = []

    def time_s(self, level: float) -> float:
        """Return the best time at a level or above."""
        place = bisect_left(self._levels, level)
        return self._times_s[place] if place < len(self._levels) else np.inf

    def add(self, level: float, time_s: float) -> None:
        """Add an executed plan, and drop what it dominates."""
        if time_s >= self.time_s(level):
            return
        place = bisect_left(self._levels, level)
        if place < len(self._levels) and self._levels[place] == level:
            del self._levels[place], self._times_s[place]
        while place and self._times_s[place - 1] >= time_s:
            place -= 1
            del self._levels[place], self._times_s[place]
        self._levels.insert(place, level)
        self._times_s.insert(place, time_s)


def _result(candidates: _Candidates, number: int, time_s: float, space: PlanSpace, limits: SearchLimits) -> PlanResult:
    """Return the figures of one executed plan."""
    tokens = space.global_batch * space.sequence
    free = float(candidates.free_bytes[number])
    used = limits.device_bytes - limits.context_bytes - free
    return PlanResult(
        plan=candidates.plan(number), step_s=time_s, tokens_per_s=tokens / time_s,
        token_price=space.device_count * limits.device_price_per_s * time_s / tokens,
        allocated_bytes=round(used / limits.reserved_ratio), free_bytes=round(free),
    )  # fmt: skip
