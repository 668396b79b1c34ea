"""Measurement of one case in a child process; a crash, timeout or memory exhaustion becomes its outcome."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from nearpeak.base.isolation import Ending, call_isolated, memory_kills
from nearpeak.base.isolation.process_tree import end_started, marked_environment, new_mark
from nearpeak.core.runs.measurement import Measurement, Outcome, Timing
from nearpeak.core.runs.runner_protocols import Backend
from nearpeak.core.work.case import Case
from nearpeak.errors import MeasureError, NearpeakError, error_type
from nearpeak.exchange.measurement_lines import environment_of, environment_record, measurement_of, measurement_record
from nearpeak.measurement.exception_details import exception_log, last_lines
from nearpeak.measurement.machine.device_lock import device_lock
from nearpeak.ops import case_of
from nearpeak.units import show

_DEVICES_WITHOUT_LIMIT = ("cuda",)
"""Device types whose driver maps more address space than there is memory."""
_GRACE_S = 5.0
"""Seconds that the process gets beyond the limit of its case."""


def measure_isolated(case: Case, runner: str, timing: Timing) -> Measurement:
    """Return the measurement of `case` by a child forked from a warmed process that has never run a case."""
    from nearpeak.measurement.runners import abilities_of, factory_of

    checks = ("torch",) if timing.validate and hasattr(factory_of(runner), "prepare") else ()
    preloads = tuple(dict.fromkeys((*abilities_of(runner).preload, *checks)))
    ending = call_isolated(
        "nearpeak.measurement.isolated_measurement:answer_to",
        {"request": request_of(case, runner, timing), "process": "forked"},
        timeout_s=timing.limit_s,
        memory_bytes=memory_bytes(runner, timing),
        preload=(*preloads, __name__, "nearpeak.measurement.timing.warm_up:warm_up"),
        variables=thread_variables(timing.thread_count),
    )
    return measurement_from(ending, case, runner, timing)


def request_of(case: Case, runner: str, timing: Timing) -> dict[str, Any]:
    """Return the request to a measuring process, as plain data."""
    return {"case": case.record(), "runner": runner, "timing": dataclasses.asdict(timing)}


def answer_to(request: Mapping[str, Any], process: str) -> dict[str, Any]:
    """Return the measurement of a request, taken in this process, as plain data."""
    measurement = take(case_of(request["case"]), request["runner"], Timing(**request["timing"]), process)
    environment = environment_record(measurement.environment) if measurement.environment else None
    return {"measurement": measurement_record(measurement, ""), "environment": environment}


def measurement_in(answer: Mapping[str, Any]) -> Measurement:
    """Return the measurement in a process's answer."""
    environment = environment_of(answer["environment"]) if answer["environment"] else None
    known = {environment.digest: environment} if environment else {}
    return measurement_of(answer["measurement"], known, "launch")


def take(case: Case, runner: str, timing: Timing, process: str) -> Measurement:
    """Return the measurement of `case` in this process, with the device locked while samples are taken."""
    from nearpeak.measurement.runners import runner_of
    from nearpeak.measurement.timed_runner import TimedRunner

    runner_object = runner_of(runner, timing, process)
    with exception_log() as log:
        row = (
            runner_object.measure(case, lock_of)
            if isinstance(runner_object, TimedRunner)
            else runner_object.measure(case)
        )
    return row if row.samples_s else dataclasses.replace(row, details=log.details(row.note))


def lock_of(backend: Backend) -> AbstractContextManager[None]:
    """Return the lock of the device that `backend` runs on."""
    return device_lock(backend.environment())


def thread_variables(thread_count: int) -> Mapping[str, str]:
    """Return the environment variables that set the thread count of libraries.

    >>> thread_variables(1)["OMP_NUM_THREADS"]
    '1'
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    return dict.fromkeys(names, str(thread_count))


def process_variables(thread_count: int) -> Mapping[str, str]:
    """Return the environment of a fresh process: this one's, with its module path and thread count."""
    path = os.pathsep.join(filter(None, sys.path))
    return {**os.environ, **thread_variables(thread_count), "PYTHONPATH": path}


