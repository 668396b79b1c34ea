"""Plans of training jobs for any captured model: replicas of one device's step, their gradients and their memory."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from nearpeak.api.training.job_plan import CONTEXT_BYTES
from nearpeak.api.training.training_time import host_count, host_note, step_answer, transfer_durations
from nearpeak.core.systems.fabric import Cluster
from nearpeak.core.systems.goodput import GoodputReport
from nearpeak.core.systems.training_job import PlannedTraining
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.workload import Workload
from nearpeak.errors import SpecError, UnknownNameError

STACK = "pytorch-eager"
"""Software stack of captured steps unless one is stated."""
_USUAL = {
    "tp": 1, "cp": 1, "ep": 1, "etp": 1, "pp": 1, "chunk_count": 1, "schedule": "1f1b", "recompute": "none",
    "sequence_parallel": False, "tp_overlap": False, "is_compiled": False,
}  # fmt: skip
"""Fields of a plan that need more than the step of one device."""
_WORDS = {"chunk_count": "chunks", "sequence_parallel": "sp", "is_compiled": "compiled"}
NOTES = (
    "Memory is the least at the peak of the step: each tensor lives from its first write to its last use; workspaces "
    "of libraries and what the allocator loses come on top.",
    "Running statistics that DistributedDataParallel broadcasts, and reading of the data, are not counted.",
)
"""What a plan of a captured step leaves out."""
_ITEMS = {"pixel_values": "images", "input_ids": "sequences"}
"""What a model's batch counts, by its first input."""


def is_captured(model: str) -> bool:
    """Return whether a plan of `model` takes its captured step: it is no transformer whose extents are known.

    >>> is_captured("resnet-50"), is_captured("hf:resnet"), is_captured("llama-3-8b")
    (True, True, False)
    """
    from nearpeak.frontends.huggingface.published_models import MODELS
    from nearpeak.frontends.huggingface.transformer_models import shape_of
    from nearpeak.frontends.source_types import json_kind

    if json_kind(model) == "workload":
        return True
    try:
        shape_of(model)
    except UnknownNameError:
        return model in MODELS or model.startswith("hf:")
    except SpecError:
        return False
    return False


def plan_captured(
    model: str | Workload, cluster: Cluster, words: str, *, batch: int = 0, global_batch: int = 0, sequence: int = 0,
    precision: str = "", stack: str = "", usd_per_device_hour: float | None = None,
    goodput: GoodputReport | None = None,
) -> PlannedTraining:  # fmt: skip
    """Return step, speed, scaling and memory of data-parallel training of a captured model.

    Args:
        model: a model's name, `hf:` and a model type, the path of a saved training step, or the step itself.
        words: the plan, `dp=8,sharding=fsdp`.
        batch: items of one device's micro-batch; a saved step states its own.
        global_batch: items of a step on all devices; 0 for one micro-batch on each.
        sequence: tokens per sequence of models that read text; 0 for the model's own.
        precision: `fp32`, or `bf16` or `fp16` for autocast (the format of everything for `hf:`); empty for as captured.

    Raises:
        SpecError: no plan or batch is given, or the plan needs more than replicas.
        NotModelledError: a call that no operator matches.
    """
    from nearpeak.core.systems.plan_words import training_plan_of

    name = model.name if isinstance(model, Workload) else model
    if not words:
        raise SpecError(f"{name}: plans of captured models are not searched for; state one, e.g. --parallel dp=8")
    step = model if isinstance(model, Workload) else _saved(model)
    if step is not None:
        batch = _own_batch(step, batch, sequence, precision)
    if not batch:
        raise SpecError(f"{name}: a captured step needs --batch, the items of one device's micro-batch")
    plan = training_plan_of(
        words, cluster.device_count, sequence=1, global_batch=global_batch or batch * cluster.device_count,
        precision=precision or "fp32", defaults={"framework": "fsdp2", "micro_batch": batch},
    )  # fmt: skip
    if plan.sharding == "none" and plan.framework == "fsdp2":
        plan = replace(plan, framework="ddp")
    _check_plan(name, plan, batch)
    if step is None:
        step = _captured(str(model), batch, sequence, precision)
    return _planned(step, plan, cluster, stack or STACK, usd_per_device_hour, goodput)


def _saved(model: str) -> Workload | None:
    """Return the saved step at a path, none for models that have yet to be captured."""
    from nearpeak.api.questions import capture_with
    from nearpeak.frontends.source_types import json_kind

    return capture_with(Path(model), CaptureOptions()) if json_kind(model) == "workload" else None


def _own_batch(step: Workload, batch: int, sequence: int, precision: str) -> int:
    """Return the batch of a step that is captured already, which options cannot change."""
    own = step.origin.get("batch", "")
    for option, value, was in (("--batch", batch, own), ("--sequence", sequence, step.origin.get("sequence", ""))):
        if value and was and str(value) != was:
            raise SpecError(f"{step.name}: {option} {value}, but the step was captured with {was}; leave it out")
    captured = step.origin.get("autocast") or step.origin.get("dtype", "")
    if precision and captured and precision != captured:
        raise SpecError(f"{step.name}: --precision {precision}, but the step was captured in {captured}; leave it out")
    return batch or (int(own) if own.isdigit() else 0)


