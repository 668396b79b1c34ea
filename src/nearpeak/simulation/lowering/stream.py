"""Memory-streaming operators: bytes, rows, vector instructions and special functions of the least work."""

from collections.abc import Mapping
from dataclasses import replace

from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.prediction.kernel_model import CaseColumns, Setting, case_columns
from nearpeak.prediction.stream.stream_parts import BLOCK_BYTES, BLOCKS_PER_SM, SHARPNESS, resources
from nearpeak.prediction.work_columns import WorkColumns, work_columns
from nearpeak.simulation.engine.device_work import Kernel, Phase
from nearpeak.simulation.kernel_lowering import Lowering, ceilings, filling, ps


def _kernels(case: Case, target: Target, setting: Setting) -> tuple[Kernel, ...]:
    columns = case_columns(case)
    if target.dram.bandwidth_bytes_per_s is None:
        raise NotModelledError(f"{target.name}: states no memory bandwidth")
    work = work_columns(target, columns)
    coefficients = ceilings(case, target, "stream")
    count = max(int(work.launch_count[0]), 1)
    kernel = _kernel(columns, target, work, coefficients, count, hosted=setting.host_timed)
    return tuple(
        (kernel if place == 0 else replace(kernel, name=f"{kernel.name} {place + 1}")) for place in range(count)
    )


def _kernel(
    cases: CaseColumns, target: Target, work: WorkColumns, p: Mapping[str, float], count: int, *, hosted: bool
) -> Kernel:
    """Return one of the equal kernels that share the work."""
    needs = resources(target, cases, work, p)
    read_s, write_s, again_s = (float(time[0]) / count for time in needs[:3])
    aligned, bandwidth = float(needs.aligned_ratio[0]), target.dram.bandwidth_bytes_per_s or 1.0
    memory_s = ((read_s + again_s) / p["read_ratio"] + write_s / p["write_ratio"]) / aligned
    rows_s, vector_s, matrix_s = (float(time[0]) / count for time in needs[4:])
    moved = float(work.read_bytes[0] + work.write_bytes[0]) / count
    blocks = min(max(round(moved / BLOCK_BYTES), 1), BLOCKS_PER_SM * target.sm_count)
    each = max(1, -(-blocks // target.sm_count))
    alone = 1 if blocks >= target.sm_count else target.sm_count / blocks
    longest = max(memory_s, rows_s, vector_s, matrix_s)
    body = sum(time**SHARPNESS for time in (memory_s, rows_s, vector_s, matrix_s)) ** (1 / SHARPNESS)
    ramp = p["grid_ramp_s"] * min(1.0, moved / (BLOCK_BYTES * target.sm_count))
    passing = (read_s + again_s + write_s) * bandwidth / blocks
    phases = [
        Phase(fixed_ps=ps(p["launch_s"] + ramp + (p["host_gap_s"] if hosted else 0.0))),
        Phase(
            fixed_ps=ps(longest), pool_bytes={"dram": passing, "l2": passing + moved / blocks},
            pipe_s={
                "vector": p["vector_ratio"] * vector_s * alone / each,
                "tensor": p["tensor_ratio"] * matrix_s * alone / each,
            },
        ),
    ]  # fmt: skip
    rest = ps(body - longest) + max(0, ps(p["host_floor_s"] - p["host_gap_s"] - p["launch_s"] - body) if hosted else 0)
    phases += [Phase(fixed_ps=rest)] if rest else []
    return Kernel(name=cases.op, cta_count=blocks, phases=tuple(phases), needs=filling(target, BLOCKS_PER_SM))


LOWERING = Lowering(ops=(), kernels=_kernels)
