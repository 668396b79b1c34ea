"""Use of engines by streams: units of an engine, utilisation, shared engines, and windows of stages."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from nearpeak.core.edge.stream_rig import FULL_SHARE, Rig, SensorStream


class EngineLoad(NamedTuple):
    """Work of an engine."""

    frame_ns: int
    """Time of one frame of every stream."""
    share: Fraction
    """Share of its time that is asked for."""


def pinned(rig: Rig) -> Rig:
    """Return the rig with every stream's stages on one unit of each engine that has several, the busiest first.

    Work that is pinned to a core or an accelerator can be analysed unit by unit; units without work are left out.

    >>> from nearpeak.core.edge.stream_rig import RigStage
    >>> stage = RigStage(engine="cpu", time_ns=6)
    >>> streams = tuple(SensorStream(name=n, period_ns=10, deadline_ns=10, stages=(stage,)) for n in "ab")
    >>> [s.stages[0].engine for s in pinned(Rig(name="r", streams=streams, engine_count={"cpu": 2})).streams]
    ['cpu', 'cpu:1']
    """
    streams = list(rig.streams)
    for engine, count in rig.engine_count.items():
        loads = [Fraction()] * count
        shares = [_share(stream, engine) for stream in streams]
        for place in sorted(range(len(streams)), key=lambda index: (-shares[index], index)):
            if shares[place]:
                unit = loads.index(min(loads))
                loads[unit] += shares[place]
                name = f"{engine}:{unit}" if unit else engine
                streams[place] = replace(streams[place], stages=tuple(
                    replace(stage, engine=name) if stage.engine == engine else stage for stage in streams[place].stages
                ))  # fmt: skip
    return rig.with_streams(tuple(streams))


def _share(stream: SensorStream, engine: str, *, is_whole: bool = True) -> Fraction:
    """Return the share of an engine's time that a stream needs; in parts of the engine, unless it takes it whole."""
    time = sum(
        stage.time_ns * (FULL_SHARE if is_whole else stage.share) for stage in stream.stages if stage.engine == engine
    )
    return Fraction(time, FULL_SHARE * stream.period_ns)


def utilisation_of(rig: Rig, schedule: str) -> Mapping[str, Fraction]:
    """Return the utilisation of every engine that is used; above 1 no schedule keeps up."""
    engines = dict.fromkeys(stage.engine for stream in rig.streams for stage in stream.stages)
    is_whole = schedule != "streams"
    return {
        engine: sum((_share(stream, engine, is_whole=is_whole) for stream in rig.streams), Fraction())
        for engine in engines
    }


def shared_engines(streams: tuple[SensorStream, ...]) -> Mapping[str, EngineLoad]:
    """Return the load of engines that more than one stage uses, or a stream whose frames may overtake one another."""
    counts = Counter(stage.engine for stream in streams for stage in stream.stages)
    long = {
        stage.engine for stream in streams if stream.deadline_ns > stream.period_ns and len(stream.stages) > 1
        for stage in stream.stages
    }  # fmt: skip
    return {
        engine: EngineLoad(
            sum(stage.time_ns for stream in streams for stage in stream.stages if stage.engine == engine),
            sum((_share(stream, engine) for stream in streams), Fraction()),
        )
        for engine, count in counts.items() if count > 1 or engine in long
    }  # fmt: skip


def stage_windows(stream: SensorStream, shared: Mapping[str, EngineLoad]) -> tuple[int, ...]:
    """Return the time within which each stage must end after the one before it, in ns; they add up to the deadline.

    Stages on an engine of their own take what they take. On shared engines the time of one frame of every stream is
    enough for all but the busiest engine, which gets the rest; where that leaves too little, the slack is divided by
    the times of the stages.

    >>> from nearpeak.core.edge.stream_rig import RigStage
    >>> stages = (RigStage(engine="h2d", time_ns=1), RigStage(engine="gpu", time_ns=4))
    >>> stream = SensorStream(name="a", period_ns=12, deadline_ns=12, stages=stages)
    >>> stage_windows(stream, {"gpu": EngineLoad(8, Fraction(1, 2))})
    (1, 11)
    >>> stage_windows(stream, {"gpu": EngineLoad(8, Fraction(1, 2)), "h2d": EngineLoad(3, Fraction(1, 4))})
    (3, 9)
    """
    weights = [stage.time_ns if stage.engine in shared else 0 for stage in stream.stages]
    if not any(weights):
        weights = [stage.time_ns or 1 for stage in stream.stages]
    else:
        busiest = max((place for place, weight in enumerate(weights) if weight),
                      key=lambda place: (shared[stream.stages[place].engine].share, -place))  # fmt: skip
        windows = [shared[stage.engine].frame_ns if weight else stage.time_ns
                   for stage, weight in zip(stream.stages, weights, strict=True)]  # fmt: skip
        windows[busiest] = stream.deadline_ns - sum(windows) + windows[busiest]
        if windows[busiest] >= 2 * stream.stages[busiest].time_ns:
            return tuple(windows)
    slack, whole = stream.deadline_ns - stream.time_ns, sum(weights)
    divided, done, assigned_ns = [], 0, 0
    for stage, weight in zip(stream.stages, weights, strict=True):
        done += weight
        upto = slack * done // whole
        divided.append(stage.time_ns + upto - assigned_ns)
        assigned_ns = upto
    return tuple(divided)
