"""Answer on sensor streams of a board: whether deadlines are met, response times, waits, and the least power mode."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nearpeak.core.answers.simulation import Overlap
from nearpeak.core.edge.stream_rig import Rig
from nearpeak.core.records.record_codec import Codec

PROVED, REFUTED, UNDECIDED = "proved", "refuted", "undecided"
_RECORDS = Codec(pairs_as_objects=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRun:
    """One slice of one stage of one frame, as a schedule ran it."""

    stream: str
    """Stream."""
    item: int
    """Frame, from 0."""
    stage: int
    """Stage, from 0."""
    engine: str
    """Engine."""
    ready_ns: int
    """When it could have started on an idle board."""
    start_ns: int
    """When it started."""
    stop_ns: int
    """When it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedulability:
    """Whether every frame meets its deadline, and what shows it."""

    verdict: str
    """`proved`, `refuted` or `undecided`."""
    reason: str
    """The test that decided, or why none did."""
    offsets_ns: tuple[int, ...] = ()
    """Arrivals of the first frames in the counter-example."""
    missed: str = ""
    """The stream that misses in the counter-example."""
    index: int = 0
    """Its frame."""
    late_ns: int = 0
    """By how much that frame is late."""
    timeline: tuple[StageRun, ...] = ()
    """What ran from the arrival of that frame, or the blocker's, until its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResponse:
    """Response times of one stream in the simulated cycle."""

    stream: str
    """Stream."""
    frame_count: int
    """Frames of the cycle."""
    missed_count: int
    """Frames that ended after their deadline."""
    alone_s: float
    """Response of a frame that waits for nothing."""
    p50_s: float
    """Median response."""
    p99_s: float
    """99th percentile."""
    worst_s: float
    """Longest response in the cycle."""
    limit_s: float | None
    """Response that no arrival pattern exceeds; none where no test gives one."""
    deadline_s: float
    """Deadline."""
    break_ratio: float | None
    """Rate of this stream, over the stated one, from which deadlines are not proved any more; none where they are not
    proved at the stated rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionAge:
    """Age of the data that a consumer of several streams takes: time since the arrival of the frame."""

    fusion: str
    """Consumer."""
    stream: str
    """Stream."""
    p50_s: float
    """Median age."""
    worst_s: float
    """Greatest age."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeVerdict:
    """One power mode of the board."""

    mode: str
    """Target with its mode."""
    power_w: float | None
    """Power limit of the mode; none where it has none."""
    verdict: str
    """`proved`, `refuted` or `undecided`."""
    highest_ratio: float
    """Utilisation of the busiest engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStreams:
    """Everything `nearpeak plan streams` answers."""

    rig: Rig
    """Streams with the times that were used, and the slices of each stage."""
    target: str
    """Board and power mode."""
    schedule: str
    """Schedule."""
    outcome: Schedulability
    """Verdict."""
    busy_ratio: Mapping[str, float]
    """Busy share of each engine."""
    responses: tuple[StreamResponse, ...]
    """Response times by stream."""
    is_whole_cycle: bool
    """Whether the simulated course repeats after what was simulated."""
    overlaps: tuple[Overlap, ...]
    """What each two streams ran at the same time, and what kept them from more."""
    ages: tuple[FusionAge, ...]
    """Age of data at each consumer of several streams."""
    floor_s: float
    """Least time in which one frame of each stream can be done by any schedule."""
    makespan_s: float
    """Time in which this schedule does them."""
    serial_s: float
    """Time in which they are done one after the other."""
    alternatives: tuple[str, ...] = ()
    """Other schedules under which every deadline is proved, where it is not under this one."""
    notes: tuple[str, ...] = ()
    """What predicted times rest on beside kernel models, a sentence each."""
    modes: tuple[ModeVerdict, ...] = ()
    """Power modes, least power first; empty where they were not asked for."""
    least_mode: str = ""
    """The mode of least power in which every deadline is proved."""

    def record(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        record: dict[str, Any] = _RECORDS.plain(self)
        return record
