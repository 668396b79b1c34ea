"""Interleaved A/B runs: two processes take turns on one device in the order A B B A, so that drift cancels."""

import contextlib
import dataclasses
import json
import math
import os
import random
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any

from nearpeak.base.isolation.process_tree import descendants, end_started, marked_environment, new_mark
from nearpeak.case_tensors.fresh_values import Varied
from nearpeak.core.runs.estimate import quantile
from nearpeak.core.runs.measurement import Environment, Measurement, Timing
from nearpeak.core.runs.paired_rounds import Round
from nearpeak.core.runs.runner_protocols import Prepared, Reading, Timer
from nearpeak.core.work.case import Case
from nearpeak.errors import MeasureError, SpecError, error_type
from nearpeak.exchange.measurement_lines import environment_of, environment_record
from nearpeak.measurement.isolated_measurement import lock_of, memory_bytes, process_variables
from nearpeak.measurement.large_cases.sampled_check import judged_again
from nearpeak.measurement.outcomes import is_wrong
from nearpeak.measurement.runners import RUNNERS, runner_of
from nearpeak.measurement.timed_runner import Inputs, TimedRunner
from nearpeak.measurement.timing.sampler import Change, batch_of, caching_suspicion, changing, no_time, without_result
from nearpeak.measurement.validation_gate import reason_unchecked

TURN_S = 0.005
"""Length of a turn: shorter than the machine's load stays constant, longer than a change of turns takes."""
ROUND_S = 0.35
"""Length of a round of short calls."""
LEAST_FOURS = 6
"""Least groups of four turns in a round, however long the calls are."""
LEAST_COUNT = 3
"""Least samples of a turn."""
JUDGED_TURNS = 6
"""First turns of a process, of which a random one has its outputs validated."""
END_S = 3.0
"""Time after which a process that does not end is killed; users' programs get two seconds of it."""
MARK = '{"nearpeak_turn":1,'
"""Beginning of each answer, which distinguishes it from other output of a case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One side of a comparison."""

    runner: str
    """`name` or `name:argument`."""
    python: str = sys.executable
    """Interpreter, which may be that of another software stack."""


class Unready(Exception):  # noqa: N818  # an answer, not an error
    """One of the two processes cannot run the case."""

    def __init__(self, outcome: str, note: str) -> None:
        """Keep how it ended and why."""
        super().__init__(note)
        self.outcome, self.note = outcome, note


def rounds_of(case: Case, arms: tuple[Arm, Arm], timing: Timing) -> Iterator[tuple[Round, "Side", "Side"]]:
    """Yield rounds without end, each by a new pair of processes; the first pair validates its results.

    Raises:
        Unready: one of the two processes cannot run the case.
    """
    for arm in arms:
        made = RUNNERS[arm.runner.partition(":")[0]]
        if not hasattr(made, "prepare"):
            raise SpecError(f"compare: runner {arm.runner} only says times; a comparison needs something that runs")
    number = 0
    while True:
        with contextlib.ExitStack() as both:
            sides = [both.enter_context(_side(case, arm, timing, holds=not index)) for index, arm in enumerate(arms)]
            for side in sides:
                side.begin()
            if timing.thread_count == 1:
                _share_core(
                    [side.pid for side in sides], number + os.getpid()
                )  # concurrent comparisons use different cores
            yield _round(sides[0], sides[1], number), sides[0], sides[1]
        timing = dataclasses.replace(timing, validate=False)
        number += 1


def _round(baseline: "Side", candidate: "Side", number: int) -> Round:
    """Return one round; the first process alternates between groups of four turns and between rounds."""
    fours: list[float] = []
    sides, end_s = (baseline, candidate), time.monotonic() + ROUND_S
    while len(fours) < LEAST_FOURS or time.monotonic() < end_s:
        order = (0, 1, 1, 0) if (len(fours) + number) % 2 == 0 else (1, 0, 0, 1)
        times = [sides[side].turn_s() for side in order]
        fours.append(log_ratio(order, times))
    return Round(four_log_ratio=tuple(fours))


