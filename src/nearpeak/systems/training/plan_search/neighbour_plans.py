"""Neighbours of a training plan: single changes with their step and memory, and the nearest plan that fits."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from math import log2
from typing import Any

import numpy as np

from nearpeak.core.systems.plan_answer import PlanEdit
from nearpeak.core.systems.rank_memory import RankMemory
from nearpeak.core.systems.training_answer import StageTime
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.systems.training.memory.memory_peak import fullest_rank
from nearpeak.systems.training.plan_search.plan_memory import group_memory
from nearpeak.systems.training.plan_search.plan_space import PlanSpace, legal_plans
from nearpeak.systems.training.stage_split import StageLayer, split_stages

EDIT_COUNT = 8
"""Edits that are shown at most."""

_DEGREES = ("tp", "pp", "cp", "dp", "ep", "chunk_count", "micro_batch")
_RECOMPUTES = ("none", "selective", "full")


def plan_edits(
    plan: TrainingPlan,
    neighbours: Iterable[TrainingPlan],
    *,
    step_time: Callable[[TrainingPlan], float],
    memory: Callable[[TrainingPlan], RankMemory],
    interval_ratio: float,
) -> tuple[PlanEdit, ...]:
    """Return at most EDIT_COUNT single changes of a plan: those that gain most first, then those that do not fit.

    Args:
        neighbours: plans that differ in one choice.
        step_time: seconds of a step; raises SpecError for plans that the model refuses.
        memory: memory of the fullest rank of a plan; raises likewise.
        interval_ratio: half-width of a predicted step's interval over the step.
    """
    now_s = step_time(plan)
    edits = []
    for changed in neighbours:
        try:
            held = memory(changed)
            step_s = step_time(changed) if held.fits else None
        except (SpecError, NotModelledError):
            continue  # the model has no such plan: degrees that do not divide it, layers that cannot be split
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
    left, right = (_shown_fields(plan) for plan in (old, new))
    return ", ".join(f"{name} {left[name]} → {right[name]}" for name in left if left[name] != right[name])


def _shown_fields(plan: TrainingPlan) -> dict[str, object]:
    """Return the fields of a plan by name, parts of images, branches and stages by the words that state them."""
    shown: dict[str, object] = {item.name: getattr(plan, item.name) for item in fields(plan)}
    rows, columns, has_branches, counts = (
        shown.pop(name) for name in ("tile_row_count", "tile_column_count", "has_branches", "stage_layer_count")
    )
    is_tiled = (rows, columns) != (1, 1)
    shown |= {"cp": 1 if is_tiled else plan.cp, "tp": 1 if has_branches else plan.tp}
    return shown | {
        "spatial": f"{rows}x{columns}" if is_tiled else "none", "branches": plan.tp if has_branches else 1,
        "stages": ":".join(map(str, plan.stage_layer_count)) if counts else "equal",
    }  # fmt: skip


def uneven_split(plan: TrainingPlan, stages: Sequence[StageTime], layer_count: int) -> TrainingPlan | None:
    """Return the plan with the stages that make its longest stage shortest; none where it has them already.

    A layer takes what it takes in the stages between the ends; what the first and last stage take beyond their layers
    is the embedding's and the head's.

    Args:
        stages: times of the plan's stages.

    >>> plan = TrainingPlan(pp=2, micro_batch=1, global_batch=8, sequence=8)
    >>> times = [StageTime(stage, 4.0 + 3 * stage, 8.0 + 6 * stage, 0, 0, 0) for stage in (0, 1)]
    >>> uneven_split(plan, times, 8).stage_layer_count
    (5, 3)
    """
    if plan.pp == 1 or plan.chunk_count > 1 or len(stages) != plan.pp:
        return None
    share, rest = divmod(layer_count, plan.pp)
    equal = tuple(share + (stage < rest) for stage in range(plan.pp))
    counts = plan.stage_layer_count or equal
    means = [(time.forward_s / count, time.backward_s / count) for time, count in zip(stages, counts, strict=True)]
    inner = {0: means[min(1, plan.pp - 1)], plan.pp - 1: means[max(plan.pp - 2, 0)]}
    layers: list[StageLayer] = []
    for stage, (times, count) in enumerate(zip(means, counts, strict=True)):
        each = min(times, inner.get(stage, times), key=sum)
        ends = [StageLayer(forward_s=each[0], backward_s=each[1])] * count
        more = [count * (mean - least) for mean, least in zip(times, each, strict=True)]
        if stage in inner:
            ends[-(stage > 0)] = StageLayer(forward_s=each[0] + more[0], backward_s=each[1] + more[1])
        layers += ends
    split = split_stages(layers, plan.pp).layer_count
    return None if split == counts else replace(plan, stage_layer_count=() if split == equal else split)


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
            candidate = group.plan(int(row))
            nearest.append((plan_distance(plan, candidate), float(allocated[row]), candidate))
    for _, _, candidate in sorted(nearest, key=lambda entry: entry[:2]):
        memory = fullest_rank(shape, candidate, device_bytes=room_bytes)
        if memory.fits:
            return candidate, memory
    return None


def neighbours_of(plan: TrainingPlan, fast_count: int, *, has_fp8: bool = False) -> Iterator[TrainingPlan]:
    """Yield the legal plans one change away, on as many ranks; other stages hold equal shares of the layers.

    Args:
        fast_count: devices of the innermost tier, within which tensor parallelism stays.
        has_fp8: whether the device multiplies FP8.
    """
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
        equal: dict[str, Any] = {} if {"pp", "chunk_count"}.isdisjoint(change) else {"stage_layer_count": ()}
        try:
            changed = replace(plan, **change, **equal)
        except SpecError:
            continue  # degrees that do not divide the batch or the ranks
        if changed.tp <= fast_count and (changed.micro_batch_count % changed.pp == 0 or changed.chunk_count == 1):
            yield changed
