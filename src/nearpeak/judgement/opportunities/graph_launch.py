"""Graph-launch rule: calls with more host time than device time are recorded as one graph."""

from collections.abc import Sequence

from nearpeak.core.answers.gap import MEASURED, Abstention, Advice, Gap
from nearpeak.judgement.advice import abstention, advice
from nearpeak.units import show

KIND = "graph_launch"
SHORT_S = 20e-6
"""Kernels longer than this hide the launch of the next one behind them."""


def look(gaps: Sequence[Gap]) -> tuple[list[Advice], list[Abstention]]:
    """Gather the cases whose calls take longer on the host than on the device; the difference is what a graph saves."""
    late = [gap for gap in gaps if gap.timed.host_s is not None and gap.timed.host_s > gap.timed.measured_s]
    missing = [
        abstention(KIND, gap, "its host time is not recorded; measure it on the device's clock and the host's")
        for gap in gaps
        if gap.timed.host_s is None and gap.timed.launch_floor_s is not None and gap.timed.measured_s < SHORT_S
    ]
    remedies = []
    keys = sorted({(gap.timed.model, gap.timed.target, gap.timed.runner) for gap in late})
    for model, target, runner in keys:
        part = [gap for gap in late if (gap.timed.model, gap.timed.target, gap.timed.runner) == (model, target, runner)]
        gain_s = sum(((gap.timed.host_s or 0.0) - gap.timed.measured_s) * gap.timed.call_count for gap in part)
        count = sum(gap.timed.call_count for gap in part)
        evidence = f"{count} calls take {show(gain_s, 's')} longer on the host than on the device"
        where = model or ", ".join(sorted({gap.timed.case.op for gap in part})[:4])
        remedies.append(advice(KIND, f"Launch {where} as one recorded graph", where, gain_s, evidence, MEASURED))
    return remedies, missing
