"""Interleaved A/B runs: two processes take turns on one device in the order A B B A, so that drift cancels."""

import contextlib
import dataclasses
import json
import math
import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nearpeak.base.isolation.process_tree import descendants, end_started, marked_environment, new_mark
from nearpeak.core.runs.measurement import Environment, Timing
from nearpeak.core.runs.paired_rounds import Round
from nearpeak.core.work.case import Case
from nearpeak.errors import MeasureError, SpecError, error_type
from nearpeak.exchange.measurement_lines import environment_of
from nearpeak.measurement.isolated_measurement import memory_bytes, process_variables
from nearpeak.measurement.runners import abilities_of, factory_of
from nearpeak.measurement.timing.turn_server import END, MARK

ROUND_S = 0.35
"""Length of a round of short calls."""
LEAST_FOURS = 6
"""Least groups of four turns in a round, however long the calls are."""
END_S = 3.0
"""Time after which a process that does not end is killed; users' programs get two seconds of it."""


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

    Two servers start once, with the packages of both arms loaded, and fork the processes of each round. Where both arms
    are of one interpreter, the servers change arms from round to round: what one of them has of its own, such as where
    its code lies, is on either side as often.

    Raises:
        Unready: one of the two processes cannot run the case.
    """
    for arm in arms:
        made = factory_of(arm.runner)
        if not hasattr(made, "prepare"):
            raise SpecError(f"compare: runner {arm.runner} only says times; a comparison needs something that runs")
    number, preload = 0, _preloads(arms, timing)
    with contextlib.ExitStack() as both:
        servers = [both.enter_context(_server(arm.python, preload, timing)) for arm in arms]
        changes = arms[0].python == arms[1].python
        while True:
            sides = servers[::-1] if changes and number % 2 else servers
            for index, (side, arm) in enumerate(zip(sides, arms, strict=True)):
                side.ask(case, arm, timing, holds=not index)
            for side in sides:
                side.begin()
            if timing.thread_count == 1:
                _share_core(
                    [side.pid for side in sides], number + os.getpid()
                )  # concurrent comparisons use different cores
            round_ = _round(sides[0], sides[1], number)
            for side in sides:
                side.end_round()
            yield round_, sides[0], sides[1]
            timing = dataclasses.replace(timing, validate=False)
            number += 1


def _preloads(arms: tuple[Arm, Arm], timing: Timing) -> tuple[str, ...]:
    """Return what both servers load at once; what a user's function imports is known after the first round only."""
    needed = [
        name for arm in arms if not abilities_of(arm.runner).argument for name in abilities_of(arm.runner).preload
    ]
    return tuple(dict.fromkeys((*needed, *(("torch",) if timing.validate else ()))))


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
    """One of the two servers, and the process that it has forked for the present round."""

    def __init__(self, process: "subprocess.Popen[bytes]", timing: Timing) -> None:
        """Keep the server."""
        self._process, self._timing = process, timing
        self._pipe, self._read, self._runner = process.stdout.fileno() if process.stdout else -1, b"", ""
        self.clock, self.environment, self.pid = "", Environment(device=""), process.pid

    def ask(self, case: Case, arm: Arm, timing: Timing, *, holds: bool) -> None:
        """Send the case of the next round.

        Args:
            holds: whether the process locks the device while the two take turns.
        """
        self._runner = arm.runner
        request = {
            "case": case.record(), "runner": arm.runner, "timing": dataclasses.asdict(timing),
            "memory_bytes": memory_bytes(arm.runner, timing), "holds": holds,
        }  # fmt: skip
        self.write(json.dumps(request))

    def begin(self) -> None:
        """Wait until the case is ready.

        Raises:
            Unready: it cannot run.
        """
        answer = self._answer()
        if "error" in answer:
            raise error_type(answer["error"], MeasureError)(answer["message"])
        self.clock, self.environment = answer["clock"], environment_of(answer["environment"])
        self.pid = answer["pid"]

    def turn_s(self) -> float:
        """Return the time of one call in a turn: the first quartile, as interference only ever adds."""
        self.write('{"turn": 1}')
        return float(self._answer()["time_s"])

    def end_round(self) -> None:
        """End the process of this round, and wait until it has put everything away."""
        self.write(END)
        while "ended" not in self._said():
            pass

    def end(self) -> None:
        """End the server: its process may clean up, and is killed when that takes too long."""
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

    def write(self, line: str) -> None:
        """Send a line; a process that has ended takes none, and gives no answer either."""
        with contextlib.suppress(OSError):
            self._process.stdin.write(line.encode() + b"\n")  # type: ignore[union-attr]  # it is a pipe
            self._process.stdin.flush()  # type: ignore[union-attr]

    def _answer(self) -> Mapping[str, Any]:
        """Return the answer of the process of this round.

        Raises:
            Unready: it cannot run the case, or has ended.
        """
        answer = self._said()
        if "outcome" in answer:
            raise Unready(answer["outcome"], f"{self._runner}: {answer['note']}")
        if "ended" in answer:
            raise Unready("crash", f"{self._runner}: its process ended with exit code {answer['ended']}")
        return answer

    def _said(self) -> Mapping[str, Any]:
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
                raise Unready("timeout", f"{self._runner}: it did not answer within {self._timing.limit_s:g} s")
            part = os.read(self._pipe, 1 << 16)
            if not part:
                raise Unready("crash", f"{self._runner}: its process ended with exit code {self._process.wait()}")
            self._read += part


@contextlib.contextmanager
def _server(python: str, preload: tuple[str, ...], timing: Timing) -> Iterator[Side]:
    """Start a server that loads `preload` before it forks."""
    mark = new_mark()
    process = subprocess.Popen(
        [python, "-P", "-m", "nearpeak.measurement.measurement_process"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env=marked_environment(process_variables(timing.thread_count), mark),
    )  # fmt: skip
    side = Side(process, timing)
    try:
        side.write(json.dumps({"preload": preload}))
        yield side
    finally:
        side.end()
        end_started(process, mark)
