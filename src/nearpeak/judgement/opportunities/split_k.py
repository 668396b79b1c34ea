"""Split-K rule: a product with fewer output tiles than multiprocessors leaves some idle unless K is divided."""

import math
from collections.abc import Sequence

from nearpeak.core.answers.gap import Abstention, Advice, Gap
from nearpeak.judgement.advice import abstention, advice, axis, is_product, named
from nearpeak.units import show

KIND = "split_k"
TILE = 128
"""Side of the output tile that is counted: the usual one of library kernels."""
DEPTH = 512
"""Least part of K for one multiprocessor: shorter sums do not hide the loads."""


def look(gaps: Sequence[Gap]) -> tuple[list[Advice], list[Abstention]]:
    """Count output tiles of products against multiprocessors.

    With s parts of K, s times as many multiprocessors work; the time is not taken below the bound, nor the gain
    above the gap.
    """
    remedies, missing = [], []
    for gap in gaps:
        if not is_product(gap):
            continue
        row = gap.timed
        tiles = math.ceil(axis(gap, "m") / TILE) * math.ceil(axis(gap, "n") / TILE) * axis(gap, "batch")
        if row.sm_count is None:
            missing.append(
                abstention(KIND, gap, f"how many multiprocessors {row.target or 'the device'} has is not known")
            )
            continue
        parts = min(row.sm_count // tiles, axis(gap, "k") // DEPTH)
        if parts < 2:
            continue
        gain_s = min(gap.gain_s, row.call_count * row.measured_s * (1 - 1 / parts))
        evidence = (
            f"{tiles} output tiles of {TILE}×{TILE} for {row.sm_count} multiprocessors, now {show(row.measured_s, 's')}"
        )
        title = f"Split K of {named(gap)} into {parts} parts"
        remedies.append(advice(KIND, title, named(gap), gain_s, evidence))
    return remedies, missing
