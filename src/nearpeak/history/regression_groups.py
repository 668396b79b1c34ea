"""Regressions in a store: change points of series, grouped by start commit, with suspected causes."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from nearpeak.core.history.alert import CLOSED
from nearpeak.core.history.alert_group import Candidate
from nearpeak.core.history.level_change import ChangePoint
from nearpeak.core.history.stored_run import Series
from nearpeak.core.history.track import Regressed, Track, TrackChange, TrackPoint
from nearpeak.judgement.alert_rules import declared, grouped, matches
from nearpeak.judgement.change_causes import co_moved
from nearpeak.judgement.change_points import DETECTOR, VERSION
from nearpeak.store import Detector, Store, StoredChange
from nearpeak.store.rows.investigation_rows import AXES, Attribution
from nearpeak.units import signed_percent

CLOCK_SHARE_RATIO = 0.5
"""Part of a change from which the clock is named as its cause."""
ONLY = "only on "
"""Beginning of what is told of a device or runner that alone shows a change."""
Pair = tuple[Series, TrackChange]


def regressed(tracks: Sequence[Track], *, better: bool = False, suspects: bool = False) -> tuple[Regressed, ...]:
    """Return the changes of `tracks` in groups that began together, newest first; episodes of the clock come last.

    Args:
        better: improvements instead of regressions.
        suspects: also those that are not confirmed.
    """
    by_name = {_name(point): point for track in tracks for point in track.points}
    ordered = sorted(by_name, key=lambda name: by_name[name].order_key)
    places = {name: place for place, name in enumerate(ordered)}
    pairs: dict[str, Pair] = {}
    where: dict[str, int] = {}
    ranges: dict[str, tuple[int, ...]] = {}
    for track in tracks:
        for change in track.changes:
            if change.worse != better and (suspects or change.tier == "confirmed"):
                name = f"{track.series.id} {change.index}"
                pairs[name], where[name] = (track.series, change), places[_name(track.points[change.index])]
                ranges[name] = tuple(
                    places.get(sha, where[name]) for sha in (change.safe_good_sha, change.safe_bad_sha)
                )
    groups = sorted(
        grouped([_candidate(name, *pair, where[name], ranges[name]) for name, pair in pairs.items()]),
        key=lambda group: -where[group.members[0][0].series],
    )
    regressions = [_group([pairs[member.series] for member, _ in group.members], tracks) for group in groups]
    return tuple(sorted(regressions, key=lambda regression: regression.by_clock))


def _name(point: TrackPoint) -> str:
    """Return a key of a point that is the same in all series: its commit, or else its time."""
    return point.sha or str(point.order_key)


def _candidate(name: str, series: Series, change: TrackChange, place: int, ends: tuple[int, ...]) -> Candidate:
    """Return a change as grouping takes it: its range of commits, and the axis values of its series.

    Changes that came with different component changes cannot share a cause, so these are part of every axis.
    """
    components = "+".join(
        [*sorted(component for component, _, _ in change.stack), *(["clock"] if change.by_clock else [])]
    )
    point = ChangePoint(
        index=place, low_index=min(place, ends[0] + 1), high_index=max(place, ends[1]),
        tier=change.tier, probability_ratio=change.probability_ratio, time_ratio=change.value_ratio,
        low_ratio=change.low_ratio, high_ratio=change.high_ratio, before_count=1, after_count=1,
    )  # fmt: skip
    axes = {axis: f"{value} {components}" for axis, value in axes_of(series).items() if axis != "runner"}
    return Candidate(series=name, point=point, axes=axes, gap_s=abs(math.log(change.value_ratio)))


def axes_of(series: Series) -> dict[str, str]:
    """Return operator, device and runner of a series."""
    return {
        "operator": str(series.parameters.get("op", series.workload)), "device": series.device,
        "runner": series.testbed.name,
    }  # fmt: skip


def fields_of(series: Series) -> dict[str, str]:
    """Return the fields by which declarations and suppressions select series."""
    return {**axes_of(series), "branch": series.branch, "owner": series.owner, "case": series.label}


def _group(part: list[Pair], tracks: Sequence[Track]) -> Regressed:
    (good, bad), _ = Counter((change.good_sha, change.bad_sha) for _, change in part).most_common(1)[0]
    subject = next((change.subject for _, change in part if change.bad_sha == bad), "")
    return Regressed(
        good_sha=good, bad_sha=bad, subject=subject, changes=tuple(part), suspects=tuple(_suspects(part, tracks))
    )


def _suspects(part: Sequence[Pair], tracks: Sequence[Track]) -> Iterable[tuple[str, str]]:
    """Yield suspected causes of a group, likeliest first: the clock, changed components, the device, the commit."""
    if all(
        change.by_clock
        or (change.clock_ratio and -math.log(change.clock_ratio) / math.log(change.value_ratio) >= CLOCK_SHARE_RATIO)
        for _, change in part
    ):
        ratios = sorted(change.clock_ratio or 1.0 for _, change in part)
        yield "clock", signed_percent(ratios[len(ratios) // 2] - 1)
    stacks = Counter(row for _, change in part for row in change.stack)
    for (name, before, after), count in stacks.most_common():
        if count == len(part):
            yield "component", f"{name} {before or 'none'} → {after or 'none'}"
    witnesses = _witnesses(part, tracks)
    alone = list(_alone(part, witnesses))
    yield from alone
    explained = {axis for axis, _ in alone}
    axes = {str(series.id): axes_of(series) for series in witnesses}
    for shared in co_moved(axes, {str(series.id) for series, _ in part}):
        if shared.axis not in explained:
            yield shared.axis, shared.text
            explained.add(shared.axis)
    if not stacks and not all(change.by_clock for _, change in part):
        yield "commit", part[0][1].subject or part[0][1].bad_sha[:10]


def _witnesses(part: Sequence[Pair], tracks: Sequence[Track]) -> list[Series]:
    """Return the series of a group and those that were measured before and after it, so that they could show it."""
    shifted = {series.id: change.index for series, change in part}
    starts = [track.points[shifted[track.series.id]].order_key for track in tracks if track.series.id in shifted]
    return [
        track.series
        for track in tracks
        if track.series.id in shifted
        or (track.points and track.points[0].order_key < min(starts) and track.points[-1].order_key >= max(starts))
    ]


def _alone(part: Sequence[Pair], witnesses: Sequence[Series]) -> Iterable[tuple[str, str]]:
    """Yield the device or runner that alone shows the change among series of the same cases."""
    cases = {series.case for series, _ in part}
    same = [series for series in witnesses if series.case in cases]
    for axis in ("device", "runner"):
        shown, known = ({axes_of(series)[axis] for series in group} for group in ([pair[0] for pair in part], same))
        if len(shown) == 1 and len(known) > 1:
            yield axis, f"{ONLY}{shown.pop()}"


def save_regressions(store: Store, tracks: Sequence[Track], groups: Sequence[Regressed]) -> tuple[Regressed, ...]:
    """Keep the changes in the store, open an alert for each group that none follows yet, and return groups with alerts.

    Changes that are not found any more are marked as retracted; an alert is never opened twice for a change. Episodes
    of the clock and what is over open none; an alert that turns out to be one is closed as `infra` or `went-away`.
    """
    numbers: dict[tuple[int, int], int] = {}
    points = {track.series.id: track.points for track in tracks}
    with store.together("alerts"):  # of two that find the same, one opens the alert
        for track in tracks:
            rows = [_stored(track, change) for change in track.changes]
            detector = Detector(name=DETECTOR, version=str(VERSION))
            for done in store.findings.record_changes(track.series.id, detector, rows):
                numbers[done.series, done.order_key] = done.id
        return tuple(_followed(store, group, numbers, points) for group in groups)


def _stored(track: Track, change: TrackChange) -> StoredChange:
    return StoredChange(
        series=track.series.id, order_key=track.points[change.index].order_key, rev_lo=change.good_sha,
        rev_hi=change.bad_sha, effect_ratio=math.log(change.value_ratio), low_ratio=math.log(change.low_ratio),
        high_ratio=math.log(change.high_ratio), score_ratio=change.probability_ratio, tier=change.tier,
        before_count=change.index, after_count=len(track.points) - change.index,
        evidence={
            "stack": [list(row) for row in change.stack], "clock_ratio": change.clock_ratio,
            "by_clock": change.by_clock, "over": change.over,
        },
    )  # fmt: skip


def _followed(
    store: Store, group: Regressed, numbers: dict[tuple[int, int], int], points: dict[int, tuple[TrackPoint, ...]]
) -> Regressed:
    ids = [numbers[series.id, points[series.id][change.index].order_key] for series, change in group.changes]
    known = store.findings.alerts_by_change()
    alert = next((known[number] for number in ids if number in known), None)
    if alert is not None:
        store.findings.add_members(alert.id, dict.fromkeys(ids, "related"))
        return _closed(store, replace(group, alert_id=alert.id, status=alert.status))
    if group.by_clock or group.over:
        return group
    title = f"{len(ids)} series worse by up to {(worst(group) - 1) * 100:.1f} %: {cause_of(group)}"
    roles = {ids[0]: "primary"} | dict.fromkeys(ids[1:], "related")
    number = store.findings.open_alert(title, roles, rev_lo=group.good_sha, rev_hi=group.bad_sha)
    for axis, what in group.suspects:
        if axis in AXES:
            store.investigations.record_attribution(Attribution(alert=number, axis=axis, what=what, method="diff"))
    declarations = store.policies.expectations()
    meant = all(
        declared(fields_of(series), change.bad_sha, change.value_ratio, declarations)
        for series, change in group.changes
    )
    group = replace(group, alert_id=number, status="new")
    return _moved(store, group, "expected", "all of its changes were declared") if meant else group


def _closed(store: Store, group: Regressed) -> Regressed:
    """Close an open alert of an episode of the clock, or of what is over."""
    if group.status in CLOSED:
        return group
    if group.by_clock:
        return _moved(store, group, "infra", "gone at equal clocks")
    return _moved(store, group, "went-away", "the old level is back") if group.over else group


def _moved(store: Store, group: Regressed, status: str, note: str) -> Regressed:
    store.findings.move_alert(group.alert_id, status, actor="nearpeak", note=note)
    return replace(group, status=status)


def unsuppressed(store: Store, groups: Sequence[Regressed]) -> tuple[Regressed, ...]:
    """Return the groups without suppressed series; a group without any series left is dropped."""
    silent = store.policies.suppressions()

    def is_silent(series: Series) -> bool:
        return any(matches(suppression.selector, fields_of(series)) for suppression in silent)

    left = [(group, tuple(pair for pair in group.changes if not is_silent(pair[0]))) for group in groups]
    return tuple(replace(group, changes=changes) for group, changes in left if changes)


def cause_of(group: Regressed) -> str:
    """Return what a group is put down to: its likeliest suspect first, the commit alone only where nothing else is.

    Components that changed together are told together, as the group cannot tell which of them it was. A device or
    runner that alone shows the change stands before the commit, and after what is likelier. What the shifted series
    share besides says where the change shows, not what made it.

    >>> cause_of(Regressed(good_sha="a", bad_sha="b", subject="Tune", changes=(),
    ...                    suspects=(("component", "driver 1 → 2"), ("device", "only on H100"))))
    'driver 1 → 2, only on H100'
    >>> cause_of(Regressed(good_sha="a", bad_sha="b", subject="Tune", changes=(),
    ...                    suspects=(("device", "only on H100"), ("commit", "Tune"))))
    'only on H100: Tune'
    """
    clock = [f"clock {what}" for axis, what in group.suspects if axis == "clock"][:1]
    components = [what for axis, what in group.suspects if axis == "component"]
    more = f" or {len(components) - 2} more" if len(components) > 2 else ""
    alone = ", ".join(what for axis, what in group.suspects if what.startswith(ONLY) and axis in ("device", "runner"))
    cause = clock or [f"{' or '.join(components[:2])}{more}" for _ in components[:1]]
    subject = group.subject or group.bad_sha[:10]
    if not cause:
        return f"{alone}: {subject}" if alone else subject
    return ", ".join([*cause, *([alone] if alone else [])])


def worst(group: Regressed) -> float:
    """Return the largest change of a group, as new over old or, of a metric where more is better, old over new."""
    ratio = group.changes[0][1].value_ratio
    return max(ratio, 1 / ratio)
