"""The expected time of a step from what it needs of its cases alone: the sum over its calls, as analyses have it."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

from nearpeak.core.distinct import DistinctRow, DistinctRows
from nearpeak.core.later import deferred
from nearpeak.core.step_prediction import StepPrediction
from nearpeak.core.target import Target
from nearpeak.core.work import Work
from nearpeak.ops import label_of, work_of
from nearpeak.predict._grounds import CLASSICAL
from nearpeak.predict._step_figures import StepFigures
from nearpeak.theory.rows import touched_of
from nearpeak.theory.terms import proved_s


class _Row(NamedTuple):
    """Calls of one row; rows in ascending order are those of analyses but for labels and modules of equal ones."""

    less_flop: int
    """Arithmetic of products of all calls, negative."""
    less_bytes: int
    """Bytes of all calls, negative."""
    place: int
    """Position of the row."""
    read_bytes: int
    """Fewest bytes that a call reads."""
    write_bytes: int
    """Fewest bytes that a call writes."""


def sum_of(
    step: DistinctRows, known: Sequence[StepFigures], target: Target, whole: Callable[[], StepPrediction]
) -> StepPrediction | None:
    """Return the sum over calls; none where no call is predicted.

    Args:
        known: what is known of each case.
        whole: gives the same with its causes and its energy, for when somebody asks for them.
    """
    every = [
        (known[step.rows[row.place].place], _bound_s(row, step, known, target), step.rows[row.place].call_count)
        for row in _ordered(step, known)
    ]
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


def _ordered(step: DistinctRows, known: Sequence[StepFigures]) -> list[_Row]:
    """Return rows in the order of analyses, in which times are added up; labels are made where nothing else decides."""
    found, labels = list[_Row](), dict[int, str]()

    def in_words(row: _Row) -> tuple[str, str]:
        place, (call, *_), _ = step.rows[row.place]
        if place not in labels:
            labels[place] = label_of(step.cases[place])
        return labels[place], call.module

    for _, equal in groupby(sorted([_row(*one, known) for one in enumerate(step.rows)]), key=lambda row: row[:2]):
        tied = list(equal)
        found += tied if len(tied) == 1 else sorted(tied, key=in_words)
    return found


def _row(place: int, row: DistinctRow, known: Sequence[StepFigures]) -> _Row:
    figures = known[row.place]
    reads, writes = figures.read_bytes, figures.write_bytes
    for call in row.calls:
        if call.read_bytes is not None and call.read_bytes < reads:
            reads = call.read_bytes
        if call.write_bytes is not None and call.write_bytes < writes:
            writes = call.write_bytes
    return _Row(-figures.matrix_flop * row.call_count, -(reads + writes) * row.call_count, place, reads, writes)


def _bound_s(row: _Row, step: DistinctRows, known: Sequence[StepFigures], target: Target) -> float:
    """Return what bounds one call of a row."""
    place, calls, _ = step.rows[row.place]
    figures = known[place]
    if row.read_bytes == figures.read_bytes and row.write_bytes == figures.write_bytes:
        return figures.bound_s
    if len(calls) > 1:
        return float(proved_s(touched_of(step.rows[row.place], work_of(step.cases[place])), target, CLASSICAL))
    touched = Work(read_bytes=row.read_bytes, write_bytes=row.write_bytes)
    return max(float(proved_s(touched, target, CLASSICAL)), figures.other_s)
