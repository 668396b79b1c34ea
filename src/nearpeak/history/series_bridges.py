"""Bridges between series whose key changed: ratio of values that one commit has under both keys."""

import dataclasses
import math
from collections.abc import Mapping

from nearpeak.core.history.bridge import Bridge, bridge_of
from nearpeak.core.history.stored_run import Series, stack_difference
from nearpeak.core.history.track import TrackPoint
from nearpeak.core.runs.launch_pairs import BASELINE, CANDIDATE, Launch
from nearpeak.errors import NotFoundError, SpecError
from nearpeak.history.commit_points import points_of
from nearpeak.judgement.launch_verdict import judged_launches
from nearpeak.store import History, Store

LEAST_LAUNCHES = 2
"""Launches under each key that a bridge needs."""


def bridged(store: Store, old: Series, new: Series) -> Bridge:
    """Return, and keep, what the change of the key from one series to the other did.

    It is the verdict on the launches of the newest commit that was measured under both keys, in the order in which they
    ran; in turns A B B A, drift does not matter.

    Raises:
        SpecError: the series are of different cases, metrics, devices or branches.
        NotFoundError: no commit has two launches under each key.
    """
    for name in ("case", "device", "branch"):
        if getattr(old, name) != getattr(new, name):
            raise SpecError(
                f"bridge: series {old.id} and {new.id} differ in their {name}; a bridge joins two keys of one"
            )
    if old.metric != new.metric or old.id == new.id:
        raise SpecError(f"bridge: series {old.id} and {new.id} are not two keys of one metric; name two")
    sides = (store.history(old.id), store.history(new.id))
    sha = _shared(sides)
    launches, runs = _launches(store, sides, sha)
    judgement = judged_launches(launches).judgement
    stacks = [next(run.stack for run in store.runs([number])) for number in runs]
    differences = (*stack_difference(*stacks), *_policy(old, new))
    bridge = bridge_of(judgement, (old.id, new.id), sha, len(launches), tuple(dict.fromkeys(differences)))
    store.investigations.record_bridge(bridge)
    return bridge


def _shared(sides: tuple[History, History]) -> str:
    """Return the newest commit with enough launches on both sides."""
    points = [{point.sha: point for point in points_of(side) if point.sha} for side in sides]
    both = [
        point
        for sha, point in points[1].items()
        if sha in points[0] and min(len(point.values), len(points[0][sha].values)) >= LEAST_LAUNCHES
    ]
    if not both:
        names = f"series {sides[0].series.id} and {sides[1].series.id}"
        raise NotFoundError(
            f"bridge: {names} share no commit with {LEAST_LAUNCHES} launches each; measure one commit under both keys"
        )
    return max(both, key=lambda point: point.order_key).sha


def _launches(store: Store, sides: tuple[History, History], sha: str) -> tuple[list[Launch], tuple[int, int]]:
    """Return the launches of a commit in the order in which they ran, and a run of each side."""
    rows = [
        (int(side.run_ids[row]), int(side.launches[row]), arm, float(side.median[row]), float(side.clock_hz[row]))
        for arm, side in zip((BASELINE, CANDIDATE), sides, strict=True)
        for row, other in enumerate(side.shas)
        if other == sha and not math.isnan(side.median[row])
    ]
    began = {run.id: run.started_ns for run in store.runs({number for number, *_ in rows})}
    rows.sort(key=lambda row: (began[row[0]], row[0], row[1]))
    higher = sides[0].series.metric.direction == "higher"
    rounds = [
        Launch(arm=arm, time_s=1 / value if higher else value, clock_hz=None if math.isnan(clock) else clock)
        for _, _, arm, value, clock in rows
    ]
    first = tuple(next(run for run, _, arm, *_ in rows if arm == wanted) for wanted in (BASELINE, CANDIDATE))
    return rounds, (first[0], first[1])


def _policy(old: Series, new: Series) -> tuple[tuple[str, str, str], ...]:
    """Return in what the keys themselves differ: runner, its policy, tracked components."""
    pairs: list[dict[str, str]] = []
    for side in (old, new):
        policy: Mapping[str, object] = side.testbed.policy
        pairs.append({"runner": side.testbed.name} | {k: str(v) for k, v in policy.items()} | dict(side.track))
    return stack_difference(tuple(pairs[0].items()), tuple(pairs[1].items()))


def linked_points(store: Store, history: History) -> tuple[tuple[TrackPoint, ...], tuple[tuple[int, Bridge], ...]]:
    """Return the commits of a series and, scaled, those under its earlier keys, and the bridges with where they stand.

    Only commits before the first under the newer key are taken; a bridge that is inconclusive joins nothing.
    """
    points, bridges = points_of(history), list[tuple[int, Bridge]]()
    known = store.investigations.bridges()
    seen, scale, series = {history.series.id}, 1.0, history.series.id
    higher = history.series.metric.direction == "higher"
    while (bridge := known.get(series)) is not None and bridge.joins and bridge.old_series not in seen and points:
        scale *= 1 / bridge.time_ratio if higher else bridge.time_ratio
        first = points[0].order_key
        older = [point for point in points_of(store.history(bridge.old_series)) if point.order_key < first]
        before = tuple(
            dataclasses.replace(point, value=point.value * scale, values=tuple(value * scale for value in point.values))
            for point in older
            if point.sha != points[0].sha
        )
        bridges = [(len(before), bridge), *((at + len(before), other) for at, other in bridges)]
        points, series = (*before, *points), bridge.old_series
        seen.add(series)
    return points, tuple(bridges)
