"""Batching rule: larger batches share weights, launches and idle multiprocessors."""

from collections.abc import Sequence

from nearpeak.core.answers.gap import MEASURED, Abstention, Advice, Gap
from nearpeak.judgement.advice import abstention, advice, alternatives, named
from nearpeak.units import show

KIND = "batching"
SHORT = 4.0
"""Kernels shorter than this many launch floors are reported when no larger batch is measured."""


def look(gaps: Sequence[Gap]) -> tuple[list[Advice], list[Abstention]]:
    """Compare each case with larger batches of it that were measured; short kernels without one are named."""
    remedies, missing = [], []
    for gap in gaps:
        row = gap.timed
        ways = [way for way in alternatives(gap, KIND) if way.measured_s is not None and way.work_ratio > 1]
        if not ways:
            if row.launch_floor_s is not None and row.measured_s < SHORT * row.launch_floor_s:
                missing.append(abstention(KIND, gap, "no larger batch of it is measured; measure one"))
            continue
        best = min(ways, key=lambda way: (way.measured_s or 0.0) / way.work_ratio)
        each_s = (best.measured_s or 0.0) / best.work_ratio
        if each_s < row.measured_s:
            gain_s = row.call_count * (row.measured_s - each_s)
            evidence = (
                f"{best.label} takes {show(best.measured_s or 0.0, 's')}, {show(each_s, 's')} for each work of it"
            )
            title = f"Run {named(gap)} in larger batches, as {best.label}"
            remedies.append(advice(KIND, title, named(gap), gain_s, evidence, MEASURED))
    return remedies, missing
