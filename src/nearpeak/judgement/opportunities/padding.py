"""Padding rule: extents rounded up to whole tiles can take less time despite the extra work."""

from collections.abc import Sequence

from nearpeak.core.answers.gap import MEASURED, Abstention, Advice, Gap
from nearpeak.judgement.advice import abstention, advice, alternatives, axis, is_product, named
from nearpeak.units import show

KIND = "padding"
MULTIPLE = 64
"""Extents that are multiples of this need no padding: rows of 128 bytes of two-byte formats, and half a usual tile."""
SMALLEST = 32
"""Below this an extent is a vector's, which padding does not help."""


def padded_axes(axes: dict[str, int]) -> dict[str, int]:
    """Return the extents of a product rounded up to whole tiles where that adds little.

    >>> padded_axes({"m": 4096, "n": 50257, "k": 100, "batch": 1})
    {'m': 4096, 'n': 50304, 'k': 128, 'batch': 1}
    """
    return {
        name: -(-extent // MULTIPLE) * MULTIPLE if name in ("m", "n", "k") and extent >= SMALLEST else extent
        for name, extent in axes.items()
    }


def look(gaps: Sequence[Gap]) -> tuple[list[Advice], list[Abstention]]:
    """Compare each product whose extents are no whole tiles with the padded one: only a measurement can tell."""
    remedies, missing = [], []
    for gap in gaps:
        if not is_product(gap) or all(axis(gap, name) % MULTIPLE == 0 or axis(gap, name) < SMALLEST for name in "mnk"):
            continue
        ways = [way for way in alternatives(gap, KIND) if way.measured_s is not None]
        if not ways:
            axes = padded_axes(dict(gap.timed.case.axes))
            wanted = " ".join(f"{name}={axes[name]}" for name in "mnk")
            missing.append(abstention(KIND, gap, f"the padded one is not measured; measure {wanted}"))
            continue
        best = min(ways, key=lambda way: way.measured_s or 0.0)
        row, time_s = gap.timed, best.measured_s or 0.0
        if time_s < row.measured_s:
            gain_s = row.call_count * (row.measured_s - time_s)
            evidence = f"{best.label} takes {show(time_s, 's')}, {row.label} {show(row.measured_s, 's')}"
            remedies.append(advice(KIND, f"Pad {named(gap)} to {best.label}", named(gap), gain_s, evidence, MEASURED))
    return remedies, missing
