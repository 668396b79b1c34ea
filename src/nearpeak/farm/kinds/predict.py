"""Job kind `predict`: predicted time of one case on one device."""

from collections.abc import Mapping
from typing import Any

from nearpeak.farm.case_payload import case_in, check_target
from nearpeak.farm.kinds import Kind, Payload, need


def _check(payload: Payload) -> None:
    need(payload, "predict", case=dict, target=str)
    case_in(payload, "predict")
    check_target(payload["target"])


def _run(payload: Payload) -> Mapping[str, Any]:
    from nearpeak.api.achievable_time import predict

    prediction = predict(case_in(payload, "predict"), payload["target"])
    return {name: getattr(prediction, name) for name in ("bound_s", "time_s", "low_s", "high_s", "limiter")}


KIND = Kind(
    name="predict", pool="slot", check=_check, run=_run, preload=("nearpeak.farm.slot_preload:predictions",),
    cost_s=lambda _: 1e-3,
)  # fmt: skip
