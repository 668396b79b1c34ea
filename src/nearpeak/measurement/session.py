"""A run over many cases: each in its own process, each result stored before the next case starts."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from nearpeak.core.runs.measurement import Measurement, Outcome, Timing
from nearpeak.core.work.case import Case
from nearpeak.exchange.measurement_lines import key_of
from nearpeak.measurement.isolated_measurement import measure_fresh, measure_isolated
from nearpeak.measurement.result_file import ResultFile, result_file
from nearpeak.measurement.runners import factory_of, runner_of
from nearpeak.measurement.telemetry.sensor_session import sampled_beside
from nearpeak.measurement.timed_runner import RECORDING

Take = Callable[[Case, str, Timing], Measurement]
Judge = Callable[[Measurement], Measurement]


def run_cases(
    cases: Iterable[Case], runner: str, timing: Timing, out: Path | None = None, *, fresh: bool = False,
    judge: Judge = lambda measurement: measurement, launch_count: int = 1, telemetry_hz: float | None = None,
) -> Iterator[Measurement]:  # fmt: skip
    """Yield the measurement of each case, once it is stored in `out`; cases that `out` already holds do not run again.

    Args:
        fresh: start a process per case instead of forking a warmed one.
        judge: function applied to a measurement before it is stored.
        launch_count: fresh processes that measure each case, in as many rounds over all cases: the process is the unit
            of repetition, as samples of one share its memory layout.
        telemetry_hz: sensor readings per second during the cases; none starts no sampler.
    """
    anew = fresh or launch_count > 1
    each = tuple(dict.fromkeys(cases))
    wanted = [(case, launch) for launch in range(1, launch_count + 1) for case in each]
    with sampled_beside(telemetry_hz) as beside:
        take = _take(runner, lambda measurement: judge(beside(measurement)), fresh=anew)
        if out is None:
            for case, launch in wanted:
                yield _numbered(take(case, runner, timing), launch)
            return
        with result_file(out) as file:
            yield from _stored(wanted, runner, timing, (file, take, "fresh" if anew else "forked"))


def _stored(
    wanted: Iterable[tuple[Case, int]], runner: str, timing: Timing, how: tuple[ResultFile, Take, str]
) -> Iterator[Measurement]:
    file, take, process = how
    method = {"cache": timing.cache, "thread_count": timing.thread_count, "process": process}
    for case, launch in wanted:
        key = key_of(case, runner, method if launch == 1 else {**method, "launch": launch})
        if key in file.keys:
            continue
        measurement = _numbered(take(case, runner, timing), launch)
        file.append(measurement, key)
        yield measurement


def _numbered(measurement: Measurement, launch: int) -> Measurement:
    return measurement if launch == 1 else dataclasses.replace(measurement, launch=launch)


def _take(runner: str, judge: Judge, *, fresh: bool) -> Take:
    """Return the function that measures a case: in a child process, or here for runners that only report times."""
    made = factory_of(runner)
    isolated: Take = _spared(measure_fresh if fresh else measure_isolated)

    def take(case: Case, runner: str, timing: Timing) -> Measurement:
        return judge(isolated(case, runner, timing))

    def ask(case: Case, runner: str, timing: Timing) -> Measurement:
        return judge(runner_of(runner, timing).measure(case))

    return take if hasattr(made, "prepare") else ask


def _spared(isolated: Take) -> Take:
    """Return `isolated` with a retry for crashes while the device's own records are read.

    A driver's library returns these records after the samples. A case that crashed there is measured again without
    records, as are all later ones; a crash before that is an ordinary crash.
    """
    crashed = ""

    def take(case: Case, runner: str, timing: Timing) -> Measurement:
        nonlocal crashed
        case_timing = dataclasses.replace(timing, recorded=timing.recorded and not crashed)
        measurement = isolated(case, runner, case_timing)
        if measurement.outcome == Outcome.CRASH and RECORDING in measurement.details:
            again = isolated(case, runner, dataclasses.replace(timing, recorded=False))
            crashed, measurement = (measurement.note, again) if again.samples_s else ("", measurement)
        remark = (
            f"without the device's own records, which crash here ({crashed})"
            if crashed and measurement.samples_s
            else ""
        )
        return (
            dataclasses.replace(measurement, note="; ".join(filter(None, (measurement.note, remark))))
            if remark
            else measurement
        )

    return take
