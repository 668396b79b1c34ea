"""The expected time of a step from what it needs of its cases alone: the sum over its calls, as analyses have it."""

from collections.abc import Callable, Iterator, Sequence

from nearpeak.core.case import Case
from nearpeak.core.distinct import DistinctRow, DistinctRows
from nearpeak.core.later import deferred
from nearpeak.core.step_prediction import StepPrediction
from nearpeak.core.target import Target
from nearpeak.core.work import Work
from nearpeak.ops import work_of
from nearpeak.predict._grounds import CLASSICAL
from nearpeak.predict._step_figures import StepFigures
from nearpeak.theory.rows import touched_of
from nearpeak.theory.terms import proved_s

_Row = tuple[int, int, int, StepFigures, float, int]
"""FLOP of products and bytes of the calls of a row, both negative, its position, what is known of its case, what bounds
a call, and calls: in ascending order, in which times are added up, rows are those of analyses."""


def sum_of(
    step: DistinctRows, known: Sequence[StepFigures], target: Target, whole: Callable[[], StepPrediction]
) -> StepPrediction | None:
    """Return the sum over calls; none where no call is predicted.

    Args:
        known: what is known of each case.
        whole: gives the same with its causes and its energy, for when somebody asks for them.
    """
    every = [one[3:] for one in sorted(_rows(step, known, target))]
    found = [one for one in every if not one[0].reason]
    if not found:
        return None
    times_s = [(figures.time_s if figures.time_s > s else s) * count for figures, s, count in found]
    grounds: dict[int, float] = {}
    for (figures, _, _), time_s in zip(found, times_s, strict=True):
        grounds[figures.distance_count] = grounds.get(figures.distance_count, 0.0) + time_s
    left: dict[str, int] = {}
    missing = [one for one in every if one[0].reason]
    for figures, _, count in missing:
        left[figures.reason] = left.get(figures.reason, 0) + count
    return StepPrediction(
        time_s=sum(times_s),
        low_s=sum([(figures.low_s if figures.low_s > s else s) * count for figures, s, count in found]),
        high_s=sum([(figures.high_s if figures.high_s > s else s) * count for figures, s, count in found]),
        bound_s=sum([s * count for _, s, count in found]), call_count=sum([count for _, _, count in found]),
        unpredicted=left, unpredicted_bound_s=sum([s * count for _, s, count in missing]),
        grounds_s={str(steps): time_s for steps, time_s in grounds.items()},
        gap_s=deferred(lambda: whole().gap_s), energy=deferred(lambda: whole().energy),
    )  # fmt: skip


def _rows(step: DistinctRows, known: Sequence[StepFigures], target: Target) -> Iterator[_Row]:
    """Yield the rows of a step."""
    for position, row in enumerate(step.rows):
        place, _, _, count, reads, writes = row
        figures = known[place]
        bound_s, (_, _, _, _, flop, all_reads, all_writes, *_) = figures.bound_s, figures
        if (reads is not None and reads < all_reads) or (writes is not None and writes < all_writes):
            all_reads = all_reads if reads is None else min(reads, all_reads)
            all_writes = all_writes if writes is None else min(writes, all_writes)
            touched = Work(read_bytes=all_reads, write_bytes=all_writes)
            bound_s = _touched_s(row, touched, figures, step.cases[place], target)
        yield -flop * count, -(all_reads + all_writes) * count, position, figures, bound_s, count


def _touched_s(row: DistinctRow, touched: Work, figures: StepFigures, case: Case, target: Target) -> float:
    """Return what bounds calls that touch less than their case counts."""
    if len(row.calls) > 1:  # some of them may touch all
        return float(proved_s(touched_of(row, work_of(case)), target, CLASSICAL))
    return max(float(proved_s(touched, target, CLASSICAL)), figures.other_s)
