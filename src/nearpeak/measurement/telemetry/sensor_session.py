"""A sampler during a run of cases: each measurement gets the sensor readings of its time window."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nearpeak.core.runs.measurement import TIMED, Measurement, Outcome
from nearpeak.core.runs.telemetry import Telemetry

Beside = Callable[[Measurement], Measurement]
_HELD_DOWN = frozenset(
    {
        "hardware slowdown",
        "software thermal slowdown",
        "hardware thermal slowdown",
        "hardware power brake",
        "processor hot",
        "socket hot",
        "voltage regulator hot",
        "memory hot",
    }
)
"""Throttle reasons that invalidate a measurement; a power cap is normal operation, and only reported."""


@contextmanager
def sampled_beside(rate_hz: float | None) -> Iterator[Beside]:
    """Yield the function that adds telemetry to a measurement that has just been taken; none is added without a rate.

    Raises:
        MeasureError: the sampler does not start.
    """
    if rate_hz is None:
        yield lambda measurement: measurement
        return
    from nearpeak.measurement.telemetry.sampler_client import Sampler

    with Sampler(rate_hz) as sampler:
        since_ns = time.monotonic_ns()

        def beside(measurement: Measurement) -> Measurement:
            nonlocal since_ns
            begin_ns = measurement.spans_ns[0][1] if measurement.spans_ns else since_ns
            end_ns = measurement.spans_ns[-1][2] if measurement.spans_ns else time.monotonic_ns()
            telemetry = sampler.window(begin_ns, end_ns, measurement.spans_ns)
            since_ns = time.monotonic_ns()
            sampler.forget(begin_ns)
            return with_telemetry(measurement, telemetry)

        yield beside


def with_telemetry(measurement: Measurement, telemetry: Telemetry) -> Measurement:
    """Return `measurement` with `telemetry`; as throttled where a device reports clocks reduced for heat or faults.

    >>> from nearpeak.core.work.case import Case
    >>> case = Case(op="fill", phase="forward", axes=(), dtypes=())
    >>> one = Measurement(case=case, target="gpu", runner="null", samples_s=(1.0,))
    >>> with_telemetry(one, Telemetry(begin_ns=0, end_ns=1, wall_ns=0, streams=())).outcome.value
    'budget'
    """
    measurement = dataclasses.replace(measurement, telemetry=telemetry)
    reasons = {name for _, names in telemetry.flags("samples") for name in names} & _HELD_DOWN
    if not reasons or measurement.outcome not in TIMED:
        return measurement
    note = f"the device held its clock down: {', '.join(sorted(reasons))}"
    return dataclasses.replace(measurement, outcome=Outcome.THROTTLED, note=note)
