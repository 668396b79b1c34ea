"""Sensor streams that share the engines of one board: rates, deadlines, stages and what each stage occupies."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nearpeak.errors import SpecError

ENGINES = ("h2d", "gpu", "d2h", "dla", "cpu")
"""Engines of a board: copies up, multiprocessors, copies down, deep-learning accelerators, processor cores."""
SCHEDULES = ("streams", "edf", "slices")
"""`streams`: kernels start in the order in which they become ready, side by side where they fit; `edf`: one piece of
work at a time on each engine, that with the nearest deadline; `slices`: the same with kernels cut into slices."""
FULL_SHARE = 1000
"""Thousandths of an engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RigStage:
    """One stage of each frame of a stream; once started, a slice of it runs to its end."""

    engine: str
    """One of ENGINES, with `:1` and so on after it for the further units of an engine."""
    time_ns: int
    """Duration."""
    share: int = FULL_SHARE
    """Thousandths of the engine that it occupies."""
    slice_count: int = 1
    """Equal slices, between which other work may run."""
    is_pageable: bool = False
    """Whether a copy is from pageable memory, so that the host waits within the call."""

    def __post_init__(self) -> None:
        """Refuse what no stage can be."""
        if self.engine.partition(":")[0] not in ENGINES:
            raise SpecError(f"engine {self.engine!r}: is not one of {', '.join(ENGINES)}")
        if self.time_ns < 0 or not 0 < self.share <= FULL_SHARE or self.slice_count < 1:
            raise SpecError(f"stage on {self.engine}: time must be at least 0, share in (0, 1], slices at least 1")

    def slices(self) -> tuple[int, ...]:
        """Return the duration of each slice in ns; the first ones are the longer ones.

        >>> RigStage(engine="gpu", time_ns=11, slice_count=3).slices()
        (4, 4, 3)
        """
        each, rest = divmod(self.time_ns, self.slice_count)
        return tuple(each + (place < rest) for place in range(self.slice_count))


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorStream:
    """Frames of one sensor, which arrive at a fixed rate."""

    name: str
    """Name."""
    period_ns: int
    """Time between two frames."""
    deadline_ns: int
    """Time from a frame's arrival within which its last stage must end."""
    stages: tuple[RigStage, ...]
    """Stages of a frame, in order."""
    offset_ns: int | None = None
    """Arrival of the first frame; none where streams are not synchronised, so that every offset can happen."""
    is_default: bool = False
    """Whether its copies and kernels are on the legacy default stream, which excludes all other streams."""

    def __post_init__(self) -> None:
        """Refuse streams that never arrive or do nothing."""
        if self.period_ns < 1 or self.deadline_ns < 1 or not self.stages or (self.offset_ns or 0) < 0:
            raise SpecError(f"stream {self.name}: needs a period, a deadline, an offset of at least 0, and a stage")

    @property
    def time_ns(self) -> int:
        """Sum of its stages: the response of a frame that waits for nothing."""
        return sum(stage.time_ns for stage in self.stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """A consumer of several streams, which takes the newest results whenever one of them delivers."""

    name: str
    """Name."""
    streams: tuple[str, ...]
    """Streams whose results it takes; the first one triggers it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """Streams of one board."""

    name: str
    """Name."""
    streams: tuple[SensorStream, ...]
    """Streams."""
    engine_count: Mapping[str, int] = field(default_factory=dict)
    """Units by engine, where there is more than one: cores, accelerators."""
    fusions: tuple[Fusion, ...] = ()
    """Consumers of several streams."""

    def __post_init__(self) -> None:
        """Refuse names that are used twice or unknown."""
        names = [stream.name for stream in self.streams]
        if not names or len(set(names)) < len(names):
            raise SpecError(f"rig {self.name}: needs streams, each with a name of its own")
        for fusion in self.fusions:
            unknown = [name for name in fusion.streams if name not in names]
            if unknown or len(fusion.streams) < 2:
                raise SpecError(f"fusion {fusion.name}: takes two or more of the streams {', '.join(names)}")

    @property
    def has_offsets(self) -> bool:
        """Whether every stream states when its first frame arrives, so that there is one course of events."""
        return all(stream.offset_ns is not None for stream in self.streams)

    def with_streams(self, streams: tuple[SensorStream, ...]) -> "Rig":
        """Return the rig with other streams."""
        return replace(self, streams=streams)
