"""Analysis of a workload on several targets: all numbers that a report shows."""

import dataclasses
import platform
from collections.abc import Iterable, Mapping, Sequence

from nearpeak.bounds.case_bound import STRICT, work_bound
from nearpeak.bounds.proof_checker import proof_of
from nearpeak.bounds.step.fusion_groups import Kernel, groups_bound_s, kernels_work
from nearpeak.bounds.step.liveness import Occupancy, fit_of, occupancy_of
from nearpeak.bounds.step.step_bound import StepWork, bound_of_step, least_work
from nearpeak.bounds.step.step_rows import Part, moved_bytes, parts_of
from nearpeak.bounds.terms.unit_rates import matrix_rate
from nearpeak.core.answers.analysis import Analysis, CaseRow, CaseTime, Share, TargetAnalysis
from nearpeak.core.answers.bound import Policy
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.work import Work
from nearpeak.core.work.workload import PHASES, Workload
from nearpeak.errors import NotModelledError
from nearpeak.units import show


def analysis_of(
    workload: Workload, targets: Sequence[Target], policy: Policy = STRICT, *, version: str = ""
) -> Analysis:
    """Return the analysis of `workload` on `targets`.

    Raises:
        NotModelledError: a target states no rate for a format that the workload uses; target and format are named.
    """
    works, both = least_work(workload, policy.algorithm)
    parts = parts_of(workload, works)
    rows = tuple(part.row for part in parts)
    step, kernels = both.as_written, kernels_work(workload, works)
    occupancy = occupancy_of(workload) if workload.buffers else None
    batch_count = int(workload.origin["batch"]) if "batch" in workload.origin else None
    parameters = workload.origin.get("parameters")
    return Analysis(
        name=workload.name,
        step=workload.step,
        batch_count=batch_count,
        dtype=_main_format(rows),
        origin=workload.origin,
        capture_assumptions=(*workload.assumptions, *_of_groups(kernels, targets, policy)),
        policy=policy,
        rows=rows,
        call_count=sum(call.call_count for call in workload.calls),
        covered_count=sum(call.call_count for call in workload.calls if call.case is not None),
        uncovered=workload.uncovered_counts(),
        skipped_count=sum(workload.skipped.values()),
        matrix_flop=sum(flop for kind, flop in step.flop.items() if kind.startswith("matrix.")),
        total_flop=step.total_flop,
        fused_bytes=step.read_bytes + step.write_bytes,
        unfused_bytes=sum((row.read_bytes + row.write_bytes) * row.call_count for row in rows),
        parameter_count=None if parameters is None else int(parameters),
        memory=occupancy.use if occupancy else None,
        targets=tuple(
            _target_analysis(workload, parts, works, both, occupancy, target, policy, batch_count, version)
            for target in targets
        ),
        created=f"nearpeak {version} on Python {platform.python_version()}".replace("nearpeak  on", "nearpeak on"),
    )  # fmt: skip


def _main_format(rows: Sequence[CaseRow]) -> str:
    """Return the format of most of the matrix work, or of most bytes where there is none."""
    weight: dict[str, tuple[int, int]] = {}
    for row in rows:
        name = dict(row.case.dtypes).get("dtype", "")
        flop, size = weight.get(name, (0, 0))
        weight[name] = (flop + row.matrix_flop * row.call_count, size + moved_bytes(row))
    return max(weight, key=lambda name: weight[name], default="fp32")


