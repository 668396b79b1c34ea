"""Job kind `plan`: step, memory and changes of one training plan on one cluster."""

from collections.abc import Mapping
from typing import Any

from nearpeak.errors import SpecError
from nearpeak.farm.kinds import Kind, Payload, need

_NUMBERS = {name: (int, type(None)) for name in ("sequence", "global_batch", "batch")}
_TEXTS = {name: (str, type(None)) for name in ("fabric", "parallel", "precision", "stack", "expert_load")}


def _check(payload: Payload) -> None:
    from nearpeak.targets.clusters import cluster_of

    need(payload, "plan", model=str, on=str, **_NUMBERS, **_TEXTS)
    cluster_of(payload["on"], payload.get("fabric") or "")


def _run(payload: Payload) -> Mapping[str, Any]:
    from nearpeak.api.training.captured_plan import is_captured, plan_captured
    from nearpeak.api.training.job_plan import plan_training, stated_plan
    from nearpeak.targets.clusters import cluster_of

    model, words = payload["model"], payload.get("parallel") or ""
    cluster = cluster_of(payload["on"], payload.get("fabric") or "")
    sequence, batch = payload.get("sequence") or 0, payload.get("global_batch") or 0
    precision, stack = payload.get("precision") or "", payload.get("stack") or ""
    load = payload.get("expert_load") or "balanced"
    if is_captured(model):
        if load != "balanced":
            raise SpecError(f"{model}: expert_load is for language models given by shape; a captured step takes none")
        return plan_captured(
            model, cluster, words, batch=payload.get("batch") or 0, global_batch=batch, sequence=sequence,
            precision=precision, stack=stack,
        ).record()  # fmt: skip
    stated: dict[str, Any] = {
        "stack": stack or "megatron-lm", "sequence": sequence or 4096,
        "precision": precision, "global_batch": batch or 8 * cluster.device_count, "expert_load": load,
    }  # fmt: skip
    plan = stated_plan(words, cluster, **stated) if words else None
    return plan_training(model, cluster, plan, **stated, with_edits=plan is None).record()


KIND = Kind(
    name="plan", pool="slot", check=_check, run=_run, preload=("nearpeak.api.training.job_plan",),
    cost_s=lambda payload: 0.5 if payload.get("parallel") else 10.0,
)  # fmt: skip
