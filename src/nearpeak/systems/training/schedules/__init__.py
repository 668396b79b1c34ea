"""Registry of pipeline schedules, one file each: the ops of every rank from the degrees of the pipeline."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from nearpeak.base.registry import Registry
from nearpeak.core.systems.pipeline_schedule import PipelineOp, PipelineSchedule
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.errors import SpecError

__all__ = [
    "SCHEDULES", "Ops", "Schedule", "is_schedule_file", "plan_schedule", "schedule_name", "schedule_of",
    "splits_backward",
]  # fmt: skip
Ops = tuple[tuple[PipelineOp, ...], ...]
"""Ops of each rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One kind of pipeline schedule."""

    title: str
    """Its name in the literature."""
    ops: Callable[[int, int, int], Ops]
    """Gives the ops of each rank for ranks, micro-batches and stages per rank."""
    chunk_count: int | None = 1
    """Stages of one rank; none where the caller chooses."""
    splits_backward: bool = False
    """Whether gradients of inputs and of weights are ops of their own."""
    weight_copy_count: int = 1
    """Ranks that hold the weights of one stage."""
    source: str
    """Document that describes it."""


SCHEDULES: Registry[Schedule] = Registry.of_modules(
    "SCHEDULE", kind="schedule", package=__name__, file=__file__, group="nearpeak.schedules",
    synonyms=lambda name: ("one_f_one_b",) if name == "1f1b" else (),
)  # fmt: skip
"""All pipeline schedules by name."""


def schedule_name(name: str) -> str:
    """Return the registered name of a schedule from the way in which people write it.

    >>> schedule_name("1F1B"), schedule_name("ZB-H1"), schedule_name("dualpipe")
    ('one_f_one_b', 'zb_h1', 'dualpipe')
    """
    plain = name.strip().lower().replace("-", "_")
    return "one_f_one_b" if plain == "1f1b" else plain


def is_schedule_file(name: str) -> bool:
    """Return whether a schedule is stated by the path of a file of its ops, `schedule.csv`.

    >>> is_schedule_file("mine.csv"), is_schedule_file("zb-h1")
    (True, False)
    """
    return name.endswith(".csv")


def splits_backward(name: str) -> bool:
    """Return whether a schedule runs gradients of inputs and of weights as ops of their own."""
    if is_schedule_file(name):
        return any(op.kind in ("I", "W") for ops in _file_schedule(name).ranks for op in ops)
    return SCHEDULES[schedule_name(name)].splits_backward


@lru_cache(maxsize=16)
def _file_schedule(name: str) -> PipelineSchedule:
    from nearpeak.systems.training.schedule_file import read_schedule

    return read_schedule(Path(name))


def _checked_file(name: str, rank_count: int, micro_batch_count: int, chunk_count: int) -> PipelineSchedule:
    """Return the schedule of a file; its ranks, micro-batches and stages must be those of the plan."""
    schedule = _file_schedule(name)
    has = (schedule.rank_count, schedule.micro_batch_count, schedule.stage_count)
    if has != (rank_count, micro_batch_count, rank_count * chunk_count):
        raise SpecError(
            f"{name}: has {has[0]} ranks, {has[1]} micro-batches and {has[2]} stages; the plan has {rank_count}, "
            f"{micro_batch_count} and {rank_count * chunk_count} (pp, micro-batches of a replica, pp × chunks)"
        )
    return schedule


@lru_cache(maxsize=256)
def schedule_of(name: str, rank_count: int, micro_batch_count: int, chunk_count: int = 1) -> PipelineSchedule:
    """Return the ops of a schedule.

    Args:
        name: registered name, the literature's spelling (`1f1b`, `zb-h1`), or the path of a file of ops (`mine.csv`).
        chunk_count: model chunks of a rank; schedules that fix the number take 1 or their own.

    Raises:
        SpecError: unknown schedule, or degrees for which it has no order.

    >>> [str(op) for op in schedule_of("1f1b", 2, 2).ranks[0]]
    ['0F0', '0F1', '0B0', '0B1']
    """
    if is_schedule_file(name):
        return _checked_file(name, rank_count, micro_batch_count, chunk_count)
    kind = SCHEDULES[schedule_name(name)]
    for label, count in (("pp", rank_count), ("micro-batches", micro_batch_count), ("chunks", chunk_count)):
        if count < 1:
            raise SpecError(f"schedule {name}: {label}={count} must be at least 1")
    fixed = kind.chunk_count
    if fixed is not None and chunk_count not in (1, fixed):
        raise SpecError(
            f"schedule {name}: places {fixed} stage(s) on a rank, got {chunk_count}; 'interleaved' takes any number"
        )
    ops = kind.ops(rank_count, micro_batch_count, chunk_count if fixed is None else fixed)
    return PipelineSchedule(name=schedule_name(name), ranks=ops)


def plan_schedule(plan: TrainingPlan) -> PipelineSchedule:
    """Return the schedule of a plan; on one stage, micro-batches one after the other.

    Raises:
        SpecError: unknown schedule, or degrees for which it has no order.
    """
    return schedule_of(plan.schedule if plan.pp > 1 else "1f1b", plan.pp, plan.micro_batch_count, plan.chunk_count)
