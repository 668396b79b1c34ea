"""Neighbours of a training plan: single changes with their step and memory, and the nearest plan that fits."""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from math import log2
from typing import Any

import numpy as np

from nearpeak.core.systems.plan_answer import PlanEdit
from nearpeak.core.systems.rank_memory import RankMemory
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.errors import SpecError
from nearpeak.systems.training.memory.memory_peak import fullest_rank
from nearpeak.systems.training.plan_search.plan_memory import group_memory
from nearpeak.systems.training.plan_search.plan_space import PlanSpace, legal_plans

EDIT_COUNT = 8
"""Edits that are shown at most."""

_DEGREES = ("tp", "pp", "cp", "dp", "ep", "chunk_count", "micro_batch")
_RECOMPUTES = ("none", "selective", "full")


def plan_edits(
    plan: TrainingPlan,
    *,
    step_time: Callable[[TrainingPlan], float],
    memory: Callable[[TrainingPlan], RankMemory],
    fast_count: int,
    interval_ratio: float,
    has_fp8: bool = False,
) -> tuple[PlanEdit, ...]:
    """Return at most EDIT_COUNT single changes of a plan: those that gain most first, then those that do not fit.

    Args:
        step_time: seconds of a step; raises SpecError for plans that the model refuses.
        memory: memory of the fullest rank of a plan; raises likewise.
        fast_count: devices of the innermost tier, within which tensor parallelism stays.
        interval_ratio: half-width of a predicted step's interval over the step.
        has_fp8: whether the device multiplies FP8.
    """
    now_s = step_time(plan)
    edits = []
    for changed in _neighbours(plan, fast_count, has_fp8):
        try:
            held = memory(changed)
            step_s = step_time(changed) if held.fits else None
        except SpecError:
            continue  # the model has no such plan: degrees that do not divide it
        gain = None if step_s is None else 1 - step_s / now_s
        is_beyond = gain is not None and abs(gain) > interval_ratio
        edits.append(
            PlanEdit(
                change=describe_change(plan, changed), plan=changed, memory=held, step_s=step_s, gain_ratio=gain,
                is_beyond_interval=is_beyond,
            )
        )  # fmt: skip
    edits.sort(key=lambda edit: (edit.gain_ratio is None, -(edit.gain_ratio or 0), -(edit.memory.free_bytes or 0)))
    return tuple(edits[:EDIT_COUNT])


def describe_change(old: TrainingPlan, new: TrainingPlan) -> str:
    """Return the fields in which two plans differ.

    >>> from nearpeak.core.systems.training_plan import TrainingPlan
    >>> plan = TrainingPlan(tp=8, dp=4, micro_batch=1, global_batch=64, sequence=4096)
    >>> describe_change(plan, TrainingPlan(tp=4, dp=8, micro_batch=1, global_batch=64, sequence=4096))
    'tp 8 → 4, dp 4 → 8'
    """
    pairs = ((item.name, getattr(old, item.name), getattr(new, item.name)) for item in fields(old))
    return ", ".join(f"{name} {before} → {after}" for name, before, after in pairs if before != after)


def plan_distance(old: TrainingPlan, new: TrainingPlan) -> float:
    """Return how far two plans lie apart: octaves of degrees, and one for each other choice that differs.

    >>> from nearpeak.core.systems.training_plan import TrainingPlan
    >>> plan = TrainingPlan(tp=8, dp=4, micro_batch=1, global_batch=64, sequence=4096)
    >>> plan_distance(plan, TrainingPlan(tp=4, dp=8, micro_batch=1, global_batch=64, sequence=4096))
    2.0
    """
    octaves: float = sum(abs(log2(getattr(old, name) / getattr(new, name))) for name in _DEGREES)
    steps = abs(_RECOMPUTES.index(old.recompute) - _RECOMPUTES.index(new.recompute)) / 2
    others = sum(getattr(old, name) != getattr(new, name) for name in ("precision", "sharding", "schedule"))
    return float(octaves + steps + others)


def nearest_fitting(
    shape: TransformerShape, plan: TrainingPlan, space: PlanSpace, room_bytes: int
) -> tuple[TrainingPlan, RankMemory] | None:
    """Return the plan of a space nearest to another that fits, with its memory; none where no plan fits.

    Args:
        room_bytes: memory that the framework's allocator may take.
    """
    nearest: list[tuple[float, float, TrainingPlan]] = []
    for group in legal_plans(shape, space).groups:
        allocated = group_memory(shape, group)
        rows = np.flatnonzero(allocated <= room_bytes)
        if len(rows):
            near = group.chosen(rows)
            far = sum(np.abs(np.log2(getattr(near, name) / getattr(plan, name))) for name in _DEGREES)
            row = rows[np.lexsort((allocated[rows], far))[0]]
            found = group.plan(int(row))
            nearest.append((plan_distance(plan, found), float(allocated[row]), found))
    for _, _, found in sorted(nearest, key=lambda entry: entry[:2]):
        memory = fullest_rank(shape, found, device_bytes=room_bytes)
        if memory.fits:
            return found, memory
    return None


def _neighbours(plan: TrainingPlan, fast_count: int, has_fp8: bool) -> Iterator[TrainingPlan]:
    """Yield the legal plans one change away, on as many ranks."""
    swaps = [
        ("tp", "dp"),
        ("dp", "tp"),
        ("pp", "dp"),
        ("dp", "pp"),
        ("tp", "pp"),
        ("pp", "tp"),
        ("cp", "dp"),
        ("dp", "cp"),
    ]
    changes: list[dict[str, Any]] = [
        {less: getattr(plan, less) // 2, more: getattr(plan, more) * 2}
        for less, more in swaps
        if getattr(plan, less) % 2 == 0
    ]
    changes += [{"micro_batch": plan.micro_batch * 2}]
    changes += [{"micro_batch": plan.micro_batch // 2}] if plan.micro_batch % 2 == 0 else []
    changes += [{"recompute": name} for name in _RECOMPUTES if name != plan.recompute]
    if plan.pp > 1:
        changes += [{"schedule": "1f1b", "chunk_count": 1}] if plan.chunk_count > 1 else []
        changes += [{"schedule": "interleaved", "chunk_count": 2 * plan.chunk_count}]
        changes += [{"schedule": "zb-h1", "chunk_count": 1}] if plan.schedule in ("1f1b", "interleaved") else []
        changes += [{"schedule": "dualpipev", "chunk_count": 2}] if plan.ep > 1 and plan.schedule != "dualpipev" else []
    changes += [{"ep": plan.ep * 2}, {"ep": plan.ep // 2}] if plan.ep > 1 else []
    changes += [{"tp_overlap": True}] if plan.tp > 1 and not plan.tp_overlap else []
    changes += [{"sequence_parallel": True}] if plan.tp > 1 and not plan.sequence_parallel else []
    changes += [{"sharding": "zero1"}] if plan.sharding == "none" and plan.dp * plan.cp > 1 else []
    changes += [{"precision": "fp8-current"}] if has_fp8 and plan.precision in ("bf16", "fp16") else []
    for change in changes:
        try:
            changed = replace(plan, **change)
        except SpecError:
            continue  # degrees that do not divide the batch or the ranks
        if changed.tp <= fast_count and (changed.micro_batch_count % changed.pp == 0 or changed.chunk_count == 1):
            yield changed
