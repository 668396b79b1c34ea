"""Schedulability of streams on a board: proved by a test or a whole cycle, refuted by a timeline, or undecided."""

import random
from collections.abc import Sequence
from dataclasses import replace

from nearpeak.core.edge.stream_answer import PROVED, REFUTED, UNDECIDED, Schedulability
from nearpeak.core.edge.stream_rig import FULL_SHARE, Rig
from nearpeak.errors import SpecError
from nearpeak.systems.edge.demand_test import EngineTask, OpenTestError, deadline_violation, queue_response
from nearpeak.systems.edge.engine_use import shared_engines, stage_windows, utilisation_of
from nearpeak.systems.edge.stream_course import MOST_FRAMES, refutation, simulate_streams

SLICED = ("gpu", "dla")
"""Engines whose work can be cut into slices: a kernel of fewer blocks, a part of the layers."""
MOST_SLICES = 1000
"""Slices into which a kernel is cut at most."""
SEARCHED_OFFSETS = 64
"""Random arrival patterns that are tried where no test decides."""
SEARCHED_FRAMES = 2_000
"""Frames of each of them."""


def judge_streams(rig: Rig, schedule: str) -> Schedulability:
    """Return whether every frame of a rig meets its deadline under a schedule.

    Where every stream states its offset, the one course of events is simulated until it repeats. Otherwise every
    offset can happen, in whole nanoseconds.

    Args:
        rig: streams on single units of engines (`engine_use.pinned`).

    Raises:
        SpecError: some streams state an offset and others do not.

    >>> from nearpeak.core.edge.stream_rig import RigStage, SensorStream
    >>> def stream(name, period, time):
    ...     stages = (RigStage(engine="gpu", time_ns=time),)
    ...     return SensorStream(name=name, period_ns=period, deadline_ns=period, stages=stages)
    >>> judge_streams(Rig(name="golden", streams=(stream("camera", 33, 11), stream("radar", 100, 45))), "edf").verdict
    'refuted'
    """
    stated = [stream.offset_ns or 0 for stream in rig.streams]
    if not rig.has_offsets and any(stream.offset_ns is not None for stream in rig.streams):
        raise SpecError(f"rig {rig.name}: some streams state an offset; state that of every stream, or of none")
    for stream in rig.streams:
        if stream.time_ns > stream.deadline_ns:
            course = simulate_streams(rig, schedule, stated, stops_at_miss=True)
            return refutation(rig, course, f"the stages of {stream.name} alone take longer than its deadline")
    full = [engine for engine, share in utilisation_of(rig, schedule).items() if share > 1]
    if full or rig.has_offsets:
        course = simulate_streams(rig, schedule, stated, stops_at_miss=True)
        reason = f"{full[0]} is asked for more than all of its time" if full else "the stated arrivals lead to it"
        if course.position:
            return refutation(rig, course, reason)
        if full:
            return Schedulability(verdict=REFUTED, reason=f"{reason}; too slowly for a short timeline")
        if course.is_whole:
            return Schedulability(
                verdict=PROVED, reason="the course of the stated arrivals was simulated until it repeats"
            )
        return Schedulability(
            verdict=UNDECIDED, reason="no miss in the simulated frames, but the course did not repeat"
        )
    return _any_offsets(rig, schedule)


def is_proved(rig: Rig, schedule: str) -> bool:
    """Return whether tests prove that every frame meets its deadline, whatever the offsets; nothing is simulated."""
    if any(stream.time_ns > stream.deadline_ns for stream in rig.streams):
        return False
    if any(share > 1 for share in utilisation_of(rig, schedule).values()) or _several(rig, schedule):
        return False
    try:
        if schedule == "streams":
            limits = queue_limits(rig)
            return all(limit <= stream.deadline_ns for limit, stream in zip(limits, rig.streams, strict=True))
        return all(deadline_violation(tasks) is None for tasks, _ in engine_tasks(rig).values())
    except OpenTestError:
        return False


def _several(rig: Rig, schedule: str) -> str:
    """Return why tests of single engines do not apply: work that holds several engines at once."""
    if schedule == "streams" and any(stream.is_default for stream in rig.streams) and len(rig.streams) > 1:
        return "work on the legacy default stream holds all engines of the device"
    if any(stage.is_pageable for stream in rig.streams for stage in stream.stages):
        return "copies from pageable memory hold the host too"
    return ""


def engine_tasks(rig: Rig) -> dict[str, tuple[list[EngineTask], list[tuple[int, int]]]]:
    """Return the tasks of each shared engine with stream and stage of each, for tests by deadline."""
    shared = shared_engines(rig.streams)
    tasks: dict[str, tuple[list[EngineTask], list[tuple[int, int]]]] = {}
    for index, stream in enumerate(rig.streams):
        windows = stage_windows(stream, shared)
        for place, (stage, window) in enumerate(zip(stream.stages, windows, strict=True)):
            if stage.engine in shared and stage.time_ns:
                rows, places = tasks.setdefault(stage.engine, ([], []))
                rows.append(EngineTask(stage.time_ns, stream.period_ns, window, stage.slices()[0]))
                places.append((index, place))
    return tasks


