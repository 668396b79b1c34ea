"""Verdicts on small sensor rigs against brute force: every offset, tick by tick, with a simulator of its own.

Three families: one shared engine and any offsets (each verdict must be the right one), several engines and stated
offsets (likewise), several engines and any offsets (a proof or refutation must be right; the rest is undecided).
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from math import lcm

from benchmarks._figures import Figure
from nearpeak.core.edge.stream_answer import PROVED, REFUTED, UNDECIDED
from nearpeak.core.edge.stream_rig import Rig, RigStage, SensorStream
from nearpeak.systems.edge.engine_use import shared_engines, stage_windows
from nearpeak.systems.edge.schedulability import judge_streams, sliced

FIGURES = ("stream_rigs_differ", "stream_rigs_open", "stream_rigs_undecided")
PERIODS = (2, 3, 4, 6, 8, 12)
FAMILIES = ("one engine", "stated offsets", "several engines")


def random_rig(draw: random.Random, family: str) -> tuple[Rig, str]:
    """Return a small rig of a family and a schedule for it."""
    schedule = draw.choice(("streams", "edf", "slices"))
    count = draw.choice((2, 2, 3))
    largest = 12 if count == 2 else 6
    streams = []
    for place in range(count):
        period = draw.choice([value for value in PERIODS if value <= largest])
        engines = ["gpu"] if family == "one engine" else draw.sample(("h2d", "gpu", "cpu"), draw.choice((1, 2, 2, 3)))
        stages = tuple(RigStage(engine=engine, time_ns=draw.randint(1, max(1, 2 * period // 3 // len(engines))))
                       for engine in engines)  # fmt: skip
        deadline = period if draw.random() < 0.6 else draw.randint(max(period // 2, 1), period)
        offset = draw.randrange(period) if family == "stated offsets" else None
        streams.append(SensorStream(
            name=f"s{place}", period_ns=period, deadline_ns=deadline, stages=stages, offset_ns=offset
        ))  # fmt: skip
    rig = Rig(name="small", streams=tuple(streams))
    return (sliced(rig) if schedule == "slices" else rig), schedule


def brute_force(rig: Rig, schedule: str, named: Sequence[int] = ()) -> str:
    """Return the verdict by simulation of every tick for every combination of offsets below a period.

    Args:
        named: further offsets, of a counter-example: a stream may also start later than a period after another.
    """
    if rig.has_offsets:
        patterns: Iterator[tuple[int, ...]] = iter([tuple(stream.offset_ns or 0 for stream in rig.streams)])
    else:
        patterns = itertools.product(*(range(stream.period_ns) for stream in rig.streams))
        patterns = itertools.chain([tuple(named)] if named else [], patterns)
    return REFUTED if any(misses(rig, schedule, offsets) for offsets in patterns) else PROVED


def misses(rig: Rig, schedule: str, offsets: Sequence[int]) -> bool:
    """Return whether a frame is late, tick by tick: nothing in progress, then the first of the queue starts."""
    shared = shared_engines(rig.streams)
    due = [list(itertools.accumulate(stage_windows(stream, shared))) for stream in rig.streams]
    last = max(offsets) + 2 * lcm(*(stream.period_ns for stream in rig.streams)) + 24
    queue: dict[str, list[tuple[int, int, int, int, int]]] = {}
    busy: dict[str, list[int]] = {}
    for tick in range(last):
        ready = []
        for engine in list(busy):
            index, arrival, stage, part, left = busy[engine]
            busy[engine][4] = left - 1
            if left == 1:
                del busy[engine]
                is_cut = schedule != "streams" and part + 1 < rig.streams[index].stages[stage].slice_count
                ready.append((index, arrival, stage, part + 1) if is_cut else (index, arrival, stage + 1, 0))
        for index, stream in enumerate(rig.streams):
            if tick >= offsets[index] and (tick - offsets[index]) % stream.period_ns == 0:
                ready.append((index, tick, 0, 0))
        for index, arrival, stage, part in ready:
            if stage == len(rig.streams[index].stages):
                if tick > arrival + rig.streams[index].deadline_ns:
                    return True
                continue
            key = tick if schedule == "streams" else arrival + due[index][stage]
            queue.setdefault(rig.streams[index].stages[stage].engine, []).append((key, index, arrival, stage, part))
        for engine, waiting in queue.items():
            if engine not in busy and waiting:
                first = min(waiting)
                waiting.remove(first)
                _, index, arrival, stage, part = first
                whole = rig.streams[index].stages[stage]
                time = whole.time_ns if schedule == "streams" else whole.slices()[part]
                busy[engine] = [index, arrival, stage, part, time]
        waits = [(row[1], row[2]) for rows in queue.values() for row in rows]
        if any(tick > arrival + rig.streams[index].deadline_ns for index, arrival in waits):
            return True
    return False


def compare(count: int, seed: int = 0) -> dict[str, dict[str, int]]:
    """Return by family how often the verdicts agree, differ, or one is left open."""
    draw = random.Random(seed)
    tally = {family: {"agree": 0, "differ": 0, "open": 0} for family in FAMILIES}
    for place in range(count):
        family = FAMILIES[place % 3]
        rig, schedule = random_rig(draw, family)
        outcome = judge_streams(rig, schedule)
        verdict, truth = outcome.verdict, brute_force(rig, schedule, outcome.offsets_ns)
        tally[family]["open" if verdict == UNDECIDED else "agree" if verdict == truth else "differ"] += 1
    return tally


def measure(count: int = 10_000) -> Iterator[Figure]:
    """Yield how often the verdict on a small rig is another one than brute force's, and how often it is left open."""
    tally = compare(count)
    differ = sum(row["differ"] for row in tally.values())
    exact = sum(tally[family]["open"] for family in FAMILIES[:2])
    yield Figure(name="stream_rigs_differ", value=differ, unit=f"of {count:,} rigs", bar="0", passed=not differ, seed=0)
    yield Figure(
        name="stream_rigs_open", value=exact, unit="rigs whose test is exact", bar="0", passed=not exact, seed=0
    )
    yield Figure(
        name="stream_rigs_undecided", value=tally[FAMILIES[2]]["open"], seed=0, bar="", passed=True,
        unit="rigs of several shared engines",
    )  # fmt: skip
