"""Plans of training jobs for any captured model: replicas, stages, tiles and branches of one device's step."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from nearpeak.api.training.captured_search import captured_neighbours, searched_captured
from nearpeak.api.training.captured_time import CapturedStepTimes, fullest
from nearpeak.api.training.job_plan import fast_count, resolution
from nearpeak.api.training.training_time import TF32_NOTE, clock_notes, host_note, step_answer
from nearpeak.core.systems.fabric import Cluster
from nearpeak.core.systems.goodput import GoodputReport
from nearpeak.core.systems.stack import Stack
from nearpeak.core.systems.training_job import PlannedTraining
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import SpecError, UnknownNameError

STACK = "pytorch-eager"
"""Software stack of captured steps unless one is stated."""
_USUAL = {"ep": 1, "etp": 1, "sequence_parallel": False, "tp_overlap": False, "is_compiled": False}
"""Fields of a plan that need more than the step of one device."""
_WORDS = {"sequence_parallel": "sp", "is_compiled": "compiled"}
NOTES = (
    "Memory is the least at the peak of the step: each tensor lives from its first write to its last use; workspaces "
    "of libraries and what the allocator loses come on top.",
    "Running statistics that DistributedDataParallel broadcasts, and reading of the data, are not counted.",
)
"""What a plan of a captured step leaves out."""
_TILE_NOTE = (
    "Tiles of images: halos are exchanged before each convolution or pool and after its backward pass, hidden by "
    "nothing; batch norms sum their statistics over the tiles."
)
"""What a plan with tiles assumes."""
LEAST_WHOLE_RATIO = 0.005
"""Share of products that run whole on every tile from which a plan says so."""
_BRANCH_NOTE = (
    "Branches: the longest of each fork stays on the home rank, and both passes are placed alike. Kernels, host and "
    "collectives of the passes are the mean over the ranks of a replica; what they wait for each other and for "
    "transfers is branch idle."
)
"""What a plan with branches assumes."""
_RECOMPUTE_NOTE = (
    "Recomputation: each numbered block keeps its inputs and runs once more before its gradients, up to the last call "
    "that makes what a gradient reads, as torch.utils.checkpoint around each block does."
)
"""What a plan with recomputation assumes."""
_ITEMS = {"pixel_values": "images", "input_ids": "sequences"}
"""What a model's batch counts, by its first input."""


def is_captured(model: str) -> bool:
    """Return whether a plan of `model` takes its captured step: it is no transformer whose extents are known.

    Raises:
        UnknownNameError: no model of that name, with the nearest names.

    >>> is_captured("ResNet50"), is_captured("hf:resnet"), is_captured("llama-3-8b")
    (True, True, False)
    """
    from nearpeak.frontends.huggingface.published_models import MODELS
    from nearpeak.frontends.huggingface.transformer_models import known_name, shape_of
    from nearpeak.frontends.source_types import json_kind

    if json_kind(model) == "workload":
        return True
    try:
        shape_of(model)
    except UnknownNameError:
        return model.startswith("hf:") or (not model.endswith(".json") and known_name(model) in MODELS)
    except SpecError:
        return False
    return False


def plan_captured(
    model: str | Workload, cluster: Cluster, words: str, *, batch: int = 0, global_batch: int = 0, sequence: int = 0,
    precision: str = "", stack: str = "", usd_per_device_hour: float | None = None,
    goodput: GoodputReport | None = None,
) -> PlannedTraining:  # fmt: skip
    """Return step, speed, scaling, memory and changes of parallel training of a captured model.

    Args:
        model: a model's name, `hf:` and a model type, the path of a saved training step, or the step itself.
        words: the plan, `dp=8,sharding=fsdp`, `pp=4,dp=2`, `spatial=2x2,dp=2`, `branches=2,dp=4`; empty for a search.
        batch: items of the micro-batch of a replica; a saved step states its own.
        global_batch: items of a step on all devices; 0 for `batch` on each device, whatever the plan.
        sequence: tokens per sequence of models that read text; 0 for the model's own.
        precision: `fp32`, `tf32`, or `bf16` or `fp16` for autocast (the format of everything for `hf:`); empty for as
            captured.

    Raises:
        SpecError: no batch is given, no plan fits, or the step has no such stages, tiles or branches.
        NotModelledError: a call that no operator matches, or that cannot be split.
    """
    from nearpeak.core.systems.plan_words import training_plan_of
    from nearpeak.frontends.huggingface.transformer_models import known_name

    name = model.name if isinstance(model, Workload) else model
    step = model if isinstance(model, Workload) else _saved(model)
    if step is not None:
        batch = _own_batch(step, batch, sequence, precision)
    if not batch:
        raise SpecError(f"{name}: a captured step needs --batch, the items of a replica's micro-batch")
    plan = training_plan_of(
        words, cluster.device_count, sequence=1, global_batch=global_batch or batch * cluster.device_count,
        precision=precision or "fp32", defaults={"framework": "fsdp2", "micro_batch": batch},
    )  # fmt: skip
    if plan.sharding == "none" and plan.framework == "fsdp2":
        plan = replace(plan, framework="ddp")
    _check_plan(name, plan, batch)
    if step is None:
        step = _captured(str(model) if name.startswith("hf:") else known_name(name), batch, sequence, precision)
    return _planned(step, plan, cluster, stack or STACK, usd_per_device_hour, goodput, is_searched=not words,
                    is_batch_stated=bool(global_batch))  # fmt: skip


