"""What got worse in a store: changes of its series, those that began together as one, and what may be behind."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from nearpeak.analyze.alerts import grouped
from nearpeak.analyze.attribution import co_moved
from nearpeak.analyze.changes import DETECTOR, VERSION
from nearpeak.core.alert_group import Candidate
from nearpeak.core.change import ChangePoint
from nearpeak.core.history import Series
from nearpeak.core.track import Regressed, Track, TrackChange, TrackPoint
from nearpeak.store import ChangePoint as StoredChange
from nearpeak.store import Detector, Store
from nearpeak.store.investigations import AXES, Attribution
from nearpeak.store.policies import Expectation

NEAR_COMMITS = 2
"""Changes of different series that are at most so many commits apart may have one cause."""
CLOCK_SHARE_RATIO = 0.5
"""Part of a change from which the clock is named as its cause."""
Pair = tuple[Series, TrackChange]


def regressed(tracks: Sequence[Track], *, better: bool = False, suspects: bool = False) -> tuple[Regressed, ...]:
    """Return the changes of `tracks` in groups that began together, newest first.

    Args:
        better: improvements instead of regressions.
        suspects: also those that are not confirmed.
    """
    places = {_name(one): place for place, one in enumerate(_ordered(tracks))}
    pairs: dict[str, Pair] = {}
    where: dict[str, int] = {}
    for track in tracks:
        for change in track.changes:
            if change.worse != better and (suspects or change.tier == "confirmed"):
                name = f"{track.series.id} {change.index}"
                pairs[name], where[name] = (track.series, change), places[_name(track.points[change.index])]
    groups = sorted(
        grouped([_candidate(name, *pair, where[name]) for name, pair in pairs.items()]),
        key=lambda group: -where[group.members[0][0].series],
    )
    return tuple(_group([pairs[one.series] for one, _ in group.members], tracks) for group in groups)


def _name(point: TrackPoint) -> str:
    """Return what stands for a point in all series: its commit, or its time where it is of none."""
    return point.sha or str(point.order_key)


def _candidate(name: str, series: Series, one: TrackChange, place: int) -> Candidate:
    """Return a change as grouping takes it: where it may lie among all commits, and what its series belongs to.

    Changes with which other components changed cannot have one cause, so that these are part of every axis.
    """
    components = "+".join([*sorted(component for component, _, _ in one.stack), *(["clock"] if one.by_clock else [])])
    point = ChangePoint(
        index=place, low_index=place - NEAR_COMMITS, high_index=place,
        tier=one.tier, probability_ratio=one.probability_ratio, time_ratio=one.value_ratio, low_ratio=one.low_ratio,
        high_ratio=one.high_ratio, before_count=1, after_count=1,
    )  # fmt: skip
    axes = {axis: f"{value} {components}" for axis, value in axes_of(series).items() if axis != "runner"}
    return Candidate(series=name, point=point, axes=axes, gap_s=abs(math.log(one.value_ratio)))


def axes_of(series: Series) -> dict[str, str]:
    """Return what a series belongs to."""
    return {
        "operator": str(series.parameters.get("op", series.workload)), "device": series.device,
        "runner": series.testbed.name,
    }  # fmt: skip


def _ordered(tracks: Sequence[Track]) -> list[TrackPoint]:
    found = {_name(point): point for track in tracks for point in track.points}
    return sorted(found.values(), key=lambda one: one.order_key)


def _group(part: list[Pair], tracks: Sequence[Track]) -> Regressed:
    (good, bad), _ = Counter((one.good_sha, one.bad_sha) for _, one in part).most_common(1)[0]
    subject = next((one.subject for _, one in part if one.bad_sha == bad), "")
    return Regressed(
        good_sha=good, bad_sha=bad, subject=subject, changes=tuple(part), suspects=tuple(_suspects(part, tracks))
    )


def _suspects(part: Sequence[Pair], tracks: Sequence[Track]) -> Iterable[tuple[str, str]]:
    """Yield what may be behind a group, likeliest first: the clock, components that changed, the device, the commit."""
    if all(_by_clock(one) for _, one in part):
        ratios = sorted(one.clock_ratio or 1.0 for _, one in part)
        yield "clock", f"{(ratios[len(ratios) // 2] - 1) * 100:+.1f} %"
    stacks = Counter(row for _, one in part for row in one.stack)
    for (name, before, after), count in stacks.most_common():
        if count == len(part):
            yield "component", f"{name} {before or 'none'} → {after or 'none'}"
    alone = list(_alone(part, tracks))
    yield from alone
    told = {axis for axis, _ in alone}
    axes = {str(one.series.id): axes_of(one.series) for one in tracks}
    for one in co_moved(axes, {str(series.id) for series, _ in part}):
        if one.axis not in told:
            yield one.axis, one.text
            told.add(one.axis)
    if not stacks and not all(one.by_clock for _, one in part):
        yield "commit", part[0][1].subject or part[0][1].bad_sha[:10]


def _by_clock(one: TrackChange) -> bool:
    """Say whether the clock moved the other way by as much as explains the change, or most of it."""
    if one.by_clock or one.clock_ratio is None:
        return one.by_clock
    return -math.log(one.clock_ratio) / math.log(one.value_ratio) >= CLOCK_SHARE_RATIO


def _alone(part: Sequence[Pair], tracks: Sequence[Track]) -> Iterable[tuple[str, str]]:
    """Yield the device or runner that alone shows what series of the same cases elsewhere do not show."""
    cases = {series.case for series, _ in part}
    same = [one.series for one in tracks if one.series.case in cases]
    for axis in ("device", "runner"):
        shown, known = {axes_of(series)[axis] for series, _ in part}, {axes_of(one)[axis] for one in same}
        if len(shown) == 1 and len(known) > 1:
            yield axis, f"only on {shown.pop()}"


def saved(store: Store, tracks: Sequence[Track], groups: Sequence[Regressed]) -> tuple[Regressed, ...]:
    """Keep the changes in the store, open an alert for each group that none follows yet, and return groups with alerts.

    Changes that are not found any more are marked as retracted; an alert is never opened twice for a change.
    """
    numbers: dict[tuple[int, int], int] = {}
    for track in tracks:
        rows = [_stored(track, one) for one in track.changes]
        detector = Detector(name=DETECTOR, version=str(VERSION))
        for done in store.findings.record_changes(track.series.id, detector, rows):
            numbers[done.series, done.order_key] = done.id
    points = {track.series.id: track.points for track in tracks}
    return tuple(_followed(store, one, numbers, points) for one in groups)


def _stored(track: Track, one: TrackChange) -> StoredChange:
    return StoredChange(
        series=track.series.id, order_key=track.points[one.index].order_key, rev_lo=one.good_sha, rev_hi=one.bad_sha,
        effect_ratio=math.log(one.value_ratio), low_ratio=math.log(one.low_ratio), high_ratio=math.log(one.high_ratio),
        score_ratio=one.probability_ratio, tier=one.tier, before_count=one.index,
        after_count=len(track.points) - one.index,
        evidence={"stack": [list(row) for row in one.stack], "clock_ratio": one.clock_ratio},
    )  # fmt: skip


def _followed(
    store: Store, group: Regressed, numbers: dict[tuple[int, int], int], points: dict[int, tuple[TrackPoint, ...]]
) -> Regressed:
    ids = [numbers[series.id, points[series.id][one.index].order_key] for series, one in group.changes]
    known = {member: alert for alert in store.findings.alerts() for member, _ in alert.members}
    alert = next((known[one] for one in ids if one in known), None)
    roles = {one: "primary" if place == 0 else "related" for place, one in enumerate(ids)}
    if alert is not None:
        store.findings.add_members(alert.id, dict.fromkeys(ids, "related"))
        return replace(group, alert_id=alert.id, status=alert.status)
    title = f"{len(ids)} series worse by up to {(worst(group) - 1) * 100:.1f} %: {group.subject or group.bad_sha[:10]}"
    number = store.findings.open_alert(title, roles, rev_lo=group.good_sha, rev_hi=group.bad_sha)
    for axis, what in group.suspects:
        if axis in AXES:
            store.investigations.record_attribution(Attribution(alert=number, axis=axis, what=what, method="diff"))
    meant = _expectation(store, group)
    if meant is None:
        return replace(group, alert_id=number, status="new")
    note = f"declared by {meant.author}: {meant.low_ratio:+.1%} to {meant.high_ratio:+.1%}"
    store.findings.move_alert(number, "expected", actor="nearpeak", note=note)
    return replace(group, alert_id=number, status="expected")


def _expectation(store: Store, group: Regressed) -> Expectation | None:
    """Return what declares all changes of a group: its commit among theirs, their series, and their size."""
    for one in store.policies.expectations():
        among = any(change.bad_sha == one.sha for _, change in group.changes)
        if among and all(_declared(one, series, change) for series, change in group.changes):
            return one
    return None


def _declared(one: Expectation, series: Series, change: TrackChange) -> bool:
    inside = math.log1p(one.low_ratio) <= math.log(change.value_ratio) <= math.log1p(one.high_ratio)
    return inside and matches(one.selector, series)


def matches(selector: Mapping[str, object], series: Series) -> bool:
    """Say whether a series has all that a selector asks for: patterns by operator, device, runner, branch or owner."""
    values = {**axes_of(series), "branch": series.branch, "owner": series.owner, "case": series.label}
    return all(name in values and fnmatchcase(values[name], str(pattern)) for name, pattern in selector.items())


def told(store: Store, groups: Sequence[Regressed]) -> tuple[Regressed, ...]:
    """Return the groups without series that are suppressed now; a group of which none is left is left out."""
    silent = store.policies.suppressions()
    kept = (
        replace(group, changes=left)
        for group in groups
        if (left := tuple(pair for pair in group.changes if not any(matches(one.selector, pair[0]) for one in silent)))
    )
    return tuple(kept)


def worst(group: Regressed) -> float:
    """Return the largest change of a group, as new over old or, of a metric where more is better, old over new."""
    ratio = group.changes[0][1].value_ratio
    return max(ratio, 1 / ratio)
