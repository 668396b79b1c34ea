"""Job kind `plan`: step, memory and changes of one training plan on one cluster."""

from collections.abc import Mapping
from typing import Any

from nearpeak.farm.kinds import Kind, Payload, need

_NUMBERS = {name: (int, type(None)) for name in ("sequence", "global_batch", "batch")}
_TEXTS = {name: (str, type(None)) for name in ("fabric", "parallel", "precision", "stack")}


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
    if is_captured(model):
        return plan_captured(
            model, cluster, words, batch=payload.get("batch") or 0, global_batch=batch, sequence=sequence,
            precision=precision, stack=stack,
        ).record()  # fmt: skip
    sequence, batch = sequence or 4096, batch or 8 * cluster.device_count
    precision, stack, plan = precision or "bf16", stack or "megatron-lm", None
    if words:
        plan = stated_plan(words, cluster, stack=stack, sequence=sequence, global_batch=batch, precision=precision)
    return plan_training(
        model, cluster, plan, stack=stack, sequence=sequence, global_batch=batch, precision=precision,
        with_edits=plan is None,
    ).record()  # fmt: skip


KIND = Kind(
    name="plan", pool="slot", check=_check, run=_run, preload=("nearpeak.api.training.job_plan",),
    cost_s=lambda payload: 0.5 if payload.get("parallel") else 10.0,
)  # fmt: skip
