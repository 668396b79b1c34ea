"""Chakra execution traces of a training plan, for network simulators such as ASTRA-sim and SimAI."""

from pathlib import Path

from nearpeak.api.device_durations import kernel_durations
from nearpeak.api.training.training_time import clocked_step, group_mesh
from nearpeak.core.systems.duration import WHOLE
from nearpeak.core.systems.fabric import Cluster
from nearpeak.core.systems.stack import Stack
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.errors import SpecError

DIMS = ("tp", "cp", "ep", "dp", "edp", "dp_shard", "dp_replica", "pp")
"""Dimensions of the collectives of rank programs."""


def write_chakra_traces(
    model: TransformerShape | str, plan: TrainingPlan, cluster: Cluster, folder: Path,
    stack: Stack | str = "pytorch-eager",
) -> tuple[Path, ...]:  # fmt: skip
    """Write a trace of one training step for every rank, with predicted kernels, and the file of groups.

    Kernels have durations, at the clock of the plan's step; collectives and messages between stages have sizes and
    groups, and a simulator times them.

    Args:
        folder: where `MODEL.RANK.et` and `MODEL.json` are written; it is created if needed.

    Raises:
        SpecError: the plan does not fit the model or the cluster.
    """
    from nearpeak.frontends.huggingface.transformer_models import shape_of
    from nearpeak.systems.training.chakra.trace_files import write_traces
    from nearpeak.systems.training.chakra.trace_nodes import TracePlan
    from nearpeak.systems.training.schedules import schedule_of
    from nearpeak.systems.training.stack_files import stack_of
    from nearpeak.targets import target_of

    if plan.rank_count != cluster.device_count:
        raise SpecError(f"traces: the plan has {plan.rank_count} ranks, the cluster {cluster.device_count} devices")
    shape = shape_of(model) if isinstance(model, str) else model
    used = stack_of(stack) if isinstance(stack, str) else stack
    programs, _, clock = clocked_step(shape, plan, cluster, used)
    places = {(program.chunk, program.stage): program for program in programs}
    ordered = [places[chunk, stage] for chunk in range(plan.chunk_count) for stage in range(plan.pp)]
    schedule = schedule_of(
        plan.schedule if plan.pp > 1 else "1f1b", plan.pp, plan.micro_batch_count, plan.chunk_count
    )  # fmt: skip
    target, has_tf32 = target_of(cluster.target), plan.precision == "tf32"
    durations = kernel_durations(target, used.attention, clock, has_tf32=has_tf32)
    sizes = {dim: group_mesh(plan, dim).degree(dim) for dim in DIMS}
    traced = TracePlan(schedule, ordered, lambda case: durations(case, WHOLE).time_s, sizes)
    return write_traces(folder, shape.name, traced, plan.mesh, lambda dim: group_mesh(plan, dim))
