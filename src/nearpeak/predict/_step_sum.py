"""The expected time of a step from what it needs of its cases alone: the sum over its calls, as analyses have it."""

from collections.abc import Callable, Sequence
from math import fsum

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


def sum_of(
    step: DistinctRows, known: Sequence[StepFigures], target: Target, whole: Callable[[], StepPrediction]
) -> StepPrediction | None:
    """Return the sum over calls; none where no call is predicted.

    Args:
        known: what is known of each case.
        whole: gives the same with its causes and its energy, for when somebody asks for them.
    """
    lows_s, highs_s, bounds_s, left_s = list[float](), list[float](), list[float](), list[float]()
    times_s, left, call_count = dict[int, list[float]](), dict[str, int](), 0
    for row in step.rows:
        place, _, _, count, reads, writes = row
        time_s, low_s, high_s, steps, all_reads, all_writes, bound_s, other_s, reason = known[place]
        if (reads is not None and reads < all_reads) or (writes is not None and writes < all_writes):
            all_reads = all_reads if reads is None else min(reads, all_reads)
            all_writes = all_writes if writes is None else min(writes, all_writes)
            bound_s = _touched_s(row, Work(read_bytes=all_reads, write_bytes=all_writes), other_s, step, target)
        if reason:
            left[reason] = left.get(reason, 0) + count
            left_s.append(bound_s * count)
            continue
        if steps not in times_s:
            times_s[steps] = []
        times_s[steps].append((time_s if time_s > bound_s else bound_s) * count)
        lows_s.append((low_s if low_s > bound_s else bound_s) * count)
        highs_s.append((high_s if high_s > bound_s else bound_s) * count)
        bounds_s.append(bound_s * count)
        call_count += count
    if not call_count:
        return None
    return StepPrediction(
        time_s=fsum([time_s for some in times_s.values() for time_s in some]), low_s=fsum(lows_s),
        high_s=fsum(highs_s), bound_s=fsum(bounds_s), call_count=call_count, unpredicted=left,
        unpredicted_bound_s=fsum(left_s), grounds_s={str(steps): fsum(some) for steps, some in times_s.items()},
        gap_s=deferred(lambda: whole().gap_s), energy=deferred(lambda: whole().energy),
    )  # fmt: skip


def _touched_s(row: DistinctRow, touched: Work, other_s: float, step: DistinctRows, target: Target) -> float:
    """Return what bounds calls that touch less than their case counts."""
    if len(row.calls) > 1:  # some of them may touch all
        return float(proved_s(touched_of(row, work_of(step.cases[row.place])), target, CLASSICAL))
    return max(float(proved_s(touched, target, CLASSICAL)), other_s)
