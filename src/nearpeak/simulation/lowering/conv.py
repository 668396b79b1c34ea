"""Convolutions: each pass as thread blocks of the algorithm that libraries would choose."""

from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import DTYPES
from nearpeak.core.work.target import Target
from nearpeak.prediction.conv.conv_shapes import Shape, shape_of
from nearpeak.prediction.conv.conv_tiles import Costs
from nearpeak.prediction.conv.pass_costs import SHARPNESS, clock_share, fastest, moved_elements, passes_of
from nearpeak.prediction.kernel_model import Setting, case_columns
from nearpeak.simulation.engine.device_work import Kernel, Phase
from nearpeak.simulation.kernel_lowering import Lowering, ceilings, filling, ps


def _kernels(case: Case, target: Target, setting: Setting) -> tuple[Kernel, ...]:
    """Return one kernel per pass, whose blocks represent the tiles of their multiprocessor."""
    columns = case_columns(case)
    coefficients = ceilings(case, target, "conv")
    shape = shape_of(columns.axes)
    return tuple(
        _kernel(dict(case.dtypes)["dtype"], target, shape, part, dict(coefficients), setting)
        for part in passes_of(columns)
    )


def _kernel(dtype: str, target: Target, shape: Shape, part: str, p: dict[str, float], setting: Setting) -> Kernel:
    """Return the kernel of one pass."""
    costs = Costs(*(float(cost[0]) for cost in fastest(target, dtype, shape, part, p)))
    moved = float(moved_elements(shape)[0]) * DTYPES[dtype].bits_count / 8
    bandwidth = target.dram.bandwidth_bytes_per_s or 1.0
    compute_s, memory_s = costs.compute_s, moved / (p["dram_ratio"] * bandwidth)
    longest = max(compute_s, memory_s)
    body = (compute_s**SHARPNESS + memory_s**SHARPNESS) ** (1 / SHARPNESS)
    full_s = p["launch_s"] + body + costs.split_k + costs.transforms
    pace = 1.0 + float(clock_share(full_s, p, setting))
    host_s = p["host_gap_s"] if setting.host_timed else 0.0
    phases = [
        Phase(fixed_ps=ps((p["launch_s"] + host_s) * pace)),
        Phase(
            fixed_ps=ps(longest * pace), pipe_s={"tensor": (costs.products + costs.products_ceiling) * pace},
            pool_bytes={"dram": moved / target.sm_count},
        ),
        Phase(fixed_ps=ps((body - longest + costs.split_k + costs.transforms) * pace)),
    ]  # fmt: skip
    least = ps(p["host_floor_s"]) if setting.host_timed else 0
    short = least - sum(phase.fixed_ps for phase in phases)
    if short > 0:
        phases.append(Phase(fixed_ps=short))
    return Kernel(name=f"conv {part}", cta_count=target.sm_count, phases=tuple(phases), needs=filling(target))


LOWERING = Lowering(ops=("conv",), kernels=_kernels, phases=("forward", "backward"))
