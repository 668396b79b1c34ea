"""Charts of the gap between bound and expected time: what a step loses, and what share of peak its operators reach."""

from collections import defaultdict
from itertools import accumulate

from nearpeak.core.answers.analysis import Analysis, TargetAnalysis
from nearpeak.core.answers.execution_time import GAP_CAUSES, ExecutionTime
from nearpeak.reports.bar_geometry import TOP_COUNT, Bar, Chart, Segment, width
from nearpeak.reports.figure_text import percent
from nearpeak.units import show

ROOFS = {"compute": ("matrix", "vector", "special"), "memory": ("dram",)}
"""Terms of bounds by roof; of several the longest counts."""


def loss_waterfall(target: TargetAnalysis, execution: ExecutionTime) -> Chart:
    """Return a step's time from its bound to its expected time, each cause beginning where the one before ends.

    Bars of causes that shorten the expected time lie before the end of the one before.
    """
    parts = {"the bound of the step": target.bound_s} | {
        GAP_CAUSES.get(cause, cause): gap_s for cause, gap_s in execution.gap_s.items() if gap_s
    }
    ends_s = tuple(accumulate(parts.values()))
    axis_s = max(*ends_s, execution.time_s)
    bars = [
        _bar(name, part_s, min(end_s, end_s - part_s), axis_s, execution.time_s)
        for (name, part_s), end_s in zip(parts.items(), ends_s, strict=True)
    ]
    total = _bar(f"expected, {execution.mode}", execution.time_s, 0.0, axis_s, execution.time_s)
    return Chart(
        title=f"From the bound to the expected time, {execution.mode}", bars=(*bars, total), end=show(axis_s, "s")
    )


def _bar(name: str, part_s: float, begin_s: float, axis_s: float, whole_s: float) -> Bar:
    kind = "total" if part_s == whole_s else "gap"
    return Bar(
        name=name,
        value=show(part_s, "s"),
        note=percent(part_s / whole_s),
        segments=(
            Segment(kind="offset", width=width(begin_s, axis_s), words=""),
            Segment(kind=kind, width=width(abs(part_s), axis_s), words=show(part_s, "s")),
        ),
    )


def attained_charts(analysis: Analysis, target: TargetAnalysis) -> tuple[Chart, ...]:
    """Return a chart for each roof: what share of it each operator is expected to reach while its kernels run.

    The share is the time that the operator's work takes at the roof over the expected time of its kernels; operators
    without a prediction are left out. Empty where nothing is predicted.
    """
    expected_s: dict[str, float] = defaultdict(float)
    at_roof_s: dict[str, dict[str, float]] = {roof: defaultdict(float) for roof in ROOFS}
    for row, time in zip(analysis.rows, target.times, strict=True):
        if time.prediction is None:
            continue
        expected_s[row.case.op] += row.call_count * time.prediction.time_s
        for roof, terms in ROOFS.items():
            longest_s = max(time.terms_s.get(term, 0.0) for term in terms)
            at_roof_s[roof][row.case.op] += row.call_count * longest_s
    names = sorted(expected_s, key=lambda name: -expected_s[name])[:TOP_COUNT]
    whole_s = sum(expected_s.values())
    return tuple(
        Chart(
            title=f"{roof.capitalize()}, share of peak",
            bars=tuple(
                Bar(
                    name=name,
                    value=percent(share := times_s[name] / expected_s[name]),
                    note=show(expected_s[name], "s"),
                    segments=(Segment(kind=ROOFS[roof][0], width=width(share, 1.0), words=percent(share)),),
                )
                for name in names
            ),
            end="100 %",
        )
        for roof, times_s in at_roof_s.items()
        if whole_s
    )
