"""Time of training plans on clusters, from predicted kernels, collectives and host times."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from nearpeak.api.cluster_collectives import transfer_time
from nearpeak.api.device_durations import kernel_durations, sustained_clock_ratio
from nearpeak.core.systems.duration import Taken, TransferDuration
from nearpeak.core.systems.fabric import Cluster
from nearpeak.core.systems.mesh import Mesh
from nearpeak.core.systems.rank_program import RankProgram, Transfer
from nearpeak.core.systems.stack import Stack
from nearpeak.core.systems.training_answer import PART_NAMES, StepPart, TrainingAnswer
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.systems.training.training_step import StepTime

TAKEN_SM_COUNT = 16
"""Multiprocessors that a collective takes while it runs beside kernels: the channels of a ring, one block each.
Source: NCCL src/graph/tuning.cc and connect.cc (NVIDIA, BSD-3)."""
TOUCHED_COUNT = 3
"""Times that a rank touches its memory for each byte that it receives in a collective: a peer writes the byte into a
buffer, which is read, and the result is written (gathers) or the rank's own part is read (reductions). The buffers of
all channels, 4 MiB each, are beyond what caches keep.
Source: NCCL src/device/prims_simple.h, all_gather.h, reduce_scatter.h; src/init.cc, NCCL_BUFFSIZE (NVIDIA, BSD-3)."""
MOST_MEMORY_RATIO = 0.5
"""Share of the memory rate that a collective takes at most from a kernel beside it: memory serves both alike."""
BETWEEN_KERNELS = ("tp", "ep", "cp")
"""Dimensions for whose collectives a board waits between kernels of a pass."""
PEAK_UNITS = {
    "fp32": "vector.fp32", "tf32": "tensor.tf32", "fp16": "tensor.fp16", "bf16": "tensor.bf16",
    "fp8-delayed": "tensor.fp8", "fp8-current": "tensor.fp8", "fp8-row": "tensor.fp8", "fp8-block": "tensor.fp8",
    "mxfp8": "tensor.fp8", "nvfp4": "tensor.fp4",
}  # fmt: skip
"""Unit whose documented rate is the peak of a recipe's products."""
TF32_NOTE = (
    "Products in TF32 take what those of bf16 take on the same units, at the documented rate of TF32 and with operands "
    "twice as wide: no measurements of single ones are at hand. Their clock is that of bursts."
)
"""What a plan in TF32 rests on."""
_TRUST = {0: "measured", 1: "neighbours", 2: "neighbours"}
"""Provenance by steps from the measurements; the rest are assumptions."""
_DOCUMENTED_STEPS = 3
"""Steps from measurements of collectives: documents of the fabric, and protocols measured inside nodes."""


def training_time(
    model: TransformerShape | str, plan: TrainingPlan, cluster: Cluster, stack: Stack | str = "pytorch-eager", *,
    has_spans: bool = False, is_sustained: bool = True,
) -> TrainingAnswer:  # fmt: skip
    """Return what one training step of `plan` takes on `cluster`.

    Args:
        model: shape, or the name of a model or path of a config.json.
        stack: software stack, or its name.
        has_spans: whether the timeline of the pipeline is returned.
        is_sustained: whether kernels run at the clock that the board's power sustains over the step's mix, or as in
            bursts.

    Raises:
        SpecError: the plan does not fit the model or the cluster.
        NotModelledError: a kernel or collective without a model.

    >>> from nearpeak.targets.clusters import cluster_of
    >>> plan = TrainingPlan(tp=2, dp=4, micro_batch=1, global_batch=16, sequence=2048)
    >>> answer = training_time("llama-3-8b", plan, cluster_of("8xh100_sxm"))
    >>> answer.low_s <= answer.step_s <= answer.high_s
    True
    >>> abs(sum(part.time_s for part in answer.parts) / answer.step_s - 1) < 1e-9
    True
    """
    from nearpeak.frontends.huggingface.transformer_models import shape_of
    from nearpeak.systems.training.stack_files import stack_of
    from nearpeak.targets import target_of

    shape = shape_of(model) if isinstance(model, str) else model
    used = stack_of(stack) if isinstance(stack, str) else stack
    _, step, clock = clocked_step(shape, plan, cluster, used, has_spans=has_spans, is_sustained=is_sustained)
    if plan.expert_load != "balanced":  # the busiest rank runs more of the model than its share
        even = replace(plan, expert_load="balanced")
        step = replace(step, model_flop=clocked_step(shape, even, cluster, used, is_sustained=False)[1].model_flop)
    target = target_of(cluster.target)
    notes = (host_note(used), *clock_notes(clock), *_notes(shape, plan, target, used))
    return step_answer(step, plan, cluster, used, notes)