def _share_core(pids: list[int], number: int) -> None:
    """Pin both processes and their children to one core, a different one in each round.

    Without pinning, each stays on its own core, and other load there makes one of the two slower for the whole round:
    with ten runnable processes on two cores, rounds of the same work differed by 5 % (standard deviation), on one core
    by 0.5 %. Only one of the two runs at a time, so that they do not compete.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    for pid in pids:
        for process in (pid, *(child.pid for child in descendants(pid))):
            with contextlib.suppress(OSError):  # it may have ended meanwhile
                os.sched_setaffinity(process, {cores[number % len(cores)]})


def log_ratio(order: tuple[int, ...], times_s: list[float]) -> float:
    """Return the mean logarithm of the candidate's turns (1) minus that of the baseline's (0).

    A time that grows steadily by any factor per turn cancels.

    >>> abs(log_ratio((0, 1, 1, 0), [1.0, 1.1, 1.21, 1.331])) < 1e-12
    True
    """
    logs = [math.log(arm_index) for arm_index in times_s]
    mean = {
        arm: statistics.fmean(x for arm_index, x in zip(order, logs, strict=True) if arm_index == arm) for arm in (0, 1)
    }
    return mean[1] - mean[0]


class Side:
    """One of the two processes."""

    def __init__(self, process: "subprocess.Popen[bytes]", arm: Arm, timing: Timing) -> None:
        """Keep the process, which has received its case."""
        self._process, self._arm, self._timing = process, arm, timing
        self._pipe, self._read = process.stdout.fileno() if process.stdout else -1, b""
        self.clock, self.environment, self.pid = "", Environment(device=""), process.pid

    def begin(self) -> None:
        """Wait until the case is ready.

        Raises:
            Unready: it cannot run.
        """
        answer = self._answer()
        if "error" in answer:
            raise error_type(answer["error"], MeasureError)(answer["message"])
        if "outcome" in answer:
            raise Unready(answer["outcome"], f"{self._arm.runner}: {answer['note']}")
        self.clock, self.environment = answer["clock"], environment_of(answer["environment"])

    def turn_s(self) -> float:
        """Return the time of one call in a turn: the first quartile, as interference only ever adds."""
        self._write('{"turn": 1}')
        answer = self._answer()
        if "outcome" in answer:
            raise Unready(answer["outcome"], f"{self._arm.runner}: {answer['note']}")
        return float(answer["time_s"])

    def end(self) -> None:
        """End the process: it may clean up, and is killed when that takes too long."""
        assert self._process.stdin is not None  # both are pipes
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a process that has ended gives no answer either
            self._process.stdin.write(line.encode() + b"\n")  # type: ignore[union-attr]  # it is a pipe
            self._process.stdin.flush()  # type: ignore[union-attr]

    def _answer(self) -> Mapping[str, Any]:
        deadline_s = time.monotonic() + self._timing.limit_s
        while True:
            line, mark, rest = self._read.partition(b"\n")
            if mark:
                self._read = rest
                if line.startswith(MARK.encode()):
                    answer: Mapping[str, Any] = json.loads(line)
                    return answer
                continue
            if not select.select([self._pipe], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
                raise Unready("timeout", f"{self._arm.runner}: it did not answer within {self._timing.limit_s:g} s")
            part = os.read(self._pipe, 1 << 16)
            if not part:
                raise Unready("crash", f"{self._arm.runner}: its process ended with exit code {self._process.wait()}")
            self._read += part


@contextlib.contextmanager
def _side(case: Case, arm: Arm, timing: Timing, *, holds: bool) -> Iterator[Side]:
    """Start the process of one arm and send it its case.

    Args:
        holds: whether it locks the device while the two take turns.
    """
    request = {
        "case": case.record(), "runner": arm.runner, "timing": dataclasses.asdict(timing), "turns": True,
        "memory_bytes": memory_bytes(arm.runner, timing), "holds": holds,
    }  # fmt: skip
    mark = new_mark()
    process = subprocess.Popen(
        [arm.python, "-P", "-m", "nearpeak.measurement.measurement_process"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env=marked_environment(process_variables(timing.thread_count), mark),
    )  # fmt: skip
    side = Side(process, arm, timing)
    try:
        side._write(json.dumps(request))
        yield side
    finally:
        side.end()
        end_started(process, mark)


def serve_turns(case: Case, runner: str, timing: Timing, *, holds: bool) -> None:
    """Prepare `case`, report that it is ready, and take a turn for each line on standard input."""
    timed_runner = runner_of(runner, timing, "fresh")
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
    say({"clock": clock, "environment": environment_record(environment)})
    for turn, _ in enumerate(sys.stdin):
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
