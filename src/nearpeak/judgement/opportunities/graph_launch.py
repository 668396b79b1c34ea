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
    late = [one for one in gaps if one.timed.host_s is not None and one.timed.host_s > one.timed.measured_s]
    missing = [
        abstention(KIND, one, "its host time is not recorded; measure it on the device's clock and the host's")
        for one in gaps
        if one.timed.host_s is None and one.timed.launch_floor_s is not None and one.timed.measured_s < SHORT_S
    ]
    found = []
    keys = sorted({(one.timed.model, one.timed.target, one.timed.runner) for one in late})
    for model, target, runner in keys:
        part = [one for one in late if (one.timed.model, one.timed.target, one.timed.runner) == (model, target, runner)]
        gain_s = sum(((one.timed.host_s or 0.0) - one.timed.measured_s) * one.timed.call_count for one in part)
        count = sum(one.timed.call_count for one in part)
        evidence = f"{count} calls take {show(gain_s, 's')} longer on the host than on the device"
        where = model or ", ".join(sorted({one.timed.case.op for one in part})[:4])
        found.append(advice(KIND, f"Launch {where} as one recorded graph", where, gain_s, evidence, MEASURED))
    return found, missing
