"""Simulated schedule of sensor streams until it repeats: frames, response times, first missed deadline."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm

from nearpeak.core.edge.stream_answer import REFUTED, Schedulability, StageRun
from nearpeak.core.edge.stream_rig import Rig
from nearpeak.systems.edge.stream_dispatch import Dispatcher

MOST_FRAMES = 20_000
"""Frames after which a simulation stops although its course has not repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCourse:
    """What a simulation showed."""

    runs: Sequence[StageRun]
    """Every piece of every frame."""
    responses_ns: tuple[tuple[int, ...], ...]
    """Responses of the frames of one cycle by stream; of all frames where there is no cycle."""
    arrivals_ns: tuple[tuple[int, ...], ...]
    """Arrivals of the same frames."""
    is_whole: bool
    """Whether the course repeats, so that nothing else can happen."""
    offsets_ns: tuple[int, ...]
    """Arrivals of the first frames."""
    position: tuple[int, int] | None
    """Stream and frame of the first deadline that was missed."""


def simulate_streams(
    rig: Rig, schedule: str, offsets_ns: Sequence[int], *, stops_at_miss: bool = False, most_frames: int = MOST_FRAMES
) -> SimulatedCourse:
    """Return the course of a rig from the arrival of the first frames until its state repeats.

    Args:
        stops_at_miss: whether a late frame ends the simulation.
        most_frames: frames after which it ends in any case.
    """
    board, periods = Dispatcher(rig.streams, schedule, offsets_ns), [stream.period_ns for stream in rig.streams]
    cycle, first = lcm(*periods), max(offsets_ns)
    frames = sum(cycle // period for period in periods)
    seen: dict[tuple[object, ...], int] = {}
    missed, is_whole, start = None, False, 0
    stop = first + (cycle if frames <= most_frames else most_frames * cycle // frames)
    count = 0
    while True:
        for stream, frame in board.advance(stop):
            end = board.course.ends_ns[stream][-1]
            if end > board.arrival_ns(stream, frame) + rig.streams[stream].deadline_ns and missed is None:
                missed = stream, frame
                if stops_at_miss:
                    break
        count += frames
        unfinished = ((index, len(ends)) for index, ends in enumerate(board.course.ends_ns))
        missed = missed or next((
            (index, frame) for index, frame in unfinished
            if board.arrival_ns(index, frame) + rig.streams[index].deadline_ns < stop
        ), None)  # fmt: skip
        if missed and stops_at_miss:
            stop = min(stop, board.now_ns + 1)
        state = board.state(stop)
        if (missed and stops_at_miss) or frames > most_frames or state in seen:
            start, is_whole = seen.get(state, 0), state in seen and frames <= most_frames
            break
        if count > most_frames:
            break
        seen[state] = stop
        stop += cycle
    return _course(rig, board, (start, stop), is_whole, missed)


def _course(
    rig: Rig, board: Dispatcher, window: tuple[int, int], is_whole: bool, missed: tuple[int, int] | None
) -> SimulatedCourse:
    """Return the frames that arrived within a window, once they have ended."""
    start, stop = window
    wanted = [-(-(stop - offset) // stream.period_ns) for offset, stream in
              zip(board.offsets_ns, rig.streams, strict=True)]  # fmt: skip
    until = stop
    for _ in range(60):
        if all(len(ends) >= count for ends, count in zip(board.course.ends_ns, wanted, strict=True)):
            break
        until += max(stream.period_ns for stream in rig.streams)
        for _ended in board.advance(until):
            pass
    responses, arrivals = [], []
    for index, (ends, count) in enumerate(zip(board.course.ends_ns, wanted, strict=True)):
        rows = [
            (end - board.arrival_ns(index, frame), board.arrival_ns(index, frame))
            for frame, end in enumerate(ends[:count]) if board.arrival_ns(index, frame) >= start
        ]  # fmt: skip
        responses.append(tuple(response for response, _ in rows))
        arrivals.append(tuple(arrival for _, arrival in rows))
    return SimulatedCourse(
        runs=board.course.runs, responses_ns=tuple(responses), arrivals_ns=tuple(arrivals), is_whole=is_whole,
        offsets_ns=board.offsets_ns, position=missed,
    )  # fmt: skip


def refutation(rig: Rig, course: SimulatedCourse, reason: str) -> Schedulability:
    """Return the verdict on a rig whose simulated course has a late frame, with what ran meanwhile."""
    if course.position is None:
        raise AssertionError("a refutation needs a late frame")
    index, frame = course.position
    stream = rig.streams[index]
    arrival = course.offsets_ns[index] + frame * stream.period_ns
    stages = [run for run in course.runs if run.stream == stream.name and run.item == frame]
    last_stage = len(stream.stages) - 1
    ends = [run.stop_ns for run in stages if run.stage == last_stage]
    end = max(ends, default=arrival + stream.deadline_ns + 1)
    timeline = tuple(run for run in course.runs if run.stop_ns > arrival and run.start_ns < end)
    return Schedulability(
        verdict=REFUTED, reason=reason, offsets_ns=course.offsets_ns, missed=stream.name, index=frame,
        late_ns=end - arrival - stream.deadline_ns, timeline=timeline,
    )  # fmt: skip
