"""Memory-streaming operators: bytes, rows, vector instructions and special functions of the least work."""

# A kernel keeps as many rows in flight as end first: more of them lose each other's rows from cache between two passes.

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.prediction.kernel_model import CaseColumns, Setting, case_columns
from nearpeak.prediction.stream.stream_parts import (
    BLOCK_BYTES,
    BLOCKS_PER_SM,
    CHUNKED_KERNELS,
    SHARPNESS,
    is_chunked,
    port_bytes_per_s,
    resources,
)
from nearpeak.prediction.work_columns import WorkColumns, work_columns
from nearpeak.simulation.engine.device_work import Kernel, Phase
from nearpeak.simulation.kernel_lowering import Lowering, after_longest_s, ceilings, filling, pooled_s, ps


def _kernels(case: Case, target: Target, setting: Setting) -> tuple[Kernel, ...]:
    columns = case_columns(case)
    if target.dram.bandwidth_bytes_per_s is None:
        raise NotModelledError(f"{target.name}: states no memory bandwidth")
    work = work_columns(target, columns)
    coefficients = ceilings(case, target, "stream")
    count = max(int(work.launch_count[0]), CHUNKED_KERNELS if is_chunked(columns) else 1)
    kernel = _kernel(columns, target, work, coefficients, count, hosted=setting.host_timed)
    return tuple(
        (kernel if place == 0 else replace(kernel, name=f"{kernel.name} {place + 1}")) for place in range(count)
    )


def _kernel(
    cases: CaseColumns, target: Target, work: WorkColumns, p: Mapping[str, float], count: int, *, hosted: bool
) -> Kernel:
    """Return one of the equal kernels that share the work."""
    busy_sms = _busy_count(target, cases, work, p)
    flight = _flight(target, cases, work, p, busy_sms)
    memory_s, rows_s, vector_s, matrix_s = (time / count for time in flight[:4])
    passing_bytes, moved = flight.passing_bytes / count, float(work.read_bytes[0] + work.write_bytes[0]) / count
    blocks = min(max(round(moved / BLOCK_BYTES), 1), BLOCKS_PER_SM * busy_sms)
    each = max(1, -(-blocks // target.sm_count))
    alone = 1 if blocks >= target.sm_count else target.sm_count / blocks
    longest = max(memory_s, rows_s, vector_s, matrix_s)
    body = _together(memory_s, rows_s, vector_s, matrix_s)
    ramp = p["grid_ramp_s"] * min(1.0, moved / (BLOCK_BYTES * target.sm_count))
    passing = passing_bytes / blocks
    vector_s, matrix_s = (time * busy_sms / target.sm_count for time in (vector_s, matrix_s))  # units of all at work
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
    rest_s = after_longest_s(target, body, longest, {"dram": passing_bytes, "l2": passing_bytes + moved})
    rest = ps(rest_s) + max(0, ps(p["host_floor_s"] - p["host_gap_s"] - p["launch_s"] - body) if hosted else 0)
    phases += [Phase(fixed_ps=rest)] if rest else []
    return Kernel(name=cases.op, cta_count=blocks, phases=tuple(phases), needs=filling(target, BLOCKS_PER_SM))


class _Flight(NamedTuple):
    """Times in seconds of each resource with some multiprocessors at work, and the bytes that pass memory."""

    memory_s: float
    rows_s: float
    vector_s: float
    matrix_s: float
    passing_bytes: float


def _flight(target: Target, cases: CaseColumns, work: WorkColumns, p: Mapping[str, float], busy_sms: int) -> _Flight:
    """Return what a kernel takes whose rows in flight fill `busy_sms` multiprocessors."""
    needs = resources(replace(target, sm_count=busy_sms), cases, work, p)
    read_s, write_s, again_s, aligned, rows_s, vector_s, matrix_s = (float(column[0]) for column in needs)
    slower = target.sm_count / busy_sms
    reached = min(target.dram.bandwidth_bytes_per_s or 1.0, port_bytes_per_s(target, busy_sms))
    return _Flight(
        memory_s=((read_s + again_s) / p["read_ratio"] + write_s / p["write_ratio"]) / aligned, rows_s=rows_s,
        vector_s=vector_s * slower, matrix_s=matrix_s * slower, passing_bytes=(read_s + again_s + write_s) * reached,
    )  # fmt: skip


def _together(*times_s: float) -> float:
    """Return the time of resources side by side."""
    whole: float = sum(time**SHARPNESS for time in times_s) ** (1 / SHARPNESS)
    return whole


def _busy_count(target: Target, cases: CaseColumns, work: WorkColumns, p: Mapping[str, float]) -> int:
    """Return the multiprocessors whose rows in flight end first, of all.

    The time falls while rows stay in cache, is convex while a growing share of them is lost (every resource is, and so
    is their norm), and falls again once all are: the least of the middle, or all.
    """
    row_bytes = float(work.group_bytes[0])
    resident = p["row_residency_ratio"] * (target.l2.capacity_bytes or 0)
    if not row_bytes or p["row_passes_count"] <= 0:
        return target.sm_count
    all_kept, all_lost = (max(1, int(part * resident / (BLOCKS_PER_SM * row_bytes))) for part in (0.5, 1.5))
    moved = float(work.read_bytes[0] + work.write_bytes[0])
    low, high = min(all_kept, target.sm_count), min(all_lost + 1, target.sm_count)

    def time_s(busy_sms: int) -> float:
        flight = _flight(target, cases, work, p, busy_sms)
        passing = flight.passing_bytes
        return max(_together(*flight[:4]), pooled_s(target, {"dram": passing, "l2": passing + moved}))

    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if time_s(middle) <= time_s(middle + 1) else (middle + 1, high)
    return low if time_s(low) < time_s(target.sm_count) else target.sm_count


LOWERING = Lowering(ops=(), kernels=_kernels)
