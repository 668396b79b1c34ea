"""Job kind `predict`: predicted time of one case on one device."""

from collections.abc import Mapping
from typing import Any

from nearpeak.farm.kinds import Kind, Payload, case_in, need


def _check(payload: Payload) -> None:
    from nearpeak.targets import target_of

    need(payload, "predict", case=dict, target=str)
    case_in(payload, "predict")
    target_of(payload["target"])


def preload() -> None:
    """Predict once, so that forked processes inherit imports and compiled code."""
    from nearpeak.api.achievable_time import predict
    from nearpeak.ops import case

    predict(case("gemm", m=128, n=128, k=128, dtype="bf16"), "h100_sxm")


def _run(payload: Payload) -> Mapping[str, Any]:
    from nearpeak.api.achievable_time import predict

    prediction = predict(case_in(payload, "predict"), payload["target"])
    return {name: getattr(prediction, name) for name in ("bound_s", "time_s", "low_s", "high_s", "limiter")}


KIND = Kind(
    name="predict", pool="slot", check=_check, run=_run, preload=("nearpeak.farm.kinds.predict:preload",),
    cost_s=lambda _: 1e-3,
)  # fmt: skip
