"""Document of a bisection for the change behind a slowdown."""

from collections.abc import Iterator

from nearpeak.bisection.noisy_search import Bisection
from nearpeak.core.runs.launch_pairs import LaunchJudgement
from nearpeak.reports.document import Document
from nearpeak.reports.figure_text import clean
from nearpeak.reports.history.tracks import percent

_SAID = {
    "found": "found", "likely": "likely, but the steps did not suffice to be sure", "not-there": "no single change",
}  # fmt: skip


def bisection_document(ends: LaunchJudgement, bisection: Bisection | None) -> Document:
    """Return the culprits, and the comparisons behind them."""
    return Document(blocks=list(_lines(ends, bisection)))


def _lines(ends: LaunchJudgement, bisection: Bisection | None) -> Iterator[str]:
    judgement = ends.judgement
    span = f"{percent(judgement.low_ratio)} to {percent(judgement.high_ratio)}"
    yield f"bad against good: {judgement.verdict}, {percent(judgement.time_ratio)} ({span})"
    if bisection is None:
        yield "nothing to search"
        return
    for number, step in enumerate(bisection.steps, 1):
        changed = [name for name in step.candidate if step.candidate[name] != step.baseline[name]]
        what = ", ".join(f"{clean(name)} {clean(step.candidate[name][:12])}" for name in changed)
        ratio_text = "cannot be built or run" if step.time_ratio is None else percent(step.time_ratio)
        yield f"  step {number}: {what}: {ratio_text}"
    yield f"{_SAID[bisection.outcome]}, {len(bisection.steps)} steps"
    for culprit in bisection.culprits:
        versions = f"{clean(culprit.before[:12])} → {clean(culprit.after[:12])}"
        yield f"▲ {clean(culprit.axis)}: {versions}, {percent(culprit.time_ratio)}"
