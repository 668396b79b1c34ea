"""Comparison of two commits: a verdict for each series that was measured at both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

from nearpeak.core.history.stored_run import Series, stack_difference
from nearpeak.core.history.track import TrackPoint
from nearpeak.core.runs.paired_rounds import Judgement
from nearpeak.errors import SpecError
from nearpeak.history.commit_points import points_of
from nearpeak.judgement.newest_value_test import judged_against
from nearpeak.store import History, Store

TOLERANCE_RATIO = 0.02
"""Change up to which two values count as the same."""
HISTORY_VALUES = 60
"""Newest values before the candidate that the noise is taken from."""
_TOGETHER = 200
"""Histories that are held at once."""
Difference = Callable[[int, int], tuple[tuple[str, str, str], ...]]
NO_BASELINE, TOO_FEW, NOT_POSITIVE = "no baseline", "too few values to tell", "no ratio of these values"
"""Why there is no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A series at two commits."""

    series: Series
    """The series."""
    before: TrackPoint | None
    """At the baseline; none where it was not measured there."""
    after: TrackPoint | None
    """At the candidate."""
    judgement: Judgement | None
    """Verdict; none where there is none."""
    reason: str
    """What the verdict rests on, or why there is none."""
    stack: tuple[tuple[str, str, str], ...] = ()
    """Components that differ: name, before, after."""


def compared(store: Store, series: Sequence[Series], baseline: str, candidate: str) -> tuple[Compared, ...]:
    """Return the series that were measured at `candidate`, each with the verdict against `baseline`.

    Args:
        baseline: whole name of a commit.
        candidate: likewise.
    """
    parts = [series[start : start + _TOGETHER] for start in range(0, len(series), _TOGETHER)]
    histories = (history for part in parts for history in store.browsing.histories(part))
    difference = cache(lambda old, new: stack_difference(store.stack(old), store.stack(new)))
    comparisons = (_compared(history, baseline, candidate, difference) for history in histories)
    return tuple(history for history in comparisons if history is not None)


def _compared(history: History, baseline: str, candidate: str, difference: Difference) -> Compared | None:
    series, points = history.series, points_of(history)
    place = next((place for place, point in enumerate(points) if point.sha == candidate), None)
    if place is None:
        return None
    new, former = points[place], next((at for at, point in enumerate(points) if point.sha == baseline), None)
    if former is None:
        return Compared(series=series, before=None, after=new, judgement=None, reason=NO_BASELINE)
    old = points[former]
    stack = () if old.stack_id == new.stack_id else difference(old.stack_id, new.stack_id)
    judgement, reason = _judged(series, old, new, points[:place], max(place - former, 1))
    return Compared(series=series, before=old, after=new, judgement=judgement, reason=reason, stack=stack)


def _judged(
    series: Series, old: TrackPoint, new: TrackPoint, before: Sequence[TrackPoint], lag: int
) -> tuple[Judgement | None, str]:
    values = [point.value for point in before[-HISTORY_VALUES:]]
    sides: list[Sequence[float]] = [new.values, old.values, values]
    if any(value <= 0 for side in sides for value in side):
        return None, NOT_POSITIVE
    if series.metric.direction == "higher":  # less is worse: the inverse is a time
        sides = [[1 / value for value in side] for side in sides]
    try:
        judgement = judged_against(sides[0], [median(sides[1])], sides[2], TOLERANCE_RATIO, lag=lag)
        judgement = judgement or judged_against(sides[0], sides[1], (), TOLERANCE_RATIO)
    except SpecError:
        return None, NOT_POSITIVE
    if judgement is None:
        return None, TOO_FEW
    return judgement, f"noise of {len(values)} earlier values; smallest change seen {judgement.detectable_ratio:.1%}"