def clocked_step(
    shape: TransformerShape, plan: TrainingPlan, cluster: Cluster, stack: Stack, *, has_spans: bool = False,
    is_sustained: bool = True,
) -> "tuple[tuple[RankProgram, ...], StepTime, float]":  # fmt: skip
    """Return the rank programs of a plan, their step, and the clock of its kernels, of the highest.

    Raises:
        SpecError: the plan does not fit the model or the cluster.
    """
    from nearpeak.systems.training.rank_lanes import Times
    from nearpeak.systems.training.training_step import step_time
    from nearpeak.targets import target_of

    if plan.rank_count != cluster.device_count:
        raise SpecError(
            f"plan: tp {plan.tp} × cp {plan.cp} × dp {plan.dp} × pp {plan.pp} = {plan.rank_count} ranks, but the "
            f"cluster has {cluster.device_count} devices"
        )
    target, has_tf32 = target_of(cluster.target), plan.precision == "tf32"
    moves = transfer_durations(plan, cluster)
    programs = programs_of_plan(shape, plan, stack.fusions, stack.has_dropout)
    sends = (call.transfer for program in programs for call in program.forward if call.transfer)
    hop = next((transfer for transfer in sends if (transfer.kind, transfer.dim) == ("send", "pp")), None)

    def run(clock_ratio: float) -> "StepTime":
        kernels = kernel_durations(target, stack.attention, clock_ratio, has_tf32=has_tf32)
        return step_time(
            programs, plan, Times(kernels, moves, stack), hop_s=moves(hop).time_s if hop else 0.0,
            host_count=host_count(cluster), has_spans=has_spans,
        )  # fmt: skip

    step, clock = sustained_step(programs, plan, target, run) if is_sustained else (run(1.0), 1.0)
    return programs, step, clock


def sustained_step(
    programs: Sequence[RankProgram], plan: TrainingPlan, target: Target, run: "Callable[[float], StepTime]"
) -> "tuple[StepTime, float]":
    """Return a step at the clock that a board sustains over its passes, and that clock, of the highest.

    A step takes seconds or repeats for hours, so that the limit acts on the mean over all of its kernels. Launches and
    exposed collectives between them leave the board at rest; bubbles are too long to even out with the passes.

    Args:
        programs: those of one rank of each stage, chunk by chunk.
        run: gives the step at a clock; 1 for kernels as in bursts.
    """
    burst = run(1.0)
    if plan.precision == "tf32":  # nothing tells the energy of its products
        return burst, 1.0
    counts: dict[Case, float] = {}
    for program in programs:
        for call in program.micro_batch_calls():
            if call.case is not None:
                counts[call.case] = counts.get(call.case, 0.0) + call.count * plan.micro_batch_count / plan.pp
    rests = ("host", *(f"exposed {dim}" for dim in BETWEEN_KERNELS))
    idle_s = sum(max(burst.parts_s[name], 0.0) for name in rests)
    clock = sustained_clock_ratio(target, counts, idle_s)
    return (burst, 1.0) if clock >= 1 else (run(clock), clock)


def clock_notes(clock_ratio: float) -> tuple[str, ...]:
    """Return what an answer says about the clock of its kernels.

    >>> clock_notes(1.0), clock_notes(0.8)[0][:52]
    ((), 'Kernels run at up to 80 % of the highest clock, whic')
    """
    if clock_ratio >= 1:
        return ()
    return (
        f"Kernels run at up to {100 * clock_ratio:.0f} % of the highest clock, which the board's power limit sustains "
        "over the mix of the passes; bursts of single kernels are faster.",
    )