def queue_limits(rig: Rig) -> tuple[int, ...]:
    """Return a response that no frame of each stream exceeds where kernels start in order of arrival, in ns.

    Kernels that run side by side end no later than one after the other in the same order.

    Raises:
        OpenTestError: an engine is overloaded, or delays feed each other without end.
    """
    tasks = engine_tasks(rig)
    limits = {(index, place): stage.time_ns for index, stream in enumerate(rig.streams)
              for place, stage in enumerate(stream.stages)}  # fmt: skip
    shared = shared_engines(rig.streams)  # where each stream waits at most once, its arrivals are exact
    is_single = all(sum(stage.engine in shared for stage in stream.stages) <= 1 for stream in rig.streams)
    for _ in range(100):
        before = dict(limits)
        for rows, places in tasks.values():
            late = [sum(before[index, other] - rig.streams[index].stages[other].time_ns for other in range(place))
                    for index, place in places]  # fmt: skip
            for row, key in enumerate(places):
                limits[key] = queue_response(rows, row, () if is_single else late)[0]
        if limits == before:
            return tuple(sum(limits[index, place] for place in range(len(stream.stages)))
                         for index, stream in enumerate(rig.streams))  # fmt: skip
        if max(limits.values()) > 100 * max(stream.period_ns for stream in rig.streams):
            break
    raise OpenTestError


def _any_offsets(rig: Rig, schedule: str) -> Schedulability:
    """Return the verdict where every offset can happen."""
    several = _several(rig, schedule)
    reason, exact = several, list[list[int]]()
    if not several:
        try:
            proof, exact = (_queue_test if schedule == "streams" else _deadline_test)(rig)
        except OpenTestError:
            proof, reason = "", "the test would have to look at too many deadlines"
        if proof:
            return Schedulability(verdict=PROVED, reason=proof)
        reason = reason or "the sufficient test of several shared engines fails"
    draw, patterns = random.Random(0), [*exact, [0] * len(rig.streams)]
    for _ in range(SEARCHED_OFFSETS):
        patterns.append([draw.randrange(stream.period_ns) for stream in rig.streams])
    for place, pattern in enumerate(patterns):
        frames = MOST_FRAMES if place < len(exact) else SEARCHED_FRAMES
        course = simulate_streams(rig, schedule, pattern, stops_at_miss=True, most_frames=frames)
        if course.position:
            return refutation(rig, course, "these arrivals lead to it")
    return Schedulability(
        verdict=UNDECIDED, reason=f"{reason}, and {len(patterns)} arrival patterns show no miss"
    )  # fmt: skip


def _deadline_test(rig: Rig) -> tuple[str, list[list[int]]]:
    """Return the proof, or arrivals that lead to a miss if any do at the engine."""
    patterns = []
    for rows, places in engine_tasks(rig).values():
        violation = deadline_violation(rows)
        if violation is not None:
            late = [1 if violation.task >= 0 and row != violation.task else 0 for row in range(len(rows))]
            patterns.append(_offsets(rig, places, late))
    return "" if patterns else "no interval of any engine holds more work than fits (EDF demand test)", patterns


def _queue_test(rig: Rig) -> tuple[str, list[list[int]]]:
    """Return the proof, or arrivals that lead to a miss if any do."""
    limits, patterns = queue_limits(rig), []
    late = [index for index, stream in enumerate(rig.streams) if limits[index] > stream.deadline_ns]
    for rows, places in engine_tasks(rig).values():
        for row, (index, _) in enumerate(places):
            if index in late:
                _, arrival = queue_response(rows, row)
                first = [arrival % rows[row].period if other == row else 0 for other in range(len(rows))]
                patterns.append(_offsets(rig, places, first))
    return "" if late else "the longest backlog of every engine leaves time (FIFO test)", patterns


def _offsets(rig: Rig, places: Sequence[tuple[int, int]], arrivals: Sequence[int]) -> list[int]:
    """Return first frames that reach an engine at given times, if nothing delays them before."""
    ahead = [sum(stage.time_ns for stage in rig.streams[index].stages[:place]) for index, place in places]
    offsets = [0] * len(rig.streams)
    for (index, _), arrival, before in zip(places, arrivals, ahead, strict=True):
        offsets[index] = max(ahead) + arrival - before
    return offsets


def sliced(rig: Rig) -> Rig:
    """Return the rig with kernels cut into the fewest slices that let work with nearer deadlines pass in time.

    >>> from nearpeak.core.edge.stream_rig import RigStage, SensorStream
    >>> def stream(name, period, time):
    ...     stages = (RigStage(engine="gpu", time_ns=time),)
    ...     return SensorStream(name=name, period_ns=period, deadline_ns=period, stages=stages)
    >>> cut = sliced(Rig(name="golden", streams=(stream("camera", 33, 11), stream("radar", 100, 45))))
    >>> cut.streams[1].stages[0].slices()
    (23, 22)
    """
    streams = list(rig.streams)
    for _ in range(200):
        again = False
        for engine, (rows, places) in engine_tasks(rig.with_streams(tuple(streams))).items():
            try:
                violation = deadline_violation(rows)
            except OpenTestError:
                continue
            if violation is None or violation.task < 0 or engine.partition(":")[0] not in SLICED:
                continue
            index, place = places[violation.task]
            room = violation.length - (violation.demand - rows[violation.task].longest)
            stage = streams[index].stages[place]
            count = -(-stage.time_ns // room) if room > 0 else MOST_SLICES + 1
            if stage.slice_count < count <= MOST_SLICES:
                stages = list(streams[index].stages)
                stages[place] = replace(stage, slice_count=count, share=FULL_SHARE)
                streams[index] = replace(streams[index], stages=tuple(stages))
                again = True
        if not again:
            break
    return rig.with_streams(tuple(streams))
