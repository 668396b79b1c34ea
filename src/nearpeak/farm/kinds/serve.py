"""Job kind `serve`: what one service of a language model reaches under one load, or within limits."""

from collections.abc import Mapping
from typing import Any

from nearpeak.farm.kinds import Kind, Payload, need

_NUMBERS = {name: (int, type(None)) for name in ("concurrency", "input_tokens", "output_tokens", "tp", "seed")}
_REALS = {name: (int, float, type(None)) for name in ("rate_per_s", "ttft_s", "tpot_s", "usd_per_device_hour")}
_TEXTS = {name: (str, type(None)) for name in ("engine", "weights", "settings")}


def _check(payload: Payload) -> None:
    from nearpeak.core.systems.service_settings import settings_of
    from nearpeak.errors import SpecError
    from nearpeak.targets import target_of
    from nearpeak.targets.clusters import counted_devices

    need(payload, "serve", model=str, on=str, **_NUMBERS, **_REALS, **_TEXTS)
    target_of(counted_devices(payload["on"])[1])
    settings_of(payload.get("settings") or "")
    if not any(payload.get(name) for name in ("rate_per_s", "concurrency", "ttft_s", "tpot_s")):
        raise SpecError("serve: the payload has no load and no limit; give rate_per_s, concurrency, ttft_s or tpot_s")


def _run(payload: Payload) -> Mapping[str, Any]:
    from nearpeak.api.serving.service_plan import Fleet, plan_serving, weight_scheme
    from nearpeak.api.serving.service_question import ServiceQuestion
    from nearpeak.core.systems.service_settings import settings_of
    from nearpeak.core.systems.serving_layout import ServingLayout
    from nearpeak.systems.serving.latency_metrics import Limits
    from nearpeak.targets import target_of
    from nearpeak.targets.clusters import counted_devices

    count, target = counted_devices(payload["on"])
    layout = ServingLayout(tp=payload.get("tp") or 1, weight_format=weight_scheme(payload.get("weights") or "bf16"))
    fleet = Fleet(
        target=target_of(target), device_count=count or 1, layouts=(layout,) if payload.get("tp") else (), base=layout,
        usd_per_device_hour=payload.get("usd_per_device_hour"),
    )  # fmt: skip
    question = ServiceQuestion(
        engine=payload.get("engine") or "vllm_v1", rate_per_s=payload.get("rate_per_s") or 0.0,
        concurrency=payload.get("concurrency") or 0, input_tokens=payload.get("input_tokens") or 1024,
        output_tokens=payload.get("output_tokens") or 256, seeds=(payload.get("seed") or 0,),
        limits=Limits(ttft_s=payload.get("ttft_s"), tpot_s=payload.get("tpot_s")),
        settings=settings_of(payload.get("settings") or ""),
    )  # fmt: skip
    return plan_serving(payload["model"], fleet, question).record()


KIND = Kind(
    name="serve", pool="slot", check=_check, run=_run, preload=("nearpeak.api.serving.service_plan",),
    cost_s=lambda payload: 2.0 if payload.get("rate_per_s") or payload.get("concurrency") else 10.0,
)  # fmt: skip
