"""Job kind `plan`: step, memory and changes of one training plan on one cluster."""

from collections.abc import Mapping
from typing import Any

from nearpeak.farm.kinds import Kind, Payload, need

_NUMBERS = {"sequence": (int, type(None)), "global_batch": (int, type(None))}
_TEXTS = {name: (str, type(None)) for name in ("fabric", "parallel", "precision", "stack")}


def _check(payload: Payload) -> None:
    from nearpeak.targets.clusters import cluster_of

    need(payload, "plan", model=str, on=str, **_NUMBERS, **_TEXTS)
    cluster_of(payload["on"], payload.get("fabric") or "")


def _run(payload: Payload) -> Mapping[str, Any]:
    from nearpeak.api.training.job_plan import plan_training
    from nearpeak.core.systems.plan_words import training_plan_of
    from nearpeak.targets.clusters import cluster_of

    cluster = cluster_of(payload["on"], payload.get("fabric") or "")
    sequence, batch = payload.get("sequence") or 4096, payload.get("global_batch") or 8 * cluster.device_count
    precision, words = payload.get("precision") or "bf16", payload.get("parallel") or ""
    plan = None
    if words:
        plan = training_plan_of(words, cluster.device_count, sequence=sequence, global_batch=batch, precision=precision)
    return plan_training(
        payload["model"], cluster, plan, stack=payload.get("stack") or "megatron-lm", sequence=sequence,
        global_batch=batch, precision=precision, with_edits=plan is None,
    ).record()  # fmt: skip


KIND = Kind(
    name="plan", pool="slot", check=_check, run=_run, preload=("nearpeak.api.training.job_plan",),
    cost_s=lambda payload: 0.5 if payload.get("parallel") else 10.0,
)  # fmt: skip
