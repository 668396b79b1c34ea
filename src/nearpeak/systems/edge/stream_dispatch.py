"""Event engine of streams on a board: frames arrive, stages wait for engines and run without preemption."""

import heapq
from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nearpeak.core.edge.stream_answer import StageRun
from nearpeak.core.edge.stream_rig import FULL_SHARE, RigStage, SensorStream
from nearpeak.systems.edge.engine_use import EngineLoad, shared_engines, stage_windows

DEVICE = ("h2d", "gpu", "d2h")
"""Engines that the legacy default stream holds all at once."""


class Piece(NamedTuple):
    """One slice of a stage as the engine runs it."""

    stage: int
    """Stage, from 0."""
    engine: str
    """Engine."""
    time_ns: int
    """Duration."""
    needs: tuple[tuple[str, int], ...]
    """Thousandths of every engine that it holds."""
    due_ns: int
    """Deadline of the stage after the arrival of the frame, for schedules by deadline."""


class _Ready(NamedTuple):
    """A piece that waits for its engines, in the order in which they serve."""

    key_ns: int
    stream: int
    item: int
    place: int
    ready_ns: int


class Course:
    """What happened so far: every piece in order of start, and the end of every frame by stream."""

    def __init__(self, stream_count: int) -> None:
        """Begin with nothing."""
        self.runs: list[StageRun] = []
        self.ends_ns: list[list[int]] = [[] for _ in range(stream_count)]


def pieces_of(stream: SensorStream, schedule: str, shared: Mapping[str, EngineLoad]) -> tuple[Piece, ...]:
    """Return the pieces of a frame, each due at the end of its stage's window.

    >>> from nearpeak.core.edge.stream_rig import RigStage
    >>> stages = (RigStage(engine="h2d", time_ns=1), RigStage(engine="gpu", time_ns=4, slice_count=2))
    >>> stream = SensorStream(name="a", period_ns=10, deadline_ns=10, stages=stages)
    >>> [piece.due_ns for piece in pieces_of(stream, "edf", shared_engines((stream,)))]
    [2, 10, 10]
    """
    pieces, due = [], 0
    for place, (stage, window) in enumerate(zip(stream.stages, stage_windows(stream, shared), strict=True)):
        due += window
        needs = _needs(stream, stage, schedule)
        times = stage.slices() if schedule != "streams" else (stage.time_ns,)
        pieces += [Piece(place, stage.engine, time, needs, due) for time in times]
    return tuple(pieces)


def _needs(stream: SensorStream, stage: RigStage, schedule: str) -> tuple[tuple[str, int], ...]:
    """Return what a stage holds while it runs; schedules by deadline give each kernel the whole device."""
    needs = {stage.engine: stage.share if schedule == "streams" else FULL_SHARE}
    if stage.engine in DEVICE and stream.is_default:
        needs |= dict.fromkeys(DEVICE, FULL_SHARE)
    if stage.engine in ("h2d", "d2h") and stage.is_pageable:
        needs["cpu"] = FULL_SHARE
    return tuple(needs.items())


class Dispatcher:
    """A board on which streams run; time goes on by `advance`."""

    def __init__(self, streams: Sequence[SensorStream], schedule: str, offsets_ns: Sequence[int]) -> None:
        """Let the first frame of each stream arrive at its offset."""
        self.streams, self.by_deadline = streams, schedule != "streams"
        shared = shared_engines(tuple(streams))
        self.pieces = [pieces_of(stream, schedule, shared) for stream in streams]
        self.engine_count = len({engine for row in self.pieces for piece in row for engine, _ in piece.needs})
        self.arrivals = [(offset, index, 0) for index, offset in enumerate(offsets_ns)]
        heapq.heapify(self.arrivals)
        self.offsets_ns, self.now_ns = tuple(offsets_ns), 0
        self.ready: list[_Ready] = []
        self.running: list[tuple[int, int, int, int]] = []
        self.used: dict[str, int] = {}
        self.course = Course(len(streams))

    def advance(self, stop_ns: int) -> Iterator[tuple[int, int]]:
        """Go on until everything before `stop_ns` has happened; yield stream and frame of each frame that ends."""
        while True:
            due = [heap[0][0] for heap in (self.arrivals, self.running) if heap]
            if not due or min(due) >= stop_ns:
                return
            self.now_ns = min(due)
            while self.running and self.running[0][0] == self.now_ns:
                _, stream, frame, place = heapq.heappop(self.running)
                for engine, share in self.pieces[stream][place].needs:
                    self.used[engine] -= share
                if place + 1 < len(self.pieces[stream]):
                    self._wait(stream, frame, place + 1)
                else:
                    self.course.ends_ns[stream].append(self.now_ns)
                    yield stream, frame
            while self.arrivals and self.arrivals[0][0] == self.now_ns:
                _, stream, frame = self.arrivals[0]
                heapq.heapreplace(self.arrivals, (self.now_ns + self.streams[stream].period_ns, stream, frame + 1))
                self._wait(stream, frame, 0)
            self._start()

    def arrival_ns(self, stream: int, frame: int) -> int:
        """Return when a frame arrives."""
        return self.offsets_ns[stream] + frame * self.streams[stream].period_ns

    def _wait(self, stream: int, frame: int, place: int) -> None:
        due = self.arrival_ns(stream, frame) + self.pieces[stream][place].due_ns
        key = due if self.by_deadline else self.now_ns
        insort(self.ready, _Ready(key, stream, frame, place, self.now_ns))

    def _start(self) -> None:
        """Start what fits; nothing overtakes a piece that waits for the same engine."""
        blocked: set[str] = set()
        left = []
        for place, waiting in enumerate(self.ready):
            if len(blocked) == self.engine_count:
                left += self.ready[place:]
                break
            piece = self.pieces[waiting.stream][waiting.place]
            fits = all(
                engine not in blocked and self.used.get(engine, 0) + share <= FULL_SHARE
                for engine, share in piece.needs
            )
            if not fits:
                blocked.update(engine for engine, _ in piece.needs)
                left.append(waiting)
                continue
            for engine, share in piece.needs:
                self.used[engine] = self.used.get(engine, 0) + share
            stop_ns = self.now_ns + piece.time_ns
            heapq.heappush(self.running, (stop_ns, waiting.stream, waiting.item, waiting.place))
            self.course.runs.append(StageRun(
                stream=self.streams[waiting.stream].name, item=waiting.item, stage=piece.stage, engine=piece.engine,
                ready_ns=waiting.ready_ns, start_ns=self.now_ns, stop_ns=stop_ns,
            ))  # fmt: skip
        self.ready = left

    def state(self, at_ns: int) -> tuple[object, ...]:
        """Return everything that decides what happens from `at_ns` on, relative to that time."""
        running = sorted(
            (stop - at_ns, stream, self.arrival_ns(stream, frame) - at_ns, place)
            for stop, stream, frame, place in self.running
        )
        ready = [
            (key - at_ns, stream, self.arrival_ns(stream, frame) - at_ns, place)
            for key, stream, frame, place, _ in self.ready
        ]
        arrivals = sorted((time - at_ns, stream) for time, stream, _ in self.arrivals)
        return tuple(running), tuple(ready), tuple(arrivals)
