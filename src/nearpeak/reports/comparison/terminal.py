"""A comparison for the terminal."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nearpeak.core.answers.analysis_comparison import Change, Comparison, TargetComparison
from nearpeak.reports import comparison_text as texts
from nearpeak.reports import figure_text as words
from nearpeak.reports.console import drawn

TOP_COUNT = 10
"""Cases shown per target."""
_COLOURS = {"better": "green", "worse": "red", "same": "dim", "not comparable": "yellow"}


def to_terminal(comparison: Comparison, *, colour: bool = False, width: int = 80) -> str:
    """Return the comparison as text; colour only where it goes to a terminal."""
    return drawn(lambda console: _print(console, comparison), colour=colour, width=width)


def _print(console: Console, comparison: Comparison) -> None:
    console.print(Text(f"baseline:  {words.shortened(comparison.baseline, 66)}", style="bold"))
    console.print(Text(f"candidate: {words.shortened(comparison.candidate, 66)}", style="bold"))
    if comparison.reason:
        console.print(Text(f"The steps are not comparable: {words.clean(comparison.reason)}", style="yellow"))
    else:
        console.print(_changes("work and memory", comparison.changes))
    for target in comparison.targets:
        _target(console, target)


def _target(console: Console, target: TargetComparison) -> None:
    reason = f": {words.clean(target.reason)}" if target.reason else ""
    console.print()
    console.print(
        Text(f"{words.shortened(target.target, 40)}  {target.verdict}{reason}", style=_COLOURS[target.verdict])
    )
    if target.changes:
        console.print(_changes("least time", target.changes))
    if moved := texts.moved(target):
        console.print(_cases(target))
        if len(moved) > TOP_COUNT:
            console.print(Text(f"{len(moved) - TOP_COUNT} more cases differ", style="dim"))
    if same := len(target.cases) - len(moved):
        console.print(Text(f"{same} cases are the same", style="dim"))


def _table(first: str, width: int) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column(first, no_wrap=True, overflow="ellipsis", width=width)
    table.add_column("baseline", justify="right", no_wrap=True, width=11)
    table.add_column("candidate", justify="right", no_wrap=True, width=11)
    table.add_column("ratio", no_wrap=True, width=23)
    return table


def _changes(title: str, changes: Sequence[Change]) -> Table:
    table = _table(title, 28)
    for change in changes:
        baseline, candidate, ratio = texts.figures(change)
        verdict = Text(f"{texts.MARKS[change.verdict]} {ratio} {change.verdict}", style=_COLOURS[change.verdict])
        table.add_row(texts.quantity(change), baseline, candidate, verdict)
    return table


def _cases(target: TargetComparison) -> Table:
    table = _table("case, all calls", 28)
    moved = texts.moved(target)[:TOP_COUNT]
    for name, case in zip(words.told_apart([case.label for case in moved], 28), moved, strict=True):
        baseline, candidate, ratio = texts.total(case)
        said = Text(f"{texts.MARKS[case.verdict]} {ratio}", style=_COLOURS[case.verdict])
        table.add_row(Text(name), baseline, candidate, said)
    return table
