"""Server of interleaved turns: a process with its packages loaded, which forks a child for its side of each round."""

import contextlib
import gc
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, cycle
from typing import Any

from nearpeak.base.isolation.fork_server import load, renew_threads
from nearpeak.base.isolation.process_limits import adopt_orphans, limit
from nearpeak.base.isolation.process_tree import descendants, end_all
from nearpeak.case_tensors.fresh_values import Varied
from nearpeak.core.runs.estimate import quantile
from nearpeak.core.runs.measurement import Environment, Measurement, Timing
from nearpeak.core.runs.runner_protocols import Prepared, Reading, Timer
from nearpeak.core.work.case import Case
from nearpeak.errors import NearpeakError
from nearpeak.exchange.measurement_lines import environment_record
from nearpeak.measurement.isolated_measurement import lock_of
from nearpeak.measurement.large_cases.sampled_check import judged_again
from nearpeak.measurement.outcomes import is_wrong
from nearpeak.measurement.runners import runner_of
from nearpeak.measurement.timed_runner import Inputs, TimedRunner
from nearpeak.measurement.timing.sampler import Change, batch_of, caching_suspicion, changing, no_time, without_result
from nearpeak.measurement.validation_gate import reason_unchecked
from nearpeak.ops import case_of

TURN_S = 0.005
"""Length of a turn: shorter than the machine's load stays constant, longer than a change of turns takes."""
LEAST_COUNT = 3
"""Least samples of a turn."""
JUDGED_TURNS = 6
"""First turns of a process, of which a random one has its outputs validated."""
MARK = '{"nearpeak_turn":1,'
"""Beginning of each answer, which distinguishes it from other output of a case."""
END = '{"end": 1}'
"""Line that ends a round."""
_SHARED = frozenset({"nearpeak", "numpy", "scipy", "torch", "onnx", "onnxruntime"})
"""Packages that a fork takes over as they are; what else a child has imported, each child imports anew."""
_PADS, _PAD_BYTES = 64, 8192
"""Most blocks of memory that a child takes before it prepares its case, and the size of the largest."""


def serve_rounds(preload: Sequence[str]) -> None:
    """Fork a child for each request on standard input, which takes the turns of one round; say how it ended.

    What the first child had to import, this process imports too, so that later rounds begin at once. Nothing of a case
    runs here: each child prepares it anew, in memory of its own at addresses of its own.
    """
    adopt_orphans()
    for module in preload:
        load(module)
    helpers = frozenset(process.pid for process in descendants(os.getpid()))
    gc.collect()
    gc.freeze()
    while line := sys.stdin.readline():
        if line.strip() == END:  # of a round that was given up before it began
            continue
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            _round(json.loads(line), write)
        os.close(write)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        end_all(lambda: [process for process in descendants(os.getpid()) if process.pid not in helpers])
        with os.fdopen(read, encoding="utf-8") as names:
            for name in names.read().split():
                load(name)
        say({"ended": code})


def _round(request: Mapping[str, Any], names: int) -> None:
    """Take the turns of one round in this process, say which shared packages it has loaded, and end."""
    try:
        limit(request["memory_bytes"])
        renew_threads()
        # Without this every round would find its tensors at the same addresses as the one before.
        draw = random.SystemRandom().randrange
        pads = [bytearray(draw(_PAD_BYTES)) for _ in range(draw(_PADS))]
        try:
            serve_turns(case_of(request["case"]), request["runner"], Timing(**request["timing"]), request["holds"])
        except NearpeakError as error:
            say({"error": type(error).__name__, "message": str(error)})
        del pads
        loaded = [name for name in sys.modules if name == "nearpeak" or name.startswith("nearpeak.") or name in _SHARED]
        os.set_blocking(names, False)
        with contextlib.suppress(OSError):
            os.write(names, "\n".join(loaded).encode())
        os._exit(0)  # all is put away, and taking frameworks down would cost each round as much as its turns
    finally:
        os._exit(1)