def measurement_from(ending: Ending, case: Case, runner: str, timing: Timing) -> Measurement:
    """Return the measurement of a process, or a row with the outcome of a process that failed.

    Raises:
        NearpeakError: the process refused: a missing package, an unknown runner.
    """
    if ending.verdict == "result":
        return measurement_in(ending.value)
    if ending.verdict == "error":
        kind, message = ending.value
        raise error_type(kind, MeasureError)(message)
    outcome, note = _ending(ending, timing, memory_bytes(runner, timing))
    from nearpeak.measurement.runners import factory_of

    target = getattr(factory_of(runner), "target", "")
    output = ending.value[1] if ending.verdict == "raised" else ""
    details = last_lines("\n".join(filter(None, (output, ending.output))))
    return Measurement(
        case=case, target=target, runner=runner, samples_s=(), outcome=outcome, note=note, details=details
    )


def _ending(ending: Ending, timing: Timing, limit_bytes: int | None) -> tuple[Outcome, str]:
    if ending.verdict == "timeout":
        note, added = f"it did not end within {timing.limit_s:g} s (--limit)", ending.value
        if limit_bytes and isinstance(added, int) and added >= limit_bytes / 2:
            note += f"; it had added {show(added, 'B')} of memory by then, of the {show(limit_bytes, 'B')} of --memory"
        return Outcome.TIMEOUT, note
    if ending.verdict == "raised":
        kind, message = ending.value
        return Outcome.OOM if kind == "MemoryError" else Outcome.FAILED, f"{kind}: {message}".splitlines()[0][:300]
    lines = ending.output.strip().splitlines()
    last = f"; its last output: {lines[-1][:200]}" if lines else ""
    if not ending.signal_name and ending.verdict != "memory":
        return Outcome.CRASH, f"it ended its process with exit code {ending.value}{last}"
    killed, name = ending.signal_name == "SIGKILL", ending.signal_name or "SIGKILL"
    if ending.verdict == "memory" or "bad_alloc" in ending.output:
        return Outcome.OOM, f"{name}: it was killed for the memory that it took{last}"
    how = "it was killed, and not by the system for its memory" if killed else "it crashed its process"
    return Outcome.CRASH, f"{name}: {how}{last}"


def memory_bytes(runner: str, timing: Timing) -> int | None:
    """Return the memory that a process of `runner` may allocate; none where its driver maps more than there is."""
    from nearpeak.measurement.runners import abilities_of

    return None if set(abilities_of(runner).devices) & set(_DEVICES_WITHOUT_LIMIT) else timing.memory_bytes


def measure_fresh(case: Case, runner: str, timing: Timing, python: str = sys.executable) -> Measurement:
    """Return the measurement of `case` by a new process, started and ended for it alone.

    Args:
        python: interpreter, which may be that of another software stack.

    Raises:
        NearpeakError: the process refused: a missing package, an unknown runner.
    """
    request = {**request_of(case, runner, timing), "memory_bytes": memory_bytes(runner, timing)}
    kills = memory_kills()
    ended = _launched(
        [python, "-P", "-m", "nearpeak.measurement.measurement_process"], json.dumps(request) + "\n", timing
    )
    if ended is None:
        return measurement_from(Ending(verdict="timeout", value=None), case, runner, timing)
    code, output, errors_said = ended
    # The case may print as well: the answer is the last line that begins as one.
    lines = reversed(output.splitlines())
    answer: Any = next((json.loads(line) for line in lines if line.startswith('{"nearpeak_turn":')), None)
    if answer is None:
        verdict = "memory" if code == -signal.SIGKILL and memory_kills() > kills else "died"
        return measurement_from(Ending(verdict=verdict, value=code, output=errors_said), case, runner, timing)
    if "error" in answer:
        raise error_type(answer["error"], NearpeakError)(answer["message"])
    return measurement_in(answer)


def _launched(words: list[str], request: str, timing: Timing) -> tuple[int, str, str] | None:
    """Return exit code, output and errors of a process, none when it timed out; its children end with it."""
    mark = new_mark()
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
        errors="replace",
        env=marked_environment(process_variables(timing.thread_count), mark), start_new_session=True,
    )  # fmt: skip
    try:
        output, errors_text = process.communicate(request, timeout=timing.limit_s + _GRACE_S)
    except subprocess.TimeoutExpired:
        return None
    finally:
        end_started(process, mark)
    return process.returncode, output, errors_text