def _saved(model: str) -> Workload | None:
    """Return the saved step at a path, none for models that have yet to be captured."""
    from nearpeak.api.questions import capture_with
    from nearpeak.frontends.source_types import json_kind

    return capture_with(Path(model), CaptureOptions()) if json_kind(model) == "workload" else None


def _own_batch(step: Workload, batch: int, sequence: int, precision: str) -> int:
    """Return the batch of a step that is captured already, which options cannot change."""
    captured_batch = step.origin.get("batch", "")
    for option, value, was in (
        ("--batch", batch, captured_batch),
        ("--sequence", sequence, step.origin.get("sequence", "")),
    ):
        if value and was and str(value) != was:
            raise SpecError(f"{step.name}: {option} {value}, but the step was captured with {was}; leave it out")
    captured = step.origin.get("autocast") or step.origin.get("dtype", "")
    if precision and captured and precision != captured and (precision, captured) != ("tf32", "fp32"):
        raise SpecError(f"{step.name}: --precision {precision}, but the step was captured in {captured}; leave it out")
    return batch or (int(captured_batch) if captured_batch.isdigit() else 0)


def _captured(model: str, batch: int, sequence: int, precision: str) -> Workload:
    """Return the training step of a model on one device."""
    from nearpeak.api.questions import capture_with

    if precision not in ("", "fp32", "tf32", "bf16", "fp16"):
        raise SpecError(f"{model}: --precision {precision} is not captured; fp32, tf32, bf16 or fp16 would work")
    precision = "fp32" if precision == "tf32" else precision
    lowered = precision if precision in ("bf16", "fp16") and not model.startswith("hf:") else None
    options = CaptureOptions(
        step="train", batch=batch, sequence=sequence or None, autocast=lowered,
        dtype=None if lowered else precision or None,
    )  # fmt: skip
    return capture_with(model, options)


def _check_plan(name: str, plan: TrainingPlan, batch: int) -> None:
    """Refuse what needs more than the step of one device."""
    from nearpeak.systems.training.programs.workload_program import check_degrees
    from nearpeak.systems.training.schedules import plan_schedule, schedule_name

    would = "a captured step takes dp, pp, spatial and branches with sharding=none, zero1, fsdp or hsdp"
    for field, usual in _USUAL.items():
        if getattr(plan, field) != usual:
            raise SpecError(
                f"{name}: --parallel {_WORDS.get(field, field)} is planned for language models given by shape; {would}"
            )
    check_degrees(name, plan)
    if plan.recompute == "selective":
        raise SpecError(
            f"{name}: recompute=selective names no calls of a captured step; recompute=full checkpoints its blocks"
        )
    if schedule_name(plan.schedule) == "dualpipe":
        raise SpecError(
            f"{name}: schedule=dualpipe holds two copies of each stage, planned for language models given by shape; "
            "dualpipev, interleaved:2, 1f1b, gpipe, zb-h1 and zb-h2 run the stages of a captured step"
        )
    if plan.pp == 1 and plan.chunk_count > 1:
        raise SpecError(f"{name}: schedule={plan.schedule}:{plan.chunk_count} on one stage; state pp=2 or more")
    plan_schedule(plan)  # refuses what no schedule orders
    if plan.framework not in ("ddp", "fsdp2") or plan.sharding == "zero2":
        raise SpecError(f"{name}: framework={plan.framework} with sharding={plan.sharding} is not planned; {would}")
    if plan.micro_batch != batch:
        raise SpecError(f"{name}: micro={plan.micro_batch}, but the step has --batch {batch}; leave micro out")


