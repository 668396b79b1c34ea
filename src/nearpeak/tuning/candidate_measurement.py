"""Measurement of one configuration in a child process: check, time single calls, stop as soon as it cannot win."""

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import cycle
from math import inf, isfinite
from typing import Any

from nearpeak.base.isolation import call_isolated
from nearpeak.core.runs.measurement import FAILURES, Measurement, Outcome, Timing
from nearpeak.core.runs.runner_protocols import Prepared, Timer
from nearpeak.core.tuning.space import Configuration, TuningSpace, settings_text
from nearpeak.core.tuning.study import FAILED, STOPPED, TIMED, WRONG, Trial
from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError
from nearpeak.exchange.measurement_lines import environment_record, measurement_record
from nearpeak.measurement.isolated_measurement import (
    lock_of,
    measurement_from,
    memory_bytes,
    request_of,
    thread_variables,
)
from nearpeak.measurement.large_cases.sampled_check import judged_again
from nearpeak.measurement.outcomes import is_wrong
from nearpeak.measurement.runners import abilities_of, runner_of
from nearpeak.measurement.timed_runner import Inputs, TimedRunner
from nearpeak.measurement.timing.sampler import batch_of, no_time
from nearpeak.measurement.validation_gate import reason_unchecked, validated
from nearpeak.ops import case_of, label_of
from nearpeak.tuning.staged_stop import is_slow, stop_reason

_FAULTS = {*map(Outcome, FAILURES), Outcome.UNSUPPORTED, Outcome.SUSPECT_FAST, Outcome.BELOW_BOUND, Outcome.THROTTLED}
"""Outcomes by which a configuration has no time that may win."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedKernel:
    """What is tuned: a function with parameters, the case that it computes, and how it is run."""

    space: TuningSpace
    """Its configurations."""
    case: Case
    """The case that is timed."""
    runner: str
    """Runner with the function, without a configuration: `callable:kernels.py:softmax`."""
    checks: tuple[Case, ...] = ()
    """Smaller cases on which every configuration is validated before it is timed; without any, the case itself."""
    timing: Timing = Timing()
    """How single calls are timed."""

    def runner_of(self, configuration: Configuration) -> str:
        """Return the runner of one configuration, by which other commands run it too."""
        return f"{self.runner}[{settings_text(self.space.named(configuration))}]"


def measure_candidate(kernel: TunedKernel, configuration: Configuration, best_s: float) -> Trial:
    """Return the trial of a configuration, run by a child process that ends with it.

    Args:
        best_s: best time until now, beyond which sampling stops early; infinite where there is none.

    Raises:
        NearpeakError: the function cannot be imported, or the device was not to be had: no configuration is at fault.
    """
    begun_s, runner = time.monotonic(), kernel.runner_of(configuration)
    request = request_of(kernel.case, runner, kernel.timing)
    request |= {"checks": [check.record() for check in kernel.checks], "best_s": best_s if isfinite(best_s) else None}
    limit = memory_bytes(runner, kernel.timing)
    ending = call_isolated(
        f"{__name__}:answer_to", {"request": request}, timeout_s=kernel.timing.limit_s, memory_bytes=limit,
        preload=(*dict.fromkeys((*abilities_of(runner).preload, "torch")), __name__, _WARM_UP),
        variables=thread_variables(kernel.timing.thread_count),
    )  # fmt: skip
    measurement = measurement_from(ending, kernel.case, runner, kernel.timing)
    if measurement.outcome == Outcome.INFRA:
        raise SpecError(f"tune: {measurement.note}")
    trial = trial_of(measurement, kernel.space.named(configuration), best_s)
    return replace(trial, spent_s=time.monotonic() - begun_s)


_WARM_UP = "nearpeak.measurement.timing.warm_up:warm_up"


def trial_of(measurement: Measurement, settings: Mapping[str, Any], best_s: float) -> Trial:
    """Return what a measurement says of a configuration: wrong and failed ones have no time, whatever was sampled."""
    note = " ".join(measurement.note.split())
    if measurement.outcome == Outcome.INCORRECT:
        return Trial(position=0, settings=settings, outcome=WRONG, note=note)
    if measurement.outcome in _FAULTS or not measurement.has_times:
        how = FAILURES.get(measurement.outcome.value, measurement.outcome.value)
        return Trial(position=0, settings=settings, outcome=FAILED, note=f"{how}: {note}" if note else how)
    return Trial(
        position=0, settings=settings, outcome=STOPPED if is_slow(measurement.samples_s, best_s) else TIMED,
        time_s=statistics.median(measurement.samples_s),
        samples_s=measurement.samples_s, note=note,
    )  # fmt: skip


def answer_to(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the measurement of a configuration, taken in this process, as plain data."""
    timing = Timing(**request["timing"])
    checks = [case_of(record) for record in request["checks"] if timing.validate]
    runner = runner_of(request["runner"], replace(timing, validate=timing.validate and not checks), "forked")
    if not isinstance(runner, TimedRunner):
        raise SpecError(f"tune: runner {request['runner']} only says times; tuning needs something that runs")
    measurement = _checked(runner, checks) or _timed(
        runner, case_of(request["case"]), request["best_s"], timing, checks
    )
    environment = environment_record(measurement.environment) if measurement.environment else None
    return {"measurement": measurement_record(measurement, ""), "environment": environment}


