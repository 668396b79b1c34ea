"""Registry of pipeline schedules, one file each: the ops of every rank from the degrees of the pipeline."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from nearpeak.base.registry import Registry
from nearpeak.core.systems.pipeline_schedule import PipelineOp, PipelineSchedule
from nearpeak.errors import SpecError

__all__ = ["SCHEDULES", "Ops", "Schedule", "schedule_name", "schedule_of"]
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


@lru_cache(maxsize=256)
def schedule_of(name: str, rank_count: int, micro_batch_count: int, chunk_count: int = 1) -> PipelineSchedule:
    """Return the ops of a schedule.

    Args:
        name: registered name, or the literature's spelling (`1f1b`, `zb-h1`).
        chunk_count: model chunks of a rank; schedules that fix the number take 1 or their own.

    Raises:
        SpecError: unknown schedule, or degrees for which it has no order.

    >>> [str(op) for op in schedule_of("1f1b", 2, 2).ranks[0]]
    ['0F0', '0F1', '0B0', '0B1']
    """
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