def _planned(
    step: Workload, plan: TrainingPlan, cluster: Cluster, stack: str, price: float | None,
    goodput: GoodputReport | None, *, is_searched: bool, is_batch_stated: bool,
) -> PlannedTraining:  # fmt: skip
    """Return the answer for a captured step."""
    from nearpeak.systems.training.plan_search.neighbour_plans import describe_change, plan_edits
    from nearpeak.systems.training.stack_files import stack_of
    from nearpeak.targets import target_of

    used = stack_of(stack)
    times = CapturedStepTimes(step, cluster, used)
    plan = replace(plan, precision=_precision(step, plan, times.step.gradient_dtype))
    search = None
    if is_searched:
        search = searched_captured(plan, times, fast_count=fast_count(cluster), device_price_per_s=(price or 0) / 3600)
        plan = search.best.plan
    plan = times.placed(plan)
    memory, step_time = times.memory(plan), times.time(plan)
    item = next((item for key, item in _ITEMS.items() if step.origin.get("inputs", "").startswith(key)), "samples")
    answer = step_answer(
        step_time, plan, cluster, used, _notes(step, plan, times, used, "" if is_batch_stated else item)
    )
    others = captured_neighbours(plan, times, has_tf32="tensor.tf32" in target_of(cluster.target).peaks)
    edits = plan_edits(
        plan, others, step_time=lambda other: times.time(other).step_s,
        memory=lambda other: fullest(times.memory(other)), interval_ratio=resolution(answer),
    )  # fmt: skip
    change = ""
    if not fullest(memory).fits:
        near = next((edit.plan for edit in edits if edit.step_s is not None), None)
        change = describe_change(plan, near) if near else "a smaller --batch, if any"
    flop = _product_flop(step.calls) * plan.micro_batch_count * plan.dp / plan.rank_count
    alone = replace(
        plan, dp=1, pp=1, tp=1, cp=1, tile_row_count=1, tile_column_count=1, has_branches=False, stage_layer_count=(),
        global_batch=plan.global_batch // plan.dp, sharding="none", shard_count=0, schedule="1f1b", chunk_count=1,
        framework="ddp",
    )  # fmt: skip
    return PlannedTraining(
        model=step.name, target=cluster.target, device_count=cluster.device_count, fabric=cluster.fabric.name,
        # Convolutions and products of several formats have no common peak: no utilisation is stated.
        plan=plan, time=replace(answer, peak_flop_per_s=0.0, model_flop=flop),
        memory=memory, nearest_change=change, usd_per_device_hour=price, goodput=goodput, edits=edits, search=search,
        item=item,
        scaling_ratio=plan.dp * times.time(alone).step_s / step_time.step_s / plan.rank_count
        if plan.rank_count > 1 else None,
    )  # fmt: skip


def _notes(step: Workload, plan: TrainingPlan, times: CapturedStepTimes, used: Stack, item: str) -> tuple[str, ...]:
    """Return what an answer assumes.

    Args:
        item: what the batch counts where it is not stated; empty where it is.
    """
    notes = [host_note(used), *clock_notes(times.clock_ratio(plan)), *NOTES]
    notes += [_batch_note(plan, item)] if item else []
    notes += [_RECOMPUTE_NOTE] * (plan.recompute == "full") + [TF32_NOTE] * (plan.precision == "tf32")
    notes += [_BRANCH_NOTE] * plan.has_branches
    notes += _tile_notes(step, times.whole_calls(plan)) if plan.tile_row_count * plan.tile_column_count > 1 else []
    return tuple(notes)


def _batch_note(plan: TrainingPlan, item: str) -> str:
    """Return which batch was taken where none is stated."""
    return (
        f"Without --global-batch a step takes --batch on each device whatever the plan, {plan.global_batch:,} {item}: "
        f"{plan.micro_batch_count:,} micro-batch{'es' * (plan.micro_batch_count > 1)} of {plan.micro_batch:,} for each "
        f"of {plan.dp:,} replica{'s' * (plan.dp > 1)}."
    )


def _tile_notes(step: Workload, whole: Sequence[Call]) -> list[str]:
    """Return what a plan with tiles assumes, and which share of the products the tiles do not split."""
    share = _product_flop(whole) / (_product_flop(step.calls) or 1.0)
    if share < LEAST_WHOLE_RATIO:
        return [_TILE_NOTE]
    first = whole[0]
    return [
        _TILE_NOTE,
        f"{100 * share:.0f} % of the products run whole on every tile, behind a gather of the images, from "
        f"{first.case.op if first.case else first.operator} of {first.module or 'the model'} on: tiles split "
        "convolutions, pools, norms and pointwise calls alone; dp or pp would share the rest.",
    ]


def _precision(step: Workload, plan: TrainingPlan, written: str) -> str:
    """Return the format that a step computes in; TF32 where the plan rounds products of fp32.

    Raises:
        SpecError: TF32 for a step that does not compute in fp32.
    """
    stated = step.origin.get("autocast") or step.origin.get("dtype") or written
    computed = stated if stated in ("fp32", "fp16", "bf16") else "fp32"
    if plan.precision != "tf32":
        return computed
    if computed != "fp32":
        raise SpecError(f"{step.name}: --precision tf32 rounds products of fp32; the step was captured in {computed}")
    return "tf32"


def _product_flop(calls: Iterable[Call]) -> float:
    """Return the FLOP of the products and convolutions of some calls, the optimizer's left out."""
    from nearpeak.ops import work_of

    products = ("gemm", "grouped_gemm", "scaled_gemm", "conv", "attention", "varlen_attention")
    return float(sum(
        call.call_count * sum(work_of(call.case).flop.values())
        for call in calls if call.case is not None and call.case.op in products and call.phase != "optimizer"
    ))  # fmt: skip