def _checked(runner: TimedRunner, checks: list[Case]) -> Measurement | None:
    """Return the measurement of a wrong configuration; none of one that is right on all smaller cases."""
    for case in checks:

        def check(case: Case, prepared: Prepared, *_: Any) -> Measurement:
            record = validated(case, runner.backend, runner.name, prepared.ledger)
            if is_wrong(record):
                return runner.incorrect(case, record)
            return Measurement(case=case, target=runner.target, runner=runner.name, samples_s=(1.0,))

        measurement = runner.with_ready(case, check, lock_of)
        if not measurement.samples_s:
            return replace(measurement, note=f"on {label_of(case)}: {measurement.note}")
    return None


def _timed(runner: TimedRunner, case: Case, best_s: float | None, timing: Timing, checks: list[Case]) -> Measurement:
    """Return the measurement of single calls until their number suffices for the rank, outputs of the last checked."""

    def use(case: Case, prepared: Prepared, timer: Timer, record: Any, inputs: Inputs) -> Measurement:
        best, runs = inf if best_s is None else best_s, cycle(prepared.runs)
        # A call in advance pays for lazy compilation and first touches, which no later call does.
        for _ in prepared.runs:
            timer.read(next(runs), 1)
        count, samples, reason = batch_of(timer, runs, timing), list[float](), None
        run, reading = prepared.runs[0], None
        while reason is None:
            run = next(runs)
            if timing.cache == "cold":
                timer.flush()
            reading = timer.read(run, count)
            # As elsewhere, the CPU time of a single thread: other load lengthens it least.
            is_cpu = timer.mode == "host" and timing.thread_count == 1 and reading.cpu_s > 0
            samples.append((reading.cpu_s if is_cpu else reading.time_s) / count)
            reason = stop_reason(samples, best)
        assert reading is not None  # the loop runs once at least
        why = "validated on smaller cases" if checks else reason_unchecked(case, runner.backend)
        number = prepared.runs.index(run)
        seen = number, {name: array.copy() for name, array in prepared.outputs(reading.result).items()}
        if timing.validate:
            record, _ = judged_again(record, case, prepared, seen, inputs[number], runner=runner.name, why=why)
        if is_wrong(record):
            return runner.incorrect(case, record)
        row = runner.row(case, prepared, timer, record)
        if fault := no_time(samples, count, timer):
            return replace(row, outcome=Outcome.SUSPECT_FAST, note=fault)
        return replace(row, samples_s=tuple(samples), call_count=count, outcome=Outcome.CONVERGED, note=reason or "")

    return runner.with_ready(case, use, lock_of)
