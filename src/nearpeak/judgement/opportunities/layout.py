"""Layout rule: kernels that only reorder data are unnecessary when their neighbours agree on a layout."""

from collections.abc import Sequence

from nearpeak.core.answers.gap import MEASURED, Abstention, Advice, Gap
from nearpeak.judgement.advice import abstention, advice
from nearpeak.units import show

KIND = "layout"
REORDERING = ("copy", "transpose", "permute", "contiguous", "layout")
"""Operators that change nothing but where elements lie."""


def look(gaps: Sequence[Gap]) -> tuple[list[Advice], list[Abstention]]:
    """Gather copies per module; their whole measured time is what agreeing on a layout saves."""
    groups: dict[tuple[str, str, str], list[Gap]] = {}
    missing = []
    for gap in gaps:
        row = gap.timed
        if row.case.op not in REORDERING or (len({name for _, name in gap.timed.case.dtypes}) > 1):
            continue
        if not row.module:
            missing.append(abstention(KIND, gap, "what it stands between is not known; rank a captured workload"))
            continue
        groups.setdefault((row.module, row.target, row.runner), []).append(gap)
    remedies = []
    for (module, _, _), part in groups.items():
        total_s = sum(gap.timed.measured_s * gap.timed.call_count for gap in part)
        count = sum(gap.timed.call_count for gap in part)
        title = f"Keep one layout through {module}, so that nothing is reordered"
        evidence = f"{count} calls only move elements, {show(total_s, 's')}"
        remedies.append(advice(KIND, title, module, total_s, evidence, MEASURED))
    return remedies, missing
