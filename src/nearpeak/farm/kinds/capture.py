"""Jobs that capture: the operators of a model's step, without its weights."""

from collections.abc import Mapping
from typing import Any

from nearpeak.errors import SpecError
from nearpeak.farm.kinds import Kind, Payload, need

_OPTIONS = ("batch", "sequence", "kv", "layers")


def _check(payload: Payload) -> None:
    from nearpeak.api import STEP_ALIASES, STEPS

    optional = dict.fromkeys(_OPTIONS, (int, type(None)))
    need(payload, "capture", source=str, step=(str, type(None)), dtype=(str, type(None)), **optional)
    step = payload.get("step") or "forward"
    if step not in (*STEPS, *STEP_ALIASES):
        raise SpecError(f"capture: step {step!r} is not one of {', '.join((*STEPS, *STEP_ALIASES))}")


def _run(payload: Payload) -> Mapping[str, Any]:
    from nearpeak.api import capture

    options = {name: payload[name] for name in (*_OPTIONS, "dtype") if payload.get(name) is not None}
    found = capture(payload["source"], step=payload.get("step") or "forward", **options)
    covered = [call for call in found.calls if call.case is not None]
    cases = {call.case.digest: call.case.record() for call in covered if call.case is not None}
    return {
        "name": found.name, "call_count": sum(call.call_count for call in found.calls),
        "covered_count": sum(call.call_count for call in covered), "cases": list(cases.values()),
    }  # fmt: skip


KIND = Kind(name="capture", pool="slot", check=_check, run=_run, limit_s=lambda _: 900.0, cost_s=lambda _: 5.0)
