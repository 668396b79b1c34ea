"""Follows change points from commit to commit: matches, marks, buys new measurements, and closes what went away."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

from nearpeak.core.change import CONFIRMED, ChangePoint, Detection
from nearpeak.core.paired import IMPROVEMENT, INVARIANT, REGRESSION
from nearpeak.core.tracked import OPEN, PROVED, REFUTED, UNDECIDED, Remeasurement, Tracked

MATCH_VALUES = 2
"""A point found this near to a followed one is the same."""
APART_VALUES = 4
"""A new point lies further than this from every followed one."""
BEFORE_VALUES = 3
"""The good side lies at least this far before the change, as its place is not sure."""
REPRESENTATIVES = 5
"""Series measured first where many change at once."""
AWAY_VALUES, AWAY_RATIO = 8, 0.005
"""A level that is this near to the old one for so many commits went away."""


def followed(before: Sequence[Tracked], detection: Detection, newest_index: int) -> tuple[Tracked, ...]:
    """Return the followed points after the value at `newest_index`; none is ever dropped.

    A point within 2 values of a followed one updates it, the nearest pair first. One more than 4 values from all that
    were there is new; in between it is taken for the same change seen elsewhere and is left. A followed point that is
    not found again is marked; found again, the mark goes.

    >>> point = ChangePoint(index=40, low_index=39, high_index=41, tier="suspect", probability_ratio=0.2,
    ...     time_ratio=1.05, low_ratio=1.04, high_ratio=1.06, before_count=40, after_count=3)
    >>> one = followed((), Detection(outcome="searched", points=(point,)), 42)
    >>> followed(one, Detection(outcome="searched"), 43)[0].retracted_index
    43
    """
    pairs = sorted(
        (abs(new.index - old.point.index), i, j)
        for i, old in enumerate(before)
        for j, new in enumerate(detection.points)
        if abs(new.index - old.point.index) <= MATCH_VALUES
    )
    match: dict[int, int] = {}
    for _, i, j in pairs:
        if i not in match and j not in match.values():
            match[i] = j
    kept = [_updated(old, detection, match.get(i), newest_index) for i, old in enumerate(before)]
    there = [new.point.index for old, new in zip(before, kept, strict=True) if old.retracted_index is None]
    for j, new in enumerate(detection.points):
        if j not in match.values() and all(abs(new.index - index) > APART_VALUES for index in there):
            kept.append(Tracked(point=new, first_seen_index=newest_index, last_seen_index=newest_index))
    return tuple(kept)


def _updated(old: Tracked, detection: Detection, matched: int | None, newest_index: int) -> Tracked:
    if matched is None:
        gone = newest_index if old.retracted_index is None else old.retracted_index
        return dataclasses.replace(old, retracted_index=gone)
    new = detection.points[matched]
    return dataclasses.replace(old, point=new, last_seen_index=newest_index, retracted_index=None)


def wants_measuring(one: Tracked) -> bool:
    """Return whether a followed point should be measured again now.

    Once when it is first suspected; one that was not proved then again when the history alone confirms it.
    """
    if one.retracted_index is not None:
        return False
    again = one.measured in (UNDECIDED, REFUTED) and one.point.tier == CONFIRMED and one.tried_tier != CONFIRMED
    return one.measured == OPEN or again


def remeasurements(
    points: Mapping[str, ChangePoint], measured: Sequence[int], weights: Mapping[str, float]
) -> tuple[Remeasurement, ...]:
    """Return the jobs that tell whether suspected changes are there, one for each range of commits.

    Points whose ranges overlap share a job. At most five series run first, by weight times effect.

    Args:
        points: suspected change of each series, by name of the series; indices count commits that all series share.
        measured: indices of commits that were measured.
        weights: how much each series matters; 1 where not given.

    >>> remeasurements({}, [1, 2], {})
    ()
    """
    jobs: list[Remeasurement] = []
    for group in _overlapping(points):
        first = min(points[name].index for name in group)
        before = [index for index in measured if index <= first - BEFORE_VALUES]
        if not before:
            continue
        size = {name: weights.get(name, 1.0) * abs(math.log(points[name].time_ratio)) for name in group}
        order = sorted(group, key=lambda name: (-size[name], name))
        jobs.append(
            Remeasurement(
                good_index=max(before), bad_index=max(measured), series=tuple(order[:REPRESENTATIVES]),
                waiting=tuple(order[REPRESENTATIVES:]),
            )
        )  # fmt: skip
    return tuple(jobs)


def _overlapping(points: Mapping[str, ChangePoint]) -> list[list[str]]:
    """Return names in groups whose ranges of commits overlap, whatever order they come in."""
    groups: list[list[str]] = []
    reach = -math.inf
    for name in sorted(points, key=lambda name: (points[name].low_index, name)):
        if points[name].low_index > reach:
            groups.append([])
        groups[-1].append(name)
        reach = max(reach, points[name].high_index)
    return groups


def measured_again(one: Tracked, verdict: str) -> Tracked:
    """Return the followed point after a verdict on its two commits."""
    said = {REGRESSION: PROVED, IMPROVEMENT: PROVED, INVARIANT: REFUTED}.get(verdict, UNDECIDED)
    return dataclasses.replace(one, measured=said, tried_tier=one.point.tier)


def went_away(one: Tracked, values: Sequence[float], newest_index: int) -> Tracked:
    """Return the followed point, marked where the newest values are back at the level before the change.

    Shapes: `values` [commits], of which `newest_index` is the last. The last 8 values must lie after the change,
    the medians of both their halves within 0.5 % of the median before it.
    """
    index = one.point.index
    start = max(0, index - one.point.before_count)
    recent, before = values[newest_index + 1 - AWAY_VALUES : newest_index + 1], values[start:index]
    if one.went_away_index is not None or newest_index + 1 - AWAY_VALUES <= index or not before:
        return one
    old = statistics.median(before)
    halves = recent[: AWAY_VALUES // 2], recent[AWAY_VALUES // 2 :]
    positive = old > 0 and all(value > 0 for value in recent)
    back = positive and all(_near(statistics.median(half), old) for half in halves)
    # A change of less than twice the limit would be near the old level while it lasts.
    large = abs(math.log(one.point.time_ratio)) > 2 * math.log1p(AWAY_RATIO)
    return dataclasses.replace(one, went_away_index=newest_index) if back and large else one


def _near(value: float, other: float) -> bool:
    return abs(math.log(value / other)) <= math.log1p(AWAY_RATIO)
