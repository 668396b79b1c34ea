"""Job kind `measure`: measures one case on one device in its own process."""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from nearpeak.core.records.converter import one_of
from nearpeak.core.records.record_codec import Codec, Shape
from nearpeak.core.runs.measurement import Timing
from nearpeak.core.runs.runner_protocols import Backend
from nearpeak.errors import SpecError
from nearpeak.farm.kinds import Kind, Payload, case_in, need

START_S = 60.0
"""Time that a fresh process may take to import what it needs, beyond the limit of its case."""
USUAL_START_S = 5.0
"""Time that starting takes as a rule, for estimates of what a job costs before it ever ran."""


_TIMINGS = Codec(shapes={Timing: Shape(fields={"cache": one_of(("cold", "hot"))})}, strict=True)


def timing_in(payload: Payload) -> Timing:
    """Return how a payload wants to be timed.

    Raises:
        SpecError: an entry is not known, of the wrong type, or not positive.
    """
    options = payload.get("timing") or {}
    timing: Timing = _TIMINGS.value(options, Timing, "measure: timing")
    for name, value in options.items():
        if type(value) in (int, float) and not (math.isfinite(value) and value > 0):
            raise SpecError(f"measure: timing {name!r} is {value!r}; it must be more than 0")
    return timing


def _check(payload: Payload) -> None:
    from nearpeak.measurement.runners import factory_of

    more = dict.fromkeys(("arm", "branch"), (str, type(None)))
    need(payload, "measure", case=dict, runner=str, timing=(dict, type(None)), revision=(dict, type(None)), **more)
    case_in(payload, "measure")
    timing_in(payload)
    factory_of(payload["runner"])
    if payload.get("revision") is not None:
        revision_in(payload)


def revision_in(payload: Payload) -> Any:
    """Return the commit that a payload measures; none where it does not say."""
    from nearpeak.core.history.stored_run import Revision

    if payload.get("revision") is None:
        return None
    return Codec(strict=True).value(payload["revision"], Revision, "measure: 'revision' is no commit: revision")


def _run(payload: Payload) -> Mapping[str, Any]:
    from nearpeak.exchange.measurement_lines import environment_record, measurement_record
    from nearpeak.measurement.runners import runner_of
    from nearpeak.measurement.timed_runner import TimedRunner

    runner = runner_of(payload["runner"], timing_in(payload), "fresh")
    case = case_in(payload, "measure")
    measurement = runner.measure(case, _lock) if isinstance(runner, TimedRunner) else runner.measure(case)
    environment = environment_record(measurement.environment) if measurement.environment else None
    return {"measurement": measurement_record(measurement, ""), "environment": environment}


def _lock(backend: Backend) -> AbstractContextManager[None]:
    """Return the lock of the device, or nothing where whoever started this process holds it for it."""
    from nearpeak.farm.job_process import HELD
    from nearpeak.measurement.isolated_measurement import lock_of
    from nearpeak.measurement.machine.device_lock import lock_path

    return nullcontext() if str(lock_path(backend.environment())) in HELD else lock_of(backend)


def _memory_bytes(payload: Payload) -> int | None:
    from nearpeak.measurement.isolated_measurement import memory_bytes

    return memory_bytes(payload["runner"], timing_in(payload))


KIND = Kind(
    name="measure", pool="device", check=_check, run=_run, memory_bytes=_memory_bytes,
    limit_s=lambda payload: timing_in(payload).limit_s + START_S,
    cost_s=lambda payload: timing_in(payload).budget_s + USUAL_START_S,
)  # fmt: skip
