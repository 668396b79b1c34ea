"""Two streams with independent work that never overlap, and the reason."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from statistics import median

from nearpeak.core.traces.executed_run import NOTHING
from nearpeak.core.traces.finding_report import Abstained, Change, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if

ID = "overlap.missed"
_LOAD = 0.1
"""Part of the window that the second stream must carry."""


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Drop the waits between streams that compute and let each go on when it can."""
    lanes = _lanes(scene)
    loads = _loads(scene)
    whole = sum(load for load, _ in loads)
    overlap = max(0.0, whole - scene.executed.timeline.compute_ns) / max(1, whole - loads[-1][0])
    if overlap > 0.5:
        return
    if not scene.executed.sm_count:
        reason = "the number of multiprocessors is unknown: pass --target"
        yield Abstained(id=ID, reason=f"{len(loads)} streams compute one after the other, and {reason}")
        return
    places = [place for members in lanes.values() for place in members]
    blocks = {number: use.block_count or 0 for number, use in enumerate(scene.executed.kernels)}
    full = [place for place in places if blocks.get(scene.items[place].kernel, 0) >= scene.executed.sm_count]
    if scene.device_s(full) > 0.5 * scene.device_s(places):
        reason = "most of their time is in kernels that fill the device alone, so overlap gains nothing"
        yield Abstained(id=ID, reason=f"{len(loads)} streams compute one after the other: {reason}")
        return
    changes, reason = _freed(scene, lanes)
    if not changes:
        yield Abstained(id=ID, reason=f"{len(loads)} streams compute one after the other: {reason}")
        return
    yield from scene.finding(
        ID,
        f"{len(loads)} streams compute, but run one after the other: {reason}",
        changes,
        evidence=[
            scene.evidence(
                "load of the second stream", loads[-2][0] * 1e-9 / scene.executed.step_count, "s", lanes[loads[-2][1]]
            ),
            scene.evidence("attained part of the possible overlap", overlap, ""),
        ],
        counter=[
            ("each kernel fills the device", state_if(False)),
            ("one depends on the other's results", "not observable"),
        ],
        falsifier="take the events or the use of the default stream out and compare results: if they are equal"
        " and the streams"
        " overlap, nothing depended on the order",
    )


def _freed(scene: Scene, lanes: dict[int, list[int]]) -> tuple[tuple[Change, ...], str]:
    """Return the changes that let streams run side by side, and the reason why they did not."""
    places = [place for members in lanes.values() for place in members]
    waits = [place for place in places if scene.items[place].after]
    if len(waits) > 0.2 * min(len(members) for members in lanes.values()):
        return tuple(Change(place, after=()) for place in waits), "events make each wait for the other"
    late = [place for place in places if scene.items[place].lag_ns > 2_000]
    if late:
        changes = tuple(Change(place, lag_ns=0) for place in late)
        return (
            changes,
            "work starts late although its stream is free (legacy default stream, or too few hardware queues)",
        )
    blocking = [p for p, item in enumerate(scene.items) if item.waits != NOTHING and not scene.ends_step(p)]
    if blocking:
        return tuple(Change(p, waits=NOTHING) for p in blocking), _blocked(scene, blocking)
    middle = median(scene.items[place].device_ns for place in places)
    apart = median(scene.items[place].before_ns + scene.items[place].call_ns for place in places)
    if middle < apart:
        return (
            (),
            f"kernels of {middle / 1000:.1f} µs end before the host has launched the next, {apart / 1000:.1f} µs later",
        )
    return (), "the host launches the other one only when the first has ended"


def _blocked(scene: Scene, places: list[int]) -> str:
    """Return what most of the calls are that make the host wait before it launches the other stream's work."""
    kinds = Counter("pageable" if "pageable" in scene.items[p].copy else scene.items[p].kind for p in places)
    return {
        "pageable": "copies of pageable memory keep the host from launching the other",
        "copy": "copies that block keep the host from launching the other",
        "alloc": "allocations of device memory wait for the device before the other is launched",
    }.get(kinds.most_common(1)[0][0], "the host waits for one before it launches the other")


def _lanes(scene: Scene) -> dict[int, list[int]]:
    lanes: dict[int, list[int]] = defaultdict(list)
    for place, item in enumerate(scene.items):
        if item.kind == "kernel":
            lanes[item.lane].append(place)
    return lanes


def _loads(scene: Scene) -> list[tuple[int, int]]:
    """Return the device time of each stream that computes, with the stream, the least first."""
    return sorted((sum(scene.items[p].device_ns for p in places), lane) for lane, places in _lanes(scene).items())


def _several(scene: Scene) -> bool:
    loads = _loads(scene)
    return len(loads) > 1 and loads[-2][0] >= _LOAD * scene.executed.window_ns


RULE = Rule(id=ID, look=look, needs=("host", "links", "grid"), concerns=_several)
