"""Overlap of two streams on a board, and what kept them from more."""

from collections.abc import Sequence
from itertools import combinations

from nearpeak.core.answers.simulation import Overlap
from nearpeak.core.edge.stream_answer import StageRun
from nearpeak.core.edge.stream_rig import FULL_SHARE, Rig, SensorStream
from nearpeak.systems.edge.stream_dispatch import DEVICE

WORDS = {
    "h2d": "one copy engine per direction: copies to the device went one after the other",
    "d2h": "one copy engine per direction: copies to the host went one after the other",
    "dla": "the accelerator ran work of the other",
    "cpu": "the host was busy with the other",
}
"""Reason by the engine that was waited for."""
ENOUGH_RATIO = 0.9
"""Share of the possible overlap from which nothing is missing."""


def overlaps_of(rig: Rig, runs: Sequence[StageRun], schedule: str) -> tuple[Overlap, ...]:
    """Return for each two streams how long both had work running, and the main cause of what is missing."""
    by_stream = {stream.name: [run for run in runs if run.stream == stream.name] for stream in rig.streams}
    return tuple(
        _overlap(first, second, by_stream[first.name], by_stream[second.name], schedule)
        for first, second in combinations(rig.streams, 2)
    )


def _overlap(
    first: SensorStream, second: SensorStream, ours: Sequence[StageRun], theirs: Sequence[StageRun], schedule: str
) -> Overlap:
    both = _common([(run.start_ns, run.stop_ns) for run in ours], [(run.start_ns, run.stop_ns) for run in theirs])
    most = min(sum(run.stop_ns - run.start_ns for run in side) for side in (ours, theirs))
    reason = "" if both >= ENOUGH_RATIO * most else _reason(first, second, ours, theirs, schedule)
    return Overlap(first=first.name, second=second.name, both_s=both / 1e9, most_s=most / 1e9, reason=reason)


def _common(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> int:
    """Return the time in which an interval of each list runs.

    >>> _common([(0, 4), (6, 9)], [(3, 8)])
    3
    """
    both, left, right = 0, _joined(first), _joined(second)
    i = j = 0
    while i < len(left) and j < len(right):
        both += max(min(left[i][1], right[j][1]) - max(left[i][0], right[j][0]), 0)
        if left[i][1] <= right[j][1]:
            i += 1
        else:
            j += 1
    return both


def _joined(times: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(times):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((start, stop))
    return joined


def _reason(
    first: SensorStream, second: SensorStream, ours: Sequence[StageRun], theirs: Sequence[StageRun], schedule: str
) -> str:
    """Return the cause that cost most: for which engine the one waited while the other held it."""
    lost: dict[str, int] = {}
    for side, rivals, rival in ((ours, theirs, second), (theirs, ours, first)):
        held: dict[str, list[tuple[int, int]]] = {}
        for run in rivals:
            for engine in _engines(rival, run, schedule):
                held.setdefault(engine, []).append((run.start_ns, run.stop_ns))
        waits: dict[str, list[tuple[int, int]]] = {}
        for run in side:
            if run.start_ns > run.ready_ns:
                waits.setdefault(run.engine, []).append((run.ready_ns, run.start_ns))
        for engine, times in waits.items():
            lost[engine] = lost.get(engine, 0) + _common(times, held.get(engine, []))
    if not any(lost.values()):
        return "no frame of the one waited for the other: they arrive at different times"
    engine = max(lost, key=lambda name: lost[name])
    return _words(engine.partition(":")[0], first, second, schedule)


def _engines(stream: SensorStream, run: StageRun, schedule: str) -> tuple[str, ...]:
    """Return the engines that a run holds."""
    if stream.is_default and schedule == "streams" and run.engine in DEVICE:
        return DEVICE
    return (run.engine, "cpu") if stream.stages[run.stage].is_pageable else (run.engine,)


def _words(engine: str, first: SensorStream, second: SensorStream, schedule: str) -> str:
    streams = first, second
    if engine in DEVICE and schedule == "streams" and any(stream.is_default for stream in streams):
        name = first.name if first.is_default else second.name
        return f"{name} is on the legacy default stream, which waits for all others and they for it"
    if engine == "cpu" and any(stage.is_pageable for stream in streams for stage in stream.stages):
        return "a copy from pageable memory holds the host until it ends"
    if engine != "gpu":
        return WORDS[engine]
    if schedule != "streams":
        return "the schedule gives the device to one at a time"
    needs = [max(stage.share for stage in stream.stages if stage.engine == engine) for stream in streams]
    if max(needs) == FULL_SHARE:
        name = first.name if needs[0] == FULL_SHARE else second.name
        return f"the kernel of {name} fills the device"
    return f"their kernels need {sum(needs) / 10:.0f} % of the device together"
