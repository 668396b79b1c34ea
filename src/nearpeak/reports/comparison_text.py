"""The words of a comparison's reports."""

from collections.abc import Mapping

from nearpeak.core.answers.analysis_comparison import SAME, CaseComparison, Change, TargetComparison
from nearpeak.reports import figure_text as words
from nearpeak.units import show

MARKS: Mapping[str, str] = {"better": "▼", "worse": "▲", "same": "=", "not comparable": "?"}
"""A sign per verdict: time, work and memory go down or up."""

QUANTITIES: Mapping[str, str] = {
    "bound_s": "bound, any fusion", "chained_s": "one kernel per operator", "unfused_s": "operators added up",
    "launch_floor_s": "launch floor", "matrix_flop": "FLOP for matrix units", "total_flop": "all FLOP",
    "fused_bytes": "bytes fused", "unfused_bytes": "bytes operator by operator", "weight_bytes": "weights",
    "activation_peak_bytes": "activations at their peak", "peak_bytes": "memory at the peak",
}  # fmt: skip
"""Figures in words."""


def figures(change: Change) -> tuple[str, str, str]:
    """Return baseline, candidate and their ratio as texts."""
    unit, baseline, candidate = change.pair
    said = [show(value, unit) if unit else words.count(int(value)) for value in (baseline, candidate)]
    return (said[0], said[1], "–" if change.ratio is None else f"{change.ratio:.4g}×")


def quantity(change: Change) -> str:
    """Return what the figure is."""
    return QUANTITIES.get(change.quantity, change.quantity)


def moved(target: TargetComparison) -> tuple[CaseComparison, ...]:
    """Return the cases that are not the same in both."""
    return tuple(case for case in target.cases if case.verdict != SAME)


def total(case: CaseComparison) -> tuple[str, str, str]:
    """Return the time of all calls in both, and the ratio or why there is none."""
    baseline, candidate, ratio = figures(case.changes[-1])
    return (baseline, candidate, case.reason or ratio)