def _target_analysis(
    workload: Workload, parts: tuple[Part, ...], works: dict[Case, Work], step: StepWork,
    occupancy: Occupancy | None, target: Target, policy: Policy, batch_count: int | None, version: str,
) -> TargetAnalysis:  # fmt: skip
    """Return the workload on one target."""
    warm = dataclasses.replace(policy, cold_inputs=False, output_credit=True)
    rows = tuple(part.row for part in parts)
    times = tuple(_time(part, step.worst.works, target, policy) for part in parts)
    chained_s = sum(work_bound(part.work, target, warm).time_s * part.row.call_count for part in parts)
    unfused_s = sum(time.bound_s * row.call_count for row, time in zip(rows, times, strict=True))
    whole = bound_of_step(workload, works, step, target, policy)
    by_operator = shares(
        rows, times, [row.case.op + (" backward" if row.case.phase == "backward" else "") for row in rows]
    )
    try:
        unit, rate = matrix_rate(target, _main_format(rows), policy.dtype)
    except NotModelledError:  # a main format without products
        unit, rate = matrix_rate(target, "fp32", policy.dtype)
    return TargetAnalysis(
        target=target.name,
        title=target.title,
        measured_roofs=target.measured,
        matrix_unit=unit,
        matrix_flop_per_s=rate,
        dram_bytes_per_s=target.dram.bandwidth_bytes_per_s or 0.0,
        bound_s=whole.time_s,
        limiter=whole.limiter,
        terms_s=whole.terms_s,
        chained_s=max(whole.time_s, chained_s),
        unfused_s=unfused_s,
        launch_floor_s=_floor_s(workload, target, parts),
        times=times,
        by_phase=by_order(shares(rows, times, [row.phase for row in rows]), PHASES),
        by_operator=by_operator,
        by_module=shares(rows, times, [row.module for row in rows]),
        opportunities=(),
        fit=fit_of(occupancy, target, batch_count),
        assumptions=whole.assumptions,
        as_written_s=whole.as_written_s,
        rewrites=whole.rewrites,
        unverified=tuple(key for key in target.unverified if not key.startswith("partition.")),
        proof=proof_of(workload.name, whole, target, policy, version),
    )


def _of_groups(kernels: Sequence[Kernel], targets: Sequence[Target], policy: Policy) -> tuple[str, ...]:
    """Return the bound of the kernels that a compiler makes of the calls, target by target, in sentences."""
    count = sum(kernel.count for kernel in kernels)
    return tuple(
        f"{target.title}: the {count} kernels that the compiler fuses the calls into take at least "
        f"{show(groups_bound_s(kernels, target, policy), 's')}"
        for target in targets
        if kernels
    )


def _time(part: Part, worst: Mapping[Case, Work], target: Target, policy: Policy) -> CaseTime:
    bound, high_s = work_bound(part.work, target, policy), None
    if part.row.case in worst:
        high_s = max(bound.time_s, work_bound(worst[part.row.case], target, policy).time_s)
    return CaseTime(bound_s=bound.time_s, limiter=bound.limiter, terms_s=bound.terms_s, high_s=high_s)


def _floor_s(workload: Workload, target: Target, parts: Sequence[Part]) -> float | None:
    """Return the time of so many empty kernels: one per call, or per kernel of a compiler that fuses calls."""
    if target.launch_floor_s is None:
        return None
    if workload.groups:
        return target.launch_floor_s * len(workload.groups)
    return target.launch_floor_s * sum(part.work.launch_count * part.row.call_count for part in parts)


def shares(rows: Sequence[CaseRow], times: Sequence[CaseTime], names: Iterable[str]) -> tuple[Share, ...]:
    """Return the parts of the step by name, largest first.

    Args:
        names: the part that each row belongs to.
    """
    count: dict[str, int] = {}
    limiters: dict[str, dict[str, float]] = {}
    for row, time, name in zip(rows, times, names, strict=True):
        part = limiters.setdefault(name, {})
        part[time.limiter] = part.get(time.limiter, 0.0) + time.bound_s * row.call_count
        count[name] = count.get(name, 0) + row.call_count
    total_s = sum(sum(part.values()) for part in limiters.values())
    parts = [
        Share(
            name=name, call_count=count[name], time_s=sum(part.values()), limiter_s=part,
            share_ratio=sum(part.values()) / total_s if total_s else 0.0,
        )
        for name, part in limiters.items()
    ]  # fmt: skip
    return tuple(sorted(parts, key=lambda share: (-share.time_s, share.name)))


def by_order(parts: tuple[Share, ...], order: Sequence[str]) -> tuple[Share, ...]:
    """Return the parts in the given order of names."""
    return tuple(sorted(parts, key=lambda share: order.index(share.name) if share.name in order else len(order)))