@lru_cache(maxsize=256)  # fits and searches ask for the same plans under other host times
def programs_of_plan(
    shape: TransformerShape, plan: TrainingPlan, fusions: str, has_dropout: bool
) -> tuple[RankProgram, ...]:  # fmt: skip
    """Return the rank programs of a plan with a stack's fused kernels."""
    from nearpeak.systems.training.programs.data_parallelism import data_parallelism
    from nearpeak.systems.training.programs.plan_layout import plan_layout
    from nearpeak.systems.training.programs.stage_program import rank_programs
    from nearpeak.systems.transformer.layout import FUSIONS

    if fusions not in FUSIONS:
        raise SpecError(f"stack: fusions {fusions!r} is not one of {', '.join(FUSIONS)}")
    layout = replace(plan_layout(shape, plan, has_dropout=has_dropout), fusions=FUSIONS[fusions])
    counts = plan.stage_layer_count or None
    if (plan.framework, plan.sharding) != ("fsdp2", "zero2"):
        return rank_programs(shape, plan, layer_counts=counts, layout=layout)
    sharded = replace(plan, sharding="fsdp")  # parameters stay gathered after the forward pass
    style = replace(data_parallelism(sharded), reshards=False)
    return rank_programs(shape, sharded, layer_counts=counts, layout=layout, style=style)


