"""Measurement of one case in this process: prepare, validate, time, and classify the outcome."""

import dataclasses
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from nearpeak.case_tensors.fresh_values import Varied
from nearpeak.case_tensors.random_inputs import drawn
from nearpeak.core.runs.measurement import Measurement, Method, Outcome, Timing  # fmt: skip
from nearpeak.core.runs.runner_protocols import Backend, Prepared, Timer
from nearpeak.core.work.case import Case
from nearpeak.errors import MissingExtraError, NotModelledError, SpecError
from nearpeak.measurement.large_cases.sampled_check import judged_again
from nearpeak.measurement.outcomes import first_line, is_wrong, outcome_of, outcome_of_record, unsupported_reason
from nearpeak.measurement.timing.clocks import cpu_throttle_count, throttled
from nearpeak.measurement.timing.sampler import Sampled, no_time, sample
from nearpeak.measurement.validation_gate import reason_unchecked, validated

LATE_RATIO, LATE_S = 0.05, 5e-5
"""Share of a sample, and time, for which a device may run after its end: synchronising takes some itself."""
HIDDEN_RATIO, HIDDEN_S = 1.25, 5e-6
"""Factor and time by which the recorded busy time of a call may exceed the shortest sample."""
SLOW_SAMPLES_RATIO = 0.3
"""Share of samples with a low clock above which a measurement counts as throttled; all samples are kept."""
Lock = Callable[[Backend], AbstractContextManager[object]]
Inputs = tuple[Mapping[str, Any], ...]
Use = Callable[[Case, Prepared, Timer, Any, Inputs], Measurement]
RECORDING = "nearpeak: asking the device for its own records"
"""Marker that a child process prints before a driver's library starts to record, after the samples."""


