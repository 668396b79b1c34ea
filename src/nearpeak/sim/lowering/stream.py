"""Whatever streams through memory: bytes, vector instructions and special functions of the least work of a case."""

from collections.abc import Mapping
from dataclasses import replace

from nearpeak.core.case import Case
from nearpeak.core.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.ops import work_of
from nearpeak.predict._form import CaseColumns, Setting
from nearpeak.predict._work_columns import WorkColumns, work_columns
from nearpeak.sim.lowering._lowering import Lowering, ceilings, filling, ps
from nearpeak.sim.work import Kernel, Phase
from nearpeak.theory.rates import vector_rate

_BLOCK_BYTES = 8192
"""Bytes that one thread block of an element-wise kernel moves."""
_BLOCKS_PER_SM = 8
"""Thread blocks of 256 threads that one multiprocessor of 2048 holds."""


def _kernels(case: Case, target: Target, _setting: Setting) -> tuple[Kernel, ...]:
    columns = CaseColumns(
        op=case.op, phase=case.phase, dtypes=dict(case.dtypes), axes=dict(case.axes), attributes=dict(case.attributes)
    )
    if target.dram.bandwidth_bytes_per_s is None:
        raise NotModelledError(f"{target.name}: states no memory bandwidth")
    if any(work_of(case).comm_bytes.values()):
        raise NotModelledError(f"simulate: no lowering of {case.op}: one device is simulated, not what it is linked to")
    work = work_columns(target, columns)
    scalars, _ = ceilings(case, target, "stream")
    count = max(int(work.launch_count[0]), 1)
    kernel = _kernel(case.op, target, work, scalars, count)
    return tuple(_named(kernel, place) for place in range(count))


def _named(kernel: Kernel, place: int) -> Kernel:
    return kernel if place == 0 else replace(kernel, name=f"{kernel.name} {place + 1}")


def _kernel(name: str, target: Target, work: WorkColumns, p: Mapping[str, float], count: int) -> Kernel:
    """Return one of the equal kernels that share the work."""
    read, write = float(work.read_bytes[0]) / count, float(work.write_bytes[0]) / count
    kept = p["write_residency_ratio"] * (target.l2.capacity_bytes or 0)
    write = max(write - kept, 0.0)
    bandwidth = target.dram.bandwidth_bytes_per_s or 1.0
    memory_s = read / (p["read_ratio"] * bandwidth) + write / (p["write_ratio"] * bandwidth)
    flop = float(work.vector_flop[0] + p["special_flop_count"] * work.special_count[0]) / count
    vector_s = flop / (p["vector_ratio"] * vector_rate(target, "fp32")[1])
    matrix_s = float(work.matrix_s[0]) / p["tensor_ratio"] / count
    rows = float(work.group_count[0]) / count
    row_s = p["row_s"] + float(work.group_bytes[0]) / (p["row_bytes_per_clock"] * target.clock_hz)
    rows_s = max(rows / target.sm_count, 1.0) * row_s if rows else 0.0
    blocks = min(max(round((read + write) / _BLOCK_BYTES), 1), _BLOCKS_PER_SM * target.sm_count)
    each = max(1, -(-blocks // target.sm_count))
    ramp = p["grid_ramp_s"] * min(1.0, (read + write) / (_BLOCK_BYTES * target.sm_count))
    alone = 1 if blocks >= target.sm_count else target.sm_count / blocks
    phases = (
        Phase(fixed_ps=ps(p["launch_s"] + ramp)),
        Phase(
            fixed_ps=ps(max(memory_s, rows_s)),
            pipe_s={"vector": vector_s * alone / each, "tensor": matrix_s * alone / each},
            pool_bytes={"dram": (read + write) / blocks, "l2": (read + write) / blocks},
        ),
    )  # fmt: skip
    return Kernel(name=name, cta_count=blocks, phases=phases, needs=filling(target, _BLOCKS_PER_SM))


LOWERING = Lowering(ops=(), kernels=_kernels)
