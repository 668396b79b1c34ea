"""Job kind `capture`: captures the operators of a model's step without loading its weights."""

from collections.abc import Mapping
from typing import Any

from nearpeak.core.work.capture_options import COUNTS, CaptureOptions
from nearpeak.farm.kinds import Kind, Payload, need


def _check(payload: Payload) -> None:
    optional = dict.fromkeys(COUNTS, (int, type(None)))
    need(payload, "capture", source=str, step=(str, type(None)), dtype=(str, type(None)), **optional)
    _options_of(payload)


def _options_of(payload: Payload) -> CaptureOptions:
    stated = (name for name in (*COUNTS, "dtype", "step") if payload.get(name) not in (None, ""))
    return CaptureOptions(**{name: payload[name] for name in stated})


def _run(payload: Payload) -> Mapping[str, Any]:
    from nearpeak.api.questions import capture_with

    workload = capture_with(payload["source"], _options_of(payload))
    covered = [call for call in workload.calls if call.case is not None]
    cases = {call.case.digest: call.case.record() for call in covered if call.case is not None}
    return {
        "name": workload.name, "call_count": sum(call.call_count for call in workload.calls),
        "covered_count": sum(call.call_count for call in covered), "cases": list(cases.values()),
    }  # fmt: skip


KIND = Kind(name="capture", pool="slot", check=_check, run=_run, limit_s=lambda _: 900.0, cost_s=lambda _: 5.0)
