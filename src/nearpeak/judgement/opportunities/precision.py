"""Precision rule: a narrower number format moves fewer bytes and uses faster units."""

from collections.abc import Sequence

from nearpeak.core.answers.gap import ESTIMATED, MEASURED, Abstention, Advice, Alternative, Gap
from nearpeak.judgement.advice import abstention, advice, alternatives, named
from nearpeak.units import show

KIND = "precision"


def look(gaps: Sequence[Gap]) -> tuple[list[Advice], list[Abstention]]:
    """Compare each case with itself in narrower formats; whether results stay good enough is for the user to say.

    Where the narrower one was measured, its time counts; else it is taken to come as near to its bound as the wider
    one does, and never below a kernel's least time.
    """
    remedies, missing = [], []
    for gap in gaps:
        ways = alternatives(gap, KIND)
        if not ways:
            continue
        options = [option for option in (_advice(gap, way) for way in ways) if option is not None]
        if options:
            remedies.append(max(options, key=lambda option: option.opportunity.gain_s))
        elif all(way.measured_s is None and (way.bound_s is None or gap.timed.bound_s is None) for way in ways):
            missing.append(
                abstention(KIND, gap, f"no bound in {ways[0].label} on {gap.timed.target}; measure it there")
            )
    return remedies, missing


def _advice(gap: Gap, way: Alternative) -> Advice | None:
    row = gap.timed
    expected_s = way.measured_s
    if expected_s is None:
        if way.bound_s is None or not row.bound_s:
            return None
        expected_s = max(row.measured_s * way.bound_s / row.bound_s, way.bound_s, row.launch_floor_s or 0.0)
    if expected_s >= row.measured_s:
        return None
    how = "measured" if way.measured_s is not None else "expected at the same share of its bound"
    evidence = f"{show(expected_s, 's')} in {way.label}, {how}, against {show(row.measured_s, 's')}"
    title = f"Run {named(gap)} in {way.label} where accuracy allows"
    basis = MEASURED if way.measured_s is not None else ESTIMATED
    return advice(KIND, title, named(gap), row.call_count * (row.measured_s - expected_s), evidence, basis)