def host_count(cluster: Cluster) -> int:
    """Return the hosts of a cluster: instances of its innermost tier.

    >>> from nearpeak.targets.clusters import cluster_of
    >>> host_count(cluster_of("64xh100_sxm", "ib400"))
    8
    """
    size = cluster.fabric.tiers[0].device_count or cluster.device_count
    return -(-cluster.device_count // size)


def transfer_durations(plan: TrainingPlan, cluster: Cluster) -> Callable[[Transfer], TransferDuration]:
    """Return the function that gives the duration of a collective of `plan` on `cluster`."""
    from nearpeak.systems.collectives.traffic import ring_bytes
    from nearpeak.targets import target_of

    known: dict[Transfer, TransferDuration] = {}
    rate = target_of(cluster.target).dram.bandwidth_bytes_per_s

    def duration(transfer: Transfer) -> TransferDuration:
        known_time = known.get(transfer)
        if known_time is None:
            mesh = group_mesh(plan, transfer.dim)
            time, taken = transfer_time(transfer, mesh, cluster), Taken()
            if time.time_s:
                ranks = 2 if transfer.kind == "send" else mesh.degree(transfer.dim)
                touched_bytes = TOUCHED_COUNT * ring_bytes(transfer.kind, transfer.bytes, ranks)
                share = min(touched_bytes / time.time_s / rate, MOST_MEMORY_RATIO) if rate else 0.0
                taken = Taken(0 if transfer.kind == "send" else TAKEN_SM_COUNT, share)
            known_time = known[transfer] = TransferDuration(
                time.time_s, time.low_s, time.high_s, taken, _DOCUMENTED_STEPS, time.tier
            )
        return known_time

    return duration


def group_mesh(plan: TrainingPlan, dim: str) -> Mesh:
    """Return the mesh in which the groups of a dimension of rank programs are those of one mesh dimension.

    Ranks are in Megatron's order: tensor, context, data, pipeline. Gradients are reduced over context and data ranks
    together; experts are spread over tensor, context and data ranks.

    Raises:
        SpecError: no such dimension.

    >>> plan = TrainingPlan(tp=2, cp=2, dp=4, ep=8, micro_batch=1, global_batch=8, sequence=64)
    >>> group_mesh(plan, "dp").degree("dp"), group_mesh(plan, "edp").degree("edp")
    (8, 2)
    """
    if dim in ("tp", "cp", "pp"):
        return plan.mesh
    every = plan.tp * plan.cp * plan.dp
    if dim in ("ep", "edp", "etp"):
        return Mesh(
            dims=(("etp", plan.etp), ("ep", plan.ep), ("edp", every // (plan.ep * plan.etp)), ("pp", plan.pp))
        )  # fmt: skip
    replicas = plan.cp * plan.dp
    if dim == "dp":
        return Mesh(dims=(("tp", plan.tp), ("dp", replicas), ("pp", plan.pp)))
    if dim in ("dp_shard", "dp_replica"):
        shards = plan.shard_count or replicas
        return Mesh(
            dims=(("tp", plan.tp), ("dp_shard", shards), ("dp_replica", replicas // shards), ("pp", plan.pp))
        )  # fmt: skip
    raise SpecError(f"transfer: {dim!r} is no dimension of a training plan")


def host_note(stack: Stack) -> str:
    """Return whose host times an answer takes, and their source."""
    wider = "" if stack.is_confirmed else ", and no measured step has confirmed it, which widens the interval"
    return (
        f"Host times are those of stack {stack.name}, known to a factor of {stack.uncertainty_ratio:g}{wider}; "
        f"'nearpeak calibrate stack' fits them to a measured step. Source: {stack.source}."
    )


def _notes(shape: TransformerShape, plan: TrainingPlan, target: Target, stack: Stack) -> tuple[str, ...]:
    """Return what the answer for a transformer assumes beside host times, a sentence each."""
    from nearpeak.systems.training.attention_kernels import attention_share

    notes: list[str] = []
    chunk_count = plan.pp * plan.chunk_count
    if plan.precision == "tf32":
        notes.append(TF32_NOTE)
    if shape.layer_count % chunk_count and not plan.stage_layer_count:
        notes.append(
            f"{shape.layer_count} layers do not divide into {chunk_count} equal chunks: the first hold one more, which "
            "Megatron-LM takes only as an explicit layout."
        )
    if shape.experts and plan.expert_load == "balanced":
        notes.append("Experts are loaded evenly; real routing makes the busiest rank slower (--expert-load).")
    share = attention_share(stack.attention, target.architecture)
    if share:
        notes.append(f"Attention is held back to what {stack.attention} reaches: {share.source}.")
    return tuple(notes)


def step_answer(
    step: "StepTime", plan: TrainingPlan, cluster: Cluster, stack: Stack, notes: tuple[str, ...]
) -> TrainingAnswer:
    """Return the step as the answer to a question, with its interval, provenance, and that of its parts."""
    from nearpeak.systems.training.step_interval import step_interval
    from nearpeak.targets import target_of

    target = target_of(cluster.target)
    fixed_s = plan.micro_batch_count * stack.micro_batch_s + stack.step_s
    ends = {
        is_confirmed: step_interval(
            step.device, fixed_s, step.step_s, stack.uncertainty_ratio, is_confirmed=is_confirmed
        )
        for is_confirmed in {True, stack.is_confirmed}
    }
    low_s, high_s = ends[stack.is_confirmed]
    peak = target.peaks.get(PEAK_UNITS[plan.precision])
    provenance = _provenance(target, cluster, stack)
    return TrainingAnswer(
        step_s=step.step_s, low_s=low_s, high_s=high_s,
        resolved_ratio=(ends[True][1] - ends[True][0]) / (2 * step.step_s),
        token_count=plan.global_batch * plan.sequence, device_count=cluster.device_count, model_flop=step.model_flop,
        peak_flop_per_s=peak.flop_per_s if peak else 0.0,
        parts=tuple(StepPart(name, step.parts_s[name], provenance[name]) for name in PART_NAMES), stages=step.stages,
        spans=step.spans, trust=_trust(step), stack=stack.name, notes=notes,
    )  # fmt: skip


def _provenance(target: Target, cluster: Cluster, stack: Stack) -> dict[str, str]:
    """Return what each part of a step rests on."""
    kernels, moves = f"predicted kernels on {target.name}", f"documents of {cluster.fabric.name}"
    return {
        "proved bound": f"documents of {target.name}", "kernels below peak": kernels,
        "host": f"stack {stack.name}",
        **dict.fromkeys(("exposed tp", "exposed pp", "exposed dp", "exposed ep", "exposed cp"), moves),
        "bubble": "pipeline schedule of equal stages",
        "imbalance": "predicted times of the stages", "branch idle": "predicted times of the branches",
        "optimizer": kernels,
        "straggler": "spread of equal hosts, 1 % (39 H100 hosts)",
    }  # fmt: skip


def _trust(step: "StepTime") -> dict[str, float]:
    """Return the share of the step by provenance; host times, waits and collectives are assumptions."""
    shares = {"measured": 0.0, "neighbours": 0.0, "assumptions": 0.0}
    for steps, time_s in step.device.distances_s.items():
        shares[_TRUST.get(steps, "assumptions")] += time_s
    busy_s = sum(shares.values())
    share = min(busy_s / step.step_s, 1.0) if step.step_s else 0.0
    scaled = {name: time_s / busy_s * share if busy_s else 0.0 for name, time_s in shares.items()}
    return {**scaled, "assumptions": scaled["assumptions"] + 1.0 - sum(scaled.values())}
