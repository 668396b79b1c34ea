"""Workload × targets → Analysis: every number that a report shows."""

import platform
from collections.abc import Sequence

from nearpeak.core.analysis import Analysis, CaseRow, CaseTime, MemoryUse, TargetAnalysis
from nearpeak.core.bound import Bound, Policy
from nearpeak.core.case import Case
from nearpeak.core.target import Target
from nearpeak.core.work import Work
from nearpeak.core.workload import PHASES, Workload
from nearpeak.errors import NotModelledError
from nearpeak.ops import label_of, work_of
from nearpeak.theory.case_bound import STRICT, work_bound
from nearpeak.theory.liveness import fit_of, memory_use
from nearpeak.theory.opportunity import opportunities
from nearpeak.theory.rates import matrix_rate
from nearpeak.theory.shares import by_order, module_pattern, shares
from nearpeak.theory.step_bound import bound_of_step, step_work

_WARM = {"cold_inputs": False, "output_credit": True}


def analysis_of(
    workload: Workload, targets: Sequence[Target], policy: Policy = STRICT, *, version: str = ""
) -> Analysis:
    """Return the analysis of `workload` on `targets`.

    Raises:
        NotModelledError: a target states no rate for a format that the workload uses; target and format are named.
    """
    works = {case: work_of(case) for case in workload.case_counts()}
    rows = _rows(workload, works)
    step = step_work(workload, works)
    memory = memory_use(workload) if workload.buffers else None
    batch_count = int(workload.origin["batch"]) if "batch" in workload.origin else None
    parameters = workload.origin.get("parameters")
    return Analysis(
        name=workload.name,
        step=workload.step,
        batch_count=batch_count,
        dtype=_main_format(rows),
        origin=workload.origin,
        capture_assumptions=workload.assumptions,
        policy=policy,
        rows=rows,
        call_count=sum(call.call_count for call in workload.calls),
        covered_count=sum(call.call_count for call in workload.calls if call.case is not None),
        uncovered=workload.uncovered_counts(),
        skipped_count=sum(workload.skipped.values()),
        matrix_flop=sum(row.matrix_flop * row.call_count for row in rows),
        total_flop=sum(row.total_flop * row.call_count for row in rows),
        fused_bytes=step.read_bytes + step.write_bytes,
        unfused_bytes=sum((row.read_bytes + row.write_bytes) * row.call_count for row in rows),
        parameter_count=None if parameters is None else int(parameters),
        memory=memory,
        targets=tuple(_target_analysis(workload, rows, works, step, memory, t, policy, batch_count) for t in targets),
        created=f"nearpeak {version} on Python {platform.python_version()}".replace("nearpeak  on", "nearpeak on"),
    )  # fmt: skip


def _rows(workload: Workload, works: dict[Case, Work]) -> tuple[CaseRow, ...]:
    """Return the distinct cases by phase and module pattern, largest work first."""
    counts: dict[tuple[Case, str, str], int] = {}
    first_source: dict[tuple[Case, str, str], str] = {}
    for call in workload.calls:
        if call.case is not None:
            key = (call.case, call.phase, module_pattern(call.module))
            counts[key] = counts.get(key, 0) + call.call_count
            first_source.setdefault(key, call.source)
    rows = [_row(key, works[key[0]], count, first_source[key]) for key, count in counts.items()]
    return tuple(sorted(rows, key=lambda row: (-row.matrix_flop * row.call_count, -_bytes(row), row.label, row.module)))


def _row(key: tuple[Case, str, str], work: Work, count: int, source: str) -> CaseRow:
    case, phase, module = key
    return CaseRow(
        case=case, label=label_of(case), phase=phase, module=module, source=source, call_count=count,
        matrix_flop=_matrix_flop(work), total_flop=work.total_flop,
        read_bytes=work.read_bytes, write_bytes=work.write_bytes,
    )  # fmt: skip


def _bytes(row: CaseRow) -> int:
    return (row.read_bytes + row.write_bytes) * row.call_count


def _matrix_flop(work: Work) -> int:
    return sum(amount for kind, amount in work.flop.items() if kind.startswith("matrix."))


def _main_format(rows: Sequence[CaseRow]) -> str:
    """Return the format of most of the matrix work, or of most bytes where there is none."""
    weight: dict[str, tuple[int, int]] = {}
    for row in rows:
        name = dict(row.case.dtypes).get("dtype", "")
        flop, size = weight.get(name, (0, 0))
        weight[name] = (flop + row.matrix_flop * row.call_count, size + _bytes(row))
    return max(weight, key=lambda name: weight[name], default="fp32")


def _target_analysis(
    workload: Workload, rows: tuple[CaseRow, ...], works: dict[Case, Work], step: Work, memory: MemoryUse | None,
    target: Target, policy: Policy, batch_count: int | None,
) -> TargetAnalysis:  # fmt: skip
    """Return the workload on one target."""
    warm = Policy(dtype=policy.dtype, **_WARM)
    bounds = {case: work_bound(work, target, policy) for case, work in works.items()}
    chained = {case: work_bound(work, target, warm).time_s for case, work in works.items()}
    times = tuple(_time(bounds[row.case]) for row in rows)
    unfused_s = sum(time.bound_s * row.call_count for row, time in zip(rows, times, strict=True))
    whole = bound_of_step(workload, works, step, target, policy)
    by_operator = shares(
        rows, times, [row.case.op + (" backward" if row.case.phase == "backward" else "") for row in rows]
    )
    unit, rate = _main_rate(target, _main_format(rows), policy)
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
        chained_s=max(whole.time_s, sum(chained[row.case] * row.call_count for row in rows)),
        unfused_s=unfused_s,
        launch_floor_s=_floor_s(target, rows, works),
        times=times,
        by_phase=by_order(shares(rows, times, [row.phase for row in rows]), PHASES),
        by_operator=by_operator,
        by_module=shares(rows, times, [row.module for row in rows]),
        opportunities=opportunities(rows, times, target, policy),
        fit=fit_of(memory, target, batch_count),
        assumptions=whole.assumptions,
        unverified=tuple(key for key in target.unverified if not key.startswith("partition.")),
    )


def _time(bound: Bound) -> CaseTime:
    return CaseTime(bound_s=bound.time_s, limiter=bound.limiter, terms_s=bound.terms_s)


def _main_rate(target: Target, dtype: str, policy: Policy) -> tuple[str, float]:
    """Return unit and rate for the workload's main format; a format without products falls back to fp32."""
    try:
        return matrix_rate(target, dtype, policy.dtype)
    except NotModelledError:
        return matrix_rate(target, "fp32", policy.dtype)


def _floor_s(target: Target, rows: Sequence[CaseRow], works: dict[Case, Work]) -> float | None:
    if target.launch_floor_s is None:
        return None
    return target.launch_floor_s * sum(works[row.case].launch_count * row.call_count for row in rows)
