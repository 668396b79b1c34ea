"""Series out of a store, as tracks: a value for each commit, changes of the level, and what changed with it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from statistics import median

from nearpeak.analyze.changes import changes
from nearpeak.analyze.clocks import LEAST_STEP_RATIO, at_usual_clock, clock_share, clock_share_of_steps
from nearpeak.core.change import SEARCHED, ChangePoint, Detection
from nearpeak.core.history import Metric, Revision, Series, stack_difference
from nearpeak.core.track import Track, TrackChange, TrackPoint
from nearpeak.errors import NotFoundError
from nearpeak.registry import unknown_name
from nearpeak.store import History, Store

SAME_COMMITS = 3
"""Changes of a series this near to each other, with the clock and without, are the same."""
NEAREST = 8
"""Commits on each side of a change whose clocks are compared."""


def series_named(
    store: Store, words: Sequence[str], *, device: str = "", branch: str = "", metric: str = ""
) -> tuple[Series, ...]:
    """Return the series that `words` name: a number, the start of a fingerprint or case digest, or parts of labels.

    Raises:
        NotFoundError: the store holds no such series.
    """
    held = store.series(device=device or None, branch=branch or None, metric=metric or None)
    if not held:
        asked = _said({"device": device, "branch": branch, "metric": metric})
        raise NotFoundError(f"{store.name}: holds no series{asked}; 'nearpeak history' lists what there is")
    if not words:
        return held
    if len(words) == 1 and words[0].isdigit() and (by_number := [one for one in held if one.id == int(words[0])]):
        return tuple(by_number)
    found = [one for one in held if all(_fits(one, word) for word in words)]
    if not found:
        near = unknown_name("series", " ".join(words), tuple(sorted({one.label for one in held})))
        raise NotFoundError(f"{store.name}: {near}")
    return tuple(found)


def _said(where: dict[str, str]) -> str:
    return "".join(f" of {name} {value!r}" for name, value in where.items() if value)


def _fits(one: Series, word: str) -> bool:
    if len(word) >= 8 and (one.fingerprint.startswith(word) or one.case.startswith(word)):
        return True
    text = " ".join((one.label, one.workload, one.device, one.testbed.name, one.branch)).lower()
    return word.lower() in text


def track_of(store: Store, series: int) -> Track:
    """Return a series with the changes of its level.

    Raises:
        NotFoundError: there is no such series.
    """
    history = store.history(series)
    points = points_of(history)
    found, by_clock, share = _searched(points, history.series.metric)
    both = sorted((*found.points, *by_clock), key=lambda one: one.index)
    revisions = {one.sha: one for one in _revisions(store, points, both)}
    told = tuple(
        replace(
            _change(store, history.series, points, one, both[place + 1 :], revisions), by_clock=one in by_clock
        )
        for place, one in enumerate(both)
    )  # fmt: skip
    return Track(
        series=history.series, points=points, changes=told, outcome=found.outcome, clock_share_ratio=share,
        failed_count=sum(math.isnan(value) for value in history.median.tolist()),
    )  # fmt: skip


def _searched(points: Sequence[TrackPoint], metric: Metric) -> tuple[Detection, list[ChangePoint], float | None]:
    """Return the changes at equal clocks, those that are there in the values alone, and the share of the clock.

    Where no clock moved, or one is unknown, the values themselves are searched.
    """
    values = [one.value for one in points]
    plain = changes(values)
    clocks = [median(one.clocks_hz) for one in points if one.clocks_hz]
    whole = len(clocks) == len(points) and metric.kind == "time" and plain.outcome == SEARCHED
    share = _share(points, values, clocks) if whole and min(clocks) > 0 else None
    if not share:
        return plain, [], share
    found = changes(at_usual_clock(values, clocks, share))
    near = [one.index for one in found.points]
    gone = [one for one in plain.points if all(abs(one.index - index) > SAME_COMMITS for index in near)]
    return found, gone, share


def points_of(history: History) -> tuple[TrackPoint, ...]:
    """Return a point for each commit, in order: its launches of all runs; a run of no commit is a point of its own."""
    rows = [row for row in range(len(history)) if not math.isnan(history.median[row])]
    keys = {row: history.shas[row] or f"run {history.run_ids[row]}" for row in rows}
    return tuple(_point(history, list(part)) for _, part in groupby(rows, key=keys.__getitem__))


def _point(history: History, rows: list[int]) -> TrackPoint:
    last = rows[-1]
    values = tuple(float(history.median[row]) for row in rows)
    clocks = tuple(float(history.clock_hz[row]) for row in rows)
    return TrackPoint(
        sha=history.shas[last], position=int(history.positions[last]), order_key=int(history.order_keys[last]),
        run_id=int(history.run_ids[last]), stack_id=int(history.stack_ids[last]),
        device_id=int(history.device_ids[last]), value=median(values), values=values,
        clocks_hz=() if any(map(math.isnan, clocks)) else clocks,
        run_ids=tuple(int(history.run_ids[row]) for row in rows),
    )  # fmt: skip


def clock_share_between(points: Sequence[TrackPoint]) -> float | None:
    """Return the part of the clock that shows in the values; none where a clock is unknown, or it hardly moved."""
    clocks = [median(one.clocks_hz) for one in points if one.clocks_hz]
    if len(clocks) < len(points) or not clocks or min(clocks) <= 0:
        return None
    return _share(points, [one.value for one in points], clocks)


def _share(points: Sequence[TrackPoint], values: Sequence[float], clocks: Sequence[float]) -> float | None:
    """Return the part of the clock that shows: out of launches of one commit, or else of steps between commits.

    Where the clock hardly moved over the history, there is nothing to take out.
    """
    if max(clocks) / min(clocks) - 1 < LEAST_STEP_RATIO:
        return None
    share = clock_share([list(zip(one.values, one.clocks_hz, strict=True)) for one in points])
    return clock_share_of_steps(values, clocks) if share is None else share


def _revisions(store: Store, points: Sequence[TrackPoint], found: Sequence[ChangePoint]) -> Iterable[Revision]:
    """Return the commits at the changes, with their subjects."""
    runs = [points[one.index].run_id for one in found]
    return [run.revision for run in store.runs(runs) if run.revision is not None] if runs else []


def _change(
    store: Store, series: Series, points: Sequence[TrackPoint], one: ChangePoint, later: Sequence[ChangePoint],
    revisions: dict[str, Revision],
) -> TrackChange:  # fmt: skip
    old, new = points[one.index - 1], points[one.index]
    up = one.time_ratio > 1
    stack = (
        () if old.stack_id == new.stack_id else stack_difference(store.stack(old.stack_id), store.stack(new.stack_id))
    )
    known = old.position >= 0 and new.position >= 0
    return TrackChange(
        index=one.index, tier=one.tier, worse=up if series.metric.direction == "lower" else not up,
        value_ratio=one.time_ratio, low_ratio=one.low_ratio, high_ratio=one.high_ratio,
        probability_ratio=one.probability_ratio, good_sha=old.sha, bad_sha=new.sha,
        safe_good_sha=points[max(0, min(one.low_index, one.index) - 1)].sha,
        safe_bad_sha=points[min(len(points) - 1, max(one.high_index, one.index))].sha,
        subject=revisions[new.sha].subject if new.sha in revisions else "", stack=stack,
        devices=None if old.device_id == new.device_id else (str(old.device_id), str(new.device_id)),
        clock_ratio=_clock_ratio(points, one), over=_over(one, later),
        span_count=new.position - old.position if known else 1,
    )  # fmt: skip


def _over(one: ChangePoint, later: Sequence[ChangePoint]) -> bool:
    """Say whether later changes took back two thirds of this one."""
    change = math.log(one.time_ratio)
    return bool(later) and abs(change + sum(math.log(other.time_ratio) for other in later)) < abs(change) / 3


def _clock_ratio(points: Sequence[TrackPoint], one: ChangePoint) -> float | None:
    """Return the clock of the commits after the change over that before, of those nearest to it on each side."""
    before = points[max(0, one.index - min(one.before_count, NEAREST)) : one.index]
    after = points[one.index : one.index + min(one.after_count, NEAREST)]
    sides = [[clock for point in side for clock in point.clocks_hz] for side in (before, after)]
    if not all(sides) or not all(point.clocks_hz for point in (*before, *after)):
        return None
    return median(sides[1]) / median(sides[0])
