"""A comparison as Markdown, for a pull request."""

from collections.abc import Iterable, Sequence

from nearpeak.core.answers.analysis_comparison import Change, Comparison, TargetComparison
from nearpeak.reports import comparison_text as texts
from nearpeak.reports.analysis.markdown import name_cell, prose, table

TOP_COUNT = 10
"""Cases shown per target."""


def to_markdown(comparison: Comparison) -> str:
    """Return the comparison as Markdown."""
    blocks = [f"## {prose(comparison.candidate)} against {prose(comparison.baseline)}"]
    if comparison.reason:
        blocks.append(f"The steps are not comparable: {prose(comparison.reason)}.")
    else:
        blocks.append(_changes("work and memory", comparison.changes))
    for target in comparison.targets:
        blocks += _target(target)
    return "\n\n".join(blocks) + "\n"


def _target(target: TargetComparison) -> Iterable[str]:
    reason = f": {prose(target.reason)}" if target.reason else ""
    yield f"### {name_cell(target.target)}: {target.verdict}{reason}"
    if target.changes:
        yield _changes("least time", target.changes)
    if moved := texts.moved(target):
        rows = [(name_cell(case.label), *texts.total(case), case.verdict) for case in moved[:TOP_COUNT]]
        yield table(("case, all calls", "baseline", "candidate", "ratio", "verdict"), rows)
        if len(moved) > TOP_COUNT:
            yield f"{len(moved) - TOP_COUNT} more cases differ."


def _changes(title: str, changes: Sequence[Change]) -> str:
    rows = [(texts.quantity(change), *texts.figures(change), change.verdict) for change in changes]
    return table((title, "baseline", "candidate", "ratio", "verdict"), rows)