class TimedRunner:
    """A runner that times a backend with nearpeak's timers."""

    def __init__(self, backend: Backend, timing: Timing, *, argument: str = "", process: str = "caller") -> None:
        """Keep the backend and how it is timed.

        Args:
            process: how this process was started, as in `Method.process`.
        """
        self.name = f"{backend.name}:{argument}" if argument else backend.name
        self.target, self.abilities = backend.target, backend.abilities
        self.backend, self._timing, self._process = backend, timing, process

    def measure(self, case: Case, lock: Lock | None = None) -> Measurement:
        """Return the measurement of `case`; any failure becomes its outcome.

        Args:
            lock: held while samples are taken, so that nothing else runs on the device.
        """
        return self.with_ready(case, self._timed, lock)

    def with_ready(self, case: Case, use: Use, lock: Lock | None = None) -> Measurement:
        """Return the measurement that `use` takes of the prepared and validated case, or the outcome of a failure."""
        try:
            reason = unsupported_reason(self.backend, case) or self.backend.refusal(case)
        except SpecError as error:  # extents that contradict each other, which only the operator knows
            reason = first_line(error)
        if reason:
            return self._without_samples(case, Outcome.UNSUPPORTED, reason)
        try:
            return self._used(case, use, lock or (lambda _: nullcontext()))
        except MissingExtraError:
            raise
        except NotModelledError as error:
            return self._without_samples(case, Outcome.UNSUPPORTED, first_line(error))
        except MemoryError as error:
            return self._without_samples(case, Outcome.OOM, first_line(error))
        except Exception as error:
            return self._without_samples(case, outcome_of(error), first_line(error))

    def _used(self, case: Case, use: Use, lock: Lock) -> Measurement:
        begun_ns = time.monotonic_ns()
        timer = self.backend.timer()
        inputs = drawn(case, timer.set_count(case))
        prepared = self.backend.prepare(case, inputs)
        ready_ns = time.monotonic_ns()
        try:
            record = validated(case, self.backend, self.name, prepared.ledger) if self._timing.validate else None
            if is_wrong(record):
                return self.incorrect(case, record)
            spans = ("prepare", begun_ns, ready_ns), ("check", ready_ns, time.monotonic_ns())
            with lock(self.backend):
                measurement = use(case, prepared, timer, record, inputs)
            return dataclasses.replace(measurement, spans_ns=(*spans, *measurement.spans_ns))
        finally:
            if prepared.close is not None:
                prepared.close()

    def incorrect(self, case: Case, record: Any) -> Measurement:
        """Return the measurement, without times, of a case whose results are wrong, or that gave none to judge."""
        why = f"{record.status} in {', '.join(record.failed)}: {record.reason}"
        outcome = outcome_of_record(record)
        return dataclasses.replace(self._without_samples(case, outcome, why), validation=record)

    def _timed(self, case: Case, prepared: Prepared, timer: Timer, record: Any, inputs: Inputs) -> Measurement:
        throttle_count, before_s = cpu_throttle_count(), timer.clock_probe_s()
        why = reason_unchecked(case, self.backend) if self._timing.validate and record is None else ""
        varied = Varied(case, prepared, inputs)
        sampled = sample(prepared, timer, self._timing, keep=record is not None, last=bool(why), varied=varied)
        after_s, remark = timer.clock_probe_s(), ""
        if sampled.seen is not None:
            taken, timed_inputs = sampled.seen, inputs[sampled.seen[0]]
            record, remark = judged_again(record, case, prepared, taken, timed_inputs, runner=self.name, why=why)
            if is_wrong(record):
                return self.incorrect(case, record)
        bare = self.row(case, prepared, timer, record)
        if why := no_time(sampled.samples_s, sampled.call_count, timer):
            return dataclasses.replace(bare, outcome=Outcome.SUSPECT_FAST, note=why, spans_ns=sampled.spans_ns)
        outcome, note = _judged(sampled, timer, before_s, after_s, cpu_throttle_count() - throttle_count)
        asks = self._timing.recorded and timer.records_activity
        if asks and self._process != "caller":
            sys.stderr.write(f"{RECORDING}\n")  # the last line of a process tells why it crashed
            sys.stderr.flush()
        seen = timer.activity(prepared.runs[0]) if asks else None
        if seen is not None:
            algorithm = bare.algorithm or ", ".join(seen.kernels)
            bare = dataclasses.replace(bare, activity_s=seen.busy_s, algorithm=algorithm)
            least_s = min(sampled.samples_s)
            if seen.busy_s > HIDDEN_RATIO * least_s + HIDDEN_S:
                note = f"the device was busy for {seen.busy_s:.4g} s during one call, the timer saw {least_s:.4g} s"
                outcome = Outcome.SUSPECT_FAST
        return dataclasses.replace(
            bare, samples_s=sampled.samples_s, cpu_samples_s=sampled.cpu_samples_s,
            host_samples_s=sampled.host_samples_s, warmup_s=sampled.warmup_s, call_count=sampled.call_count,
            outcome=outcome, note="; ".join(filter(None, (note, remark))), clock_probes_s=(before_s, after_s),
            spans_ns=sampled.spans_ns,
        )  # fmt: skip

    def row(self, case: Case, prepared: Prepared, timer: Timer, record: Any) -> Measurement:
        """Return the measurement of a prepared case, without its samples."""
        return Measurement(
            case=case, target=self.target, runner=self.name, samples_s=(), timer_s=timer.resolution_s,
            method=self._method(timer), environment=self.backend.environment(), phases_s=prepared.phases_s,
            algorithm=prepared.algorithm, ledger=prepared.ledger, validation=record,
        )  # fmt: skip

    def _method(self, timer: Timer) -> Method:
        timing = self._timing
        flush = timer.flush_policy if timing.cache == "cold" else "none"
        return Method(
            timer=timer.name, mode=timer.mode, cache=timing.cache, flush=flush, process=self._process,
            thread_count=timing.thread_count, clock_policy=timer.clock_policy(),
        )  # fmt: skip

    def _without_samples(self, case: Case, outcome: Outcome, note: str) -> Measurement:
        return Measurement(
            case=case, target=self.target, runner=self.name, samples_s=(), outcome=outcome, note=note,
            environment=self.backend.environment(),
        )  # fmt: skip


def _judged(
    sampled: Sampled, timer: Timer, before_s: float, after_s: float, throttle_count: int
) -> tuple[Outcome, str]:
    """Return the outcome of samples, and a note."""
    if reason := _contradiction(sampled, timer):
        return Outcome.SUSPECT_FAST, reason
    if sampled.slow_ratio > SLOW_SAMPLES_RATIO:
        return Outcome.THROTTLED, f"the device's clock was low in {sampled.slow_ratio:.0%} of the samples"
    if throttle_count > 0:
        return Outcome.THROTTLED, f"the processor throttled {throttle_count} times"
    if throttled(before_s, after_s):
        return Outcome.THROTTLED, f"the clock fell to {before_s / after_s:.0%} between start and end"
    return sampled.outcome, ""


def _contradiction(sampled: Sampled, timer: Timer) -> str:
    """Return how the clocks contradict each other; empty when they do not."""
    if sampled.repeated:
        return sampled.repeated
    least_s = min(sampled.samples_s)
    if sampled.host_samples_s and any(
        device_s > host_s * 1.05 + timer.resolution_s
        for device_s, host_s in zip(sampled.samples_s, sampled.host_samples_s, strict=True)
    ):
        return "the device's time is longer than the host's; a timer is wrong"
    if sampled.late_s > LATE_RATIO * least_s * sampled.call_count + LATE_S + 2 * timer.late_floor_s:
        return f"the device went on for {sampled.late_s:.4g} s after the end of a sample: work on another stream"
    return ""
