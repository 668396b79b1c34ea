"""Fusion rule: memory-limited kernels of one module become one kernel, so that intermediates stay on chip."""

from collections.abc import Sequence

from nearpeak.core.answers.gap import Abstention, Advice, Gap
from nearpeak.judgement.advice import abstention, advice
from nearpeak.units import show

KIND = "fusion"


def look(gaps: Sequence[Gap]) -> tuple[list[Advice], list[Abstention]]:
    """Gather, per module, the memory-limited kernels without products.

    The fused kernel is taken to last as long as the longest of them does now, as it reads and writes no less than
    that one: an estimate, not a bound.
    """
    groups: dict[tuple[str, ...], list[Gap]] = {}
    missing = []
    for gap in gaps:
        row = gap.timed
        if row.matrix_flop or row.limiter != "dram":
            continue
        if not row.module:
            missing.append(abstention(KIND, gap, "its module is not known; rank a captured workload to see neighbours"))
            continue
        groups.setdefault((row.model, row.module, row.case.phase, row.target, row.runner), []).append(gap)
    remedies = [_fused(module, part) for (_, module, *_), part in groups.items() if len(part) > 1]
    missing += [
        abstention(KIND, part[0], f"no other kernel of {module} is limited by memory alone")
        for (_, module, *_), part in groups.items()
        if len(part) == 1
    ]
    return remedies, missing


def _fused(module: str, part: list[Gap]) -> Advice:
    times = [gap.timed.measured_s * gap.timed.call_count for gap in part]
    names = ", ".join(sorted({gap.timed.case.op for gap in part})[:4])
    size = sum(gap.timed.moved_bytes * gap.timed.call_count for gap in part)
    return advice(
        KIND,
        f"Fuse {names} of {module}",
        module,
        sum(times) - max(times),
        f"{len(part)} kernels limited by memory take {show(sum(times), 's')}, the longest of them"
        f" {show(max(times), 's')}; together they move {show(size, 'B')}",
    )