def _captured(model: str, batch: int, sequence: int, precision: str) -> Workload:
    """Return the training step of a model on one device."""
    from nearpeak.api.questions import capture_with

    if precision not in ("", "fp32", "bf16", "fp16"):
        raise SpecError(f"{model}: --precision {precision} is not captured; fp32, bf16 or fp16 would work")
    lowered = precision if precision in ("bf16", "fp16") and not model.startswith("hf:") else None
    options = CaptureOptions(
        step="train", batch=batch, sequence=sequence or None, autocast=lowered,
        dtype=None if lowered else precision or None,
    )  # fmt: skip
    return capture_with(model, options)


def _check_plan(name: str, plan: TrainingPlan, batch: int) -> None:
    """Refuse what needs more than replicas of one device's step."""
    would = f"a captured step takes dp={plan.rank_count} with sharding=none, zero1, fsdp or hsdp"
    for field, usual in _USUAL.items():
        if getattr(plan, field) != usual:
            raise SpecError(
                f"{name}: --parallel {_WORDS.get(field, field)} is planned for language models given by shape; {would}"
            )
    if plan.framework not in ("ddp", "fsdp2") or plan.sharding == "zero2":
        raise SpecError(f"{name}: framework={plan.framework} with sharding={plan.sharding} is not planned; {would}")
    if plan.micro_batch != batch:
        raise SpecError(f"{name}: micro={plan.micro_batch}, but the step has --batch {batch}; leave micro out")


def _planned(
    step: Workload, plan: TrainingPlan, cluster: Cluster, stack: str, price: float | None, goodput: GoodputReport | None
) -> PlannedTraining:
    """Return the answer for a captured step."""
    from nearpeak.api.device_durations import kernel_durations
    from nearpeak.systems.training.memory.workload_memory import workload_memory
    from nearpeak.systems.training.programs.captured_step import captured_step
    from nearpeak.systems.training.programs.data_parallelism import data_parallelism
    from nearpeak.systems.training.programs.workload_program import workload_programs
    from nearpeak.systems.training.rank_lanes import Times
    from nearpeak.systems.training.stack_files import stack_of
    from nearpeak.systems.training.training_step import StepTime, step_time
    from nearpeak.targets import target_of

    used, target = stack_of(stack), target_of(cluster.target)
    written = captured_step(step).gradient_dtype

    def timed(layout: TrainingPlan, hosts: int) -> StepTime:
        way = data_parallelism(replace(layout, precision=written if written in ("fp32", "fp16") else "bf16"))
        programs = workload_programs(step, layout, style=replace(way, gradient_dtype=written))
        times = Times(kernel_durations(target, used.attention), transfer_durations(layout, cluster), used)
        return step_time(programs, layout, times, host_count=hosts, has_spans=True)

    computed = step.origin.get("autocast") or step.origin.get("dtype") or written
    plan = replace(plan, precision=computed if computed in ("fp32", "fp16", "bf16") else "fp32")
    found = timed(plan, host_count(cluster))
    alone = replace(plan, dp=1, global_batch=plan.global_batch // plan.dp, sharding="none", shard_count=0)
    room: dict[str, Any] = {"device_bytes": target.dram.capacity_bytes, "context_bytes": CONTEXT_BYTES}
    memory = workload_memory(step, plan, **room)
    change = ""
    if not memory.fits:
        shared = workload_memory(step, replace(plan, sharding="fsdp", framework="fsdp2", shard_count=0), **room)
        change = f"sharding {plan.sharding} → fsdp" if shared.fits else "a smaller --batch, if any"
    answer = step_answer(found, plan, cluster, used, (host_note(used), *NOTES))
    return PlannedTraining(
        model=step.name, target=cluster.target, device_count=cluster.device_count, fabric=cluster.fabric.name,
        # Convolutions and products of several formats have no common peak: no utilisation is stated.
        plan=plan, time=replace(answer, peak_flop_per_s=0.0, model_flop=_model_flop(step) * plan.micro_batch_count),
        memory=(memory,), nearest_change=change, usd_per_device_hour=price, goodput=goodput,
        item=next((item for key, item in _ITEMS.items() if step.origin.get("inputs", "").startswith(key)), "samples"),
        scaling_ratio=timed(alone, 1).step_s / found.step_s if plan.dp > 1 else None,
    )  # fmt: skip


def _model_flop(step: Workload) -> float:
    """Return the FLOP of a step's products and convolutions, both passes."""
    from nearpeak.ops import work_of

    products = ("gemm", "grouped_gemm", "scaled_gemm", "conv", "attention", "varlen_attention")
    return float(sum(
        call.call_count * sum(work_of(call.case).flop.values())
        for call in step.calls if call.case is not None and call.case.op in products and call.phase != "optimizer"
    ))  # fmt: skip
