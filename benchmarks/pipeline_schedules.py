"""Ops of pipeline schedules per second: generated, ordered and executed, as plain Python."""

import time
from collections.abc import Callable, Iterator

from benchmarks._figures import Figure
from nearpeak.systems.training.pipeline_executor import StageTimes, pipeline_step
from nearpeak.systems.training.pipeline_order import ordered
from nearpeak.systems.training.schedules import schedule_of

FIGURES = ("schedule_generation_rate", "schedule_order_rate", "schedule_execution_rate")
RANKS, BATCHES, CHUNKS, REPEATS = 8, 256, 4, 5


def measure() -> Iterator[Figure]:
    """Yield the rates for an interleaved schedule of 8 ranks, 256 micro-batches and 4 chunks per rank."""
    schedule = schedule_of("interleaved", RANKS, BATCHES, CHUNKS)
    times = StageTimes.equal(RANKS * CHUNKS, 0.25, 0.5)
    parts: tuple[tuple[str, int, Callable[[], object]], ...] = (
        ("generation", 400_000, lambda: schedule_of.__wrapped__("interleaved", RANKS, BATCHES, CHUNKS)),
        ("order", 200_000, lambda: ordered.__wrapped__(schedule)),
        ("execution", 400_000, lambda: pipeline_step(schedule, times, 0.01)),
    )
    for name, least, call in parts:
        best_s = min(_seconds(call) for _ in range(REPEATS))
        rate = schedule.op_count / best_s
        yield Figure(name=f"schedule_{name}_rate", value=rate, unit="ops/s", bar=f">= {least:,}", passed=rate >= least)


def _seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start