def serve_turns(case: Case, runner: str, timing: Timing, holds: bool) -> None:
    """Prepare `case`, report that it is ready, and take a turn for each line on standard input."""
    timed_runner = runner_of(runner, timing, "forked")
    assert isinstance(timed_runner, TimedRunner)  # other runners are refused before the process starts

    def use(case: Case, prepared: Prepared, timer: Timer, record: Any, inputs: Inputs) -> Measurement:
        row = timed_runner.row(case, prepared, timer, record)
        why = reason_unchecked(case, timed_runner.backend) if timing.validate and record is None else ""

        def verdict(seen: tuple[int, Mapping[str, Any]]) -> str:
            again, _ = judged_again(record, case, prepared, seen, inputs[seen[0]], runner=runner, why=why)
            return f"{again.status}: {again.reason}" if again is not None and is_wrong(again) else ""

        judges = verdict if record is not None or why else None
        varied = Varied(case, prepared, inputs)
        change = changing(prepared, varied) if varied.changes else None
        _turns(prepared, timer, timing, row.environment or Environment(device=""), (judges, change))
        return row

    row = timed_runner.with_ready(case, use, lock_of if holds else None)
    if row.method is None:
        say({"outcome": row.outcome.value, "note": row.note})


Verdict = Callable[[tuple[int, Mapping[str, Any]]], str]
How = tuple[Verdict | None, Change | None]
"""Function that validates a turn's outputs, and function that changes inputs before they are timed."""


def _turns(prepared: Prepared, timer: Timer, timing: Timing, environment: Environment, how: How) -> None:
    """Take turns; the outputs of a random early one are validated."""
    verdict, change = how
    runs, judged_turn = cycle(prepared.runs), random.SystemRandom().randrange(JUDGED_TURNS)
    for _ in range(2 * len(prepared.runs)):
        timer.read(next(runs), 1)
    call_count = batch_of(timer, runs, timing)
    repeated = caching_suspicion(timer, runs, call_count, change) if change is not None else ""
    clock = "cpu" if timer.mode == "host" and timing.thread_count == 1 else {"host": "wall"}.get(timer.mode, "device")
    say({"clock": clock, "environment": environment_record(environment), "pid": os.getpid()})
    for turn in count():
        if sys.stdin.readline().strip() in ("", END):
            return
        timer.read(next(runs), call_count)  # refills the caches that the other process has used
        readings, seen = _turn(runs, prepared, timer, timing, call_count, change)
        why = verdict(seen()) if verdict is not None and turn == judged_turn else ""
        times_s = sorted((reading.cpu_s if clock == "cpu" else reading.time_s) / call_count for reading in readings)
        none = repeated or no_time([reading.time_s / call_count for reading in readings], call_count, timer)
        time_s = quantile(times_s, 0.25)
        if time_s <= 0:
            none = none or "a quarter of the samples took no time by the CPU's clock"
        if why or none:
            say({"outcome": "incorrect" if why else "suspect_fast", "note": why or none})
        else:
            say({"time_s": time_s})


def _turn(
    runs: Iterator[Callable[[], object]],
    prepared: Prepared,
    timer: Timer,
    timing: Timing,
    call_count: int,
    change: Change | None,
) -> tuple[list[Reading], Callable[[], tuple[int, Mapping[str, Any]]]]:
    """Return the readings of one turn, and a function for number of inputs and outputs of the last one."""
    readings: list[Reading] = []
    end_s = time.monotonic() + TURN_S
    while True:
        run = next(runs)
        if change is not None:
            change(run)
        if timing.cache == "cold":
            timer.flush()
        reading = timer.read(run, call_count)
        readings.append(without_result(reading))
        if len(readings) >= LEAST_COUNT and time.monotonic() >= end_s:
            return readings, partial(_seen, prepared, run, reading.result)


def _seen(prepared: Prepared, run: Callable[[], object], result: Any) -> tuple[int, Mapping[str, Any]]:
    return prepared.runs.index(run), prepared.outputs(result)


def say(answer: Mapping[str, Any]) -> None:
    """Write one answer as a line of its own."""
    sys.stdout.write("\n" + MARK + json.dumps(answer)[1:] + "\n")
    sys.stdout.flush()
