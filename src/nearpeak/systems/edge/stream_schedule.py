"""Plan of sensor streams on a board: verdict, responses, waits, age at fusion, and the rate that breaks it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from nearpeak.core.edge.stream_answer import (
    PROVED,
    FusionAge,
    ModeVerdict,
    PlannedStreams,
    Schedulability,
    StreamResponse,
)
from nearpeak.core.edge.stream_rig import FULL_SHARE, SCHEDULES, Rig
from nearpeak.systems.edge.demand_test import OpenTestError
from nearpeak.systems.edge.engine_use import pinned, utilisation_of
from nearpeak.systems.edge.schedulability import is_proved, judge_streams, queue_limits, sliced
from nearpeak.systems.edge.stream_course import MOST_FRAMES, SimulatedCourse, simulate_streams
from nearpeak.systems.edge.stream_dispatch import Dispatcher
from nearpeak.systems.edge.stream_overlap import overlaps_of

BREAK_STEPS = 12
"""Halvings of the range in which the first rate that breaks is looked for."""

OVERLOADED_FRAMES = 500
"""Frames that are simulated where the queue of an engine grows without end."""


def plan_streams(rig: Rig, target: str, schedule: str = "streams") -> PlannedStreams:
    """Return verdict, responses and causes of waiting of a rig whose stages have their times.

    Responses are those of the counter-example where there is one, else of the stated arrivals, else of frames that all
    arrive at once.

    >>> from nearpeak.core.edge.stream_rig import RigStage, SensorStream
    >>> stages = (RigStage(engine="gpu", time_ns=4_000_000),)
    >>> streams = tuple(SensorStream(name=n, period_ns=10_000_000, deadline_ns=10_000_000, stages=stages) for n in "ab")
    >>> planned = plan_streams(Rig(name="two", streams=streams), "board")
    >>> planned.outcome.verdict, planned.responses[1].worst_s, planned.responses[1].limit_s
    ('proved', 0.008, 0.008)
    """
    ready = _prepared(rig, schedule)
    outcome = judge_streams(ready, schedule)
    offsets = outcome.offsets_ns or tuple(stream.offset_ns or 0 for stream in ready.streams)
    used = utilisation_of(ready, schedule)
    frames = OVERLOADED_FRAMES if max(used.values()) > 1 else MOST_FRAMES
    course = simulate_streams(ready, schedule, offsets, most_frames=frames)
    floor, makespan, serial = makespans(ready, schedule)
    others = () if outcome.verdict == PROVED else tuple(
        other for other in SCHEDULES if other != schedule and is_proved(_prepared(rig, other), other)
    )  # fmt: skip
    return PlannedStreams(
        rig=ready, target=target, schedule=schedule, outcome=outcome,
        busy_ratio={engine: float(share) for engine, share in used.items()},
        responses=_responses(rig, ready, schedule, outcome, course), is_whole_cycle=course.is_whole,
        overlaps=overlaps_of(ready, course.runs, schedule), ages=_ages(ready, course),
        floor_s=floor / 1e9, makespan_s=makespan / 1e9, serial_s=serial / 1e9,
        alternatives=others,
    )  # fmt: skip


def _prepared(rig: Rig, schedule: str) -> Rig:
    """Return the rig on single units of engines, with slices where the schedule cuts kernels."""
    return sliced(pinned(rig)) if schedule == "slices" else pinned(rig)


def makespans(rig: Rig, schedule: str) -> tuple[int, int, int]:
    """Return for one frame of each stream, all at once: least time of any schedule, of this one, and in series, in ns.

    No schedule beats the longest frame nor the load of the busiest engine.
    """
    serial = sum(stream.time_ns for stream in rig.streams)
    loads: dict[str, float] = {}
    for stream in rig.streams:
        for stage in stream.stages:
            share = stage.share if schedule == "streams" else FULL_SHARE
            loads[stage.engine] = loads.get(stage.engine, 0) + stage.time_ns * share / FULL_SHARE
    once = [replace(stream, period_ns=serial + 1) for stream in rig.streams]
    board = Dispatcher(once, schedule, [0] * len(once))
    for _ended in board.advance(serial + 1):
        pass
    makespan = max(ends[0] for ends in board.course.ends_ns)
    return int(max(*(stream.time_ns for stream in rig.streams), *loads.values())), makespan, serial


def _responses(
    stated: Rig, rig: Rig, schedule: str, outcome: Schedulability, course: SimulatedCourse
) -> tuple[StreamResponse, ...]:
    """Return the response times of each stream."""
    limits = _limits(rig, schedule, outcome)
    proved = is_proved(rig, schedule)
    rows = []
    for index, (stream, responses, limit_ns) in enumerate(zip(rig.streams, course.responses_ns, limits, strict=True)):
        ordered = sorted(responses) or [stream.time_ns]
        rows.append(StreamResponse(
            stream=stream.name, frame_count=len(responses), alone_s=stream.time_ns / 1e9,
            missed_count=sum(response > stream.deadline_ns for response in responses),
            p50_s=_quantile(ordered, 0.5) / 1e9, p99_s=_quantile(ordered, 0.99) / 1e9, worst_s=ordered[-1] / 1e9,
            limit_s=None if limit_ns is None else limit_ns / 1e9, deadline_s=stream.deadline_ns / 1e9,
            break_ratio=_break_ratio(stated, index, schedule) if proved else None,
        ))  # fmt: skip
    return tuple(rows)


def _quantile(ordered: Sequence[int], share: float) -> int:
    """Return the value that a share of the values does not exceed.

    >>> _quantile([1, 2, 3, 4], 0.5), _quantile(range(1, 101), 0.99)
    (2, 99)
    """
    return ordered[max(-(-len(ordered) * round(1000 * share) // 1000) - 1, 0)]


def _limits(rig: Rig, schedule: str, outcome: Schedulability) -> list[int | None]:
    """Return a response that no frame exceeds: of the backlog test, or the deadlines where these are proved."""
    if schedule == "streams":
        try:
            if outcome.verdict == PROVED and is_proved(rig, schedule):
                return list(queue_limits(rig))
        except OpenTestError:
            pass
    return [stream.deadline_ns if outcome.verdict == PROVED else None for stream in rig.streams]


def _break_ratio(rig: Rig, index: int, schedule: str) -> float:
    """Return the rate of a stream, over the stated one, from which deadlines are not proved any more.

    A deadline that equals the period moves with it.
    """
    low, high = 1.0, 2.0
    while high < 1e4 and is_proved(_prepared(_faster(rig, index, high), schedule), schedule):
        low, high = high, 2 * high
    for _ in range(BREAK_STEPS):
        middle = (low + high) / 2
        if is_proved(_prepared(_faster(rig, index, middle), schedule), schedule):
            low = middle
        else:
            high = middle
    return high


def _faster(rig: Rig, index: int, ratio: float) -> Rig:
    stream = rig.streams[index]
    period = max(int(stream.period_ns / ratio), 1)
    deadline = period if stream.deadline_ns == stream.period_ns else stream.deadline_ns
    changed = replace(stream, period_ns=period, deadline_ns=deadline)
    return rig.with_streams((*rig.streams[:index], changed, *rig.streams[index + 1 :]))


def _ages(rig: Rig, course: SimulatedCourse) -> tuple[FusionAge, ...]:
    """Return how old the data is that consumers of several streams take when the first one delivers."""
    places = {stream.name: place for place, stream in enumerate(rig.streams)}
    delivered = {
        name: sorted((arrival + response, arrival) for arrival, response in
                     zip(course.arrivals_ns[place], course.responses_ns[place], strict=True))
        for name, place in places.items()
    }  # fmt: skip
    rows = []
    if course.is_whole:  # the cycle before it delivered the same
        for stream, name in zip(rig.streams, delivered, strict=True):
            span = stream.period_ns * len(delivered[name])
            delivered[name] = [(end - span, arrival - span) for end, arrival in delivered[name]] + delivered[name]
    for fusion in rig.fusions:
        trigger = places[fusion.streams[0]]
        moments = sorted(arrival + response for arrival, response in
                         zip(course.arrivals_ns[trigger], course.responses_ns[trigger], strict=True))  # fmt: skip
        for name in fusion.streams:
            ages, newest, place = [], None, 0
            for moment in moments:
                while place < len(delivered[name]) and delivered[name][place][0] <= moment:
                    arrival = delivered[name][place][1]
                    newest, place = arrival if newest is None else max(newest, arrival), place + 1
                if newest is not None:
                    ages.append(moment - newest)
            if ages:
                ages.sort()
                rows.append(FusionAge(fusion=fusion.name, stream=name, p50_s=_quantile(ages, 0.5) / 1e9,
                                      worst_s=ages[-1] / 1e9))  # fmt: skip
    return tuple(rows)


def compare_modes(
    modes: Sequence[tuple[str, float | None]], rig_of: Callable[[str], Rig], schedule: str
) -> tuple[tuple[ModeVerdict, ...], str]:
    """Return the verdict in each power mode, least power first, and the first in which every deadline is proved.

    Args:
        modes: targets with their power limits; those without a limit come last.
        rig_of: returns the rig with the times of a mode.
    """
    rows = []
    for mode, power_w in sorted(modes, key=lambda pair: (pair[1] is None, pair[1] or 0.0)):
        rig = _prepared(rig_of(mode), schedule)
        highest = max(float(share) for share in utilisation_of(rig, schedule).values())
        verdict = judge_streams(rig, schedule).verdict
        rows.append(ModeVerdict(mode=mode, power_w=power_w, verdict=verdict, highest_ratio=highest))
    return tuple(rows), next((row.mode for row in rows if row.verdict == PROVED), "")
