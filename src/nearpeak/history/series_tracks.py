"""Series as tracks: one value per commit, detected level changes, and the environment that changed with them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from nearpeak.core.history.level_change import SEARCHED, ChangePoint, Detection
from nearpeak.core.history.stored_run import Metric, Revision, Series, stack_difference
from nearpeak.core.history.track import Track, TrackChange, TrackPoint
from nearpeak.errors import NotFoundError
from nearpeak.history.commit_points import clock_share_between
from nearpeak.history.series_bridges import linked_points
from nearpeak.judgement.change_points import FLOOR_RATIO, changes
from nearpeak.judgement.clock_adjustment import at_usual_clock
from nearpeak.store import Store

SAME_COMMITS = 3
"""Changes of a series this near to each other, with the clock and without, are the same."""
NEAREST = 8
"""Commits on each side of a change whose clocks, or levels, are compared."""
STEP_COMMITS = 3
"""Commits on each side between which a step of the clock is looked for."""


def series_named(
    store: Store, words: Sequence[str], *, device: str = "", branch: str = "", metric: str = ""
) -> tuple[Series, ...]:
    """Return the series that `words` name: a number, the start of a fingerprint or case digest, or parts of labels.

    Raises:
        NotFoundError: the store holds no such series.
    """
    held = store.series(device=device or None, branch=branch or None, metric=metric or None)
    if not held:
        text = "".join(
            f" of {name} {value!r}"
            for name, value in {"device": device, "branch": branch, "metric": metric}.items()
            if value
        )
        raise NotFoundError(f"{store.name}: holds no series{text}; 'nearpeak history' lists what there is")
    if not words:
        return held
    number = int(words[0]) if len(words) == 1 and words[0].isdigit() else None
    matches = [series for series in held if series.id == number]
    matches = matches or [series for series in held if all(_is_named(series, word) for word in words)]
    if not matches:
        text = " ".join(words)
        raise NotFoundError(f"{store.name}: no series {text!r}; 'nearpeak history' lists all {len(held)} with numbers")
    return tuple(matches)


def series_numbered(store: Store, number: int) -> Series:
    """Return the series of a number.

    Raises:
        NotFoundError: there is none.
    """
    matches = store.series(id=number)
    if not matches:
        raise NotFoundError(f"{store.name}: holds no series {number}; 'nearpeak history' lists what there is")
    return matches[0]


def _is_named(series: Series, word: str) -> bool:
    text = " ".join((series.label, series.workload, series.device, series.testbed.name, series.branch)).lower()
    digests = (series.fingerprint, series.case) if len(word) >= 8 else ()
    return word.lower() in text or any(digest.startswith(word) for digest in digests)


def track_of(store: Store, series: int) -> Track:
    """Return a series with the changes of its level.

    Raises:
        NotFoundError: there is no such series.
    """
    history = store.history(series)
    points, bridges = linked_points(store, history)
    search, episodes, share = _searched(points, history.series.metric)
    clocks = {item.index: over for item, over in episodes}
    both = sorted((*search.points, *(item for item, _ in episodes)), key=lambda item: item.index)
    runs = store.runs([points[item.index].run_id for item in both]) if both else ()
    revisions = {run.revision.sha: run.revision for run in runs if run.revision is not None}
    level = _equal(points, share) if share else [item.value for item in points]
    reported = [_change(store, history.series, points, item, revisions) for item in both]
    later = {item.index: search.points[place + 1 :] for place, item in enumerate(search.points)}
    changes = tuple(
        replace(new, by_clock=True, over=clocks[item.index])
        if item.index in clocks
        else replace(new, over=_over(item, later[item.index], level))
        for item, new in zip(both, reported, strict=True)
        if item.index >= (bridges[-1][0] if bridges else 0)  # those before belong to the series of the old key
    )
    return Track(
        series=history.series, points=points, changes=changes, outcome=search.outcome, clock_share_ratio=share,
        failed_count=sum(math.isnan(value) for value in history.median.tolist()), bridges=bridges,
    )  # fmt: skip


def commits_since(track: Track, change: TrackChange) -> int:
    """Return how many commits are newer than the first of a change: by the history, else measured ones."""
    first, last = track.points[change.index], track.points[-1]
    if first.position >= 0 and last.position >= 0:
        return last.position - first.position
    return len(track.points) - 1 - change.index


def largest_step(tracks: Sequence[Track]) -> tuple[Track, int] | None:
    """Return the track with the largest difference between neighbouring commits, and the later of these."""
    steps = [
        (abs(math.log(new.value / old.value)), number, place + 1)
        for number, track in enumerate(tracks)
        for place, (old, new) in enumerate(pairwise(track.points))
        if old.value > 0 and new.value > 0
    ]
    if not steps:
        return None
    _, number, place = max(steps)
    return tracks[number], place


def _searched(
    points: Sequence[TrackPoint], metric: Metric
) -> tuple[Detection, list[tuple[ChangePoint, bool]], float | None]:
    """Return the changes at equal clocks, episodes of the clock with whether they are over, and the clock's share.

    Where no clock moved, or one is unknown, the values themselves are searched.
    """
    values = [item.value for item in points]
    plain = changes(values)
    searched = metric.kind == "time" and plain.outcome == SEARCHED
    share = clock_share_between(points) if searched else None
    if not share:
        return plain, [], share
    search = changes(_equal(points, share))
    known = [item.index for item in search.points]
    gone = [item for item in plain.points if all(abs(item.index - index) > SAME_COMMITS for index in known)]
    clocks = [median(item.clocks_hz) for item in points]
    episodes = {item[0].index: item for point in gone if (item := _episode(point, clocks, share)) is not None}
    return search, [item for index, item in sorted(episodes.items()) if index not in known], share


def _equal(points: Sequence[TrackPoint], share: float) -> tuple[float, ...]:
    return at_usual_clock([point.value for point in points], [median(point.clocks_hz) for point in points], share)


def _episode(point: ChangePoint, clocks: Sequence[float], share: float) -> tuple[ChangePoint, bool] | None:
    """Return a change that is gone at equal clocks as the clock has it: where, how large, and whether it is over.

    None where the clock moved too little to tell of.
    """
    places = range(max(STEP_COMMITS, point.index - SAME_COMMITS), min(len(clocks) - 1, point.index + SAME_COMMITS) + 1)
    sign = 1 if point.time_ratio > 1 else -1
    steps = {
        at: math.log(median(clocks[at : at + STEP_COMMITS]) / median(clocks[at - STEP_COMMITS : at])) for at in places
    }
    # The step between neighbours tells apart places whose three commits on each side show it alike.
    edges = {at: steps[at] + math.log(clocks[at] / clocks[at - 1]) for at in steps}
    place = min(edges, key=lambda at: (sign * edges[at], abs(at - point.index)), default=0)
    if not steps or abs(share * steps[place]) < math.log1p(FLOOR_RATIO) or sign * steps[place] > 0:
        return None
    old = median(clocks[max(0, place - NEAREST) : place])
    moved = [abs(math.log(value / old)) for value in clocks[place:]]
    size = abs(steps[place])
    stop = next((at for at in range(len(moved) - 1) if max(moved[at : at + 2]) < size / 3), None)
    during = clocks[place : place + (stop or len(moved))]
    effect = -share * math.log(median(during) / old)
    scatter = median(abs(math.log(value / median(during))) for value in during)
    reach = share * 2.6 * 1.4826 * max(scatter, 1e-4) * math.sqrt(1 / len(during) + 1 / min(place, NEAREST))
    return replace(
        point, index=place, low_index=place, high_index=place, time_ratio=math.exp(effect),
        low_ratio=math.exp(effect - reach), high_ratio=math.exp(effect + reach),
    ), stop is not None  # fmt: skip


def _change(
    store: Store, series: Series, points: Sequence[TrackPoint], change: ChangePoint, revisions: dict[str, Revision]
) -> TrackChange:  # fmt: skip
    old, new = points[change.index - 1], points[change.index]
    up = change.time_ratio > 1
    stack = (
        () if old.stack_id == new.stack_id else stack_difference(store.stack(old.stack_id), store.stack(new.stack_id))
    )
    known = old.position >= 0 and new.position >= 0
    return TrackChange(
        index=change.index, tier=change.tier, worse=up if series.metric.direction == "lower" else not up,
        value_ratio=change.time_ratio, low_ratio=change.low_ratio, high_ratio=change.high_ratio,
        probability_ratio=change.probability_ratio, good_sha=old.sha, bad_sha=new.sha,
        safe_good_sha=points[max(0, min(change.low_index, change.index) - 1)].sha,
        safe_bad_sha=points[min(len(points) - 1, max(change.high_index, change.index))].sha,
        subject=revisions[new.sha].subject if new.sha in revisions else "", stack=stack,
        devices=None if old.device_id == new.device_id else (str(old.device_id), str(new.device_id)),
        clock_ratio=_clock_ratio(points, change),
        span_count=new.position - old.position if known else 1,
    )  # fmt: skip


def _over(point: ChangePoint, later: Sequence[ChangePoint], values: Sequence[float]) -> bool:
    """Say whether two thirds of a change are gone: later changes took them back, or the newest values show it."""
    change, index = math.log(point.time_ratio), point.index
    if later and abs(change + sum(math.log(other.time_ratio) for other in later)) < abs(change) / 3:
        return True
    newest, old = values[max(index, len(values) - NEAREST) :], values[max(0, index - NEAREST) : index]
    if len(newest) < NEAREST or min((*newest, *old)) <= 0:
        return False
    halves = newest[: NEAREST // 2], newest[NEAREST // 2 :]
    return all(abs(math.log(median(half) / median(old))) < abs(change) / 3 for half in halves)


def _clock_ratio(points: Sequence[TrackPoint], change: ChangePoint) -> float | None:
    """Return the clock of the commits after the change over that before, of those nearest to it on each side."""
    before = points[max(0, change.index - min(change.before_count, NEAREST)) : change.index]
    after = points[change.index : change.index + min(change.after_count, NEAREST)]
    sides = [[clock for point in side for clock in point.clocks_hz] for side in (before, after)]
    if not all(sides) or not all(point.clocks_hz for point in (*before, *after)):
        return None
    return median(sides[1]) / median(sides[0])
