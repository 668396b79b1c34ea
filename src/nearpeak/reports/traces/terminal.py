"""A trace's report for a terminal: the verdict, where the time went, findings, operators beside theory."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nearpeak.core.traces.finding_report import TraceFinding, TraceReport
from nearpeak.reports import figure_text as words
from nearpeak.reports import trace_text as said
from nearpeak.reports.console import drawn
from nearpeak.units import show

TOP_COUNT = 8
"""Operators and findings shown."""
_BAR = 20


def to_terminal(report: TraceReport, *, colour: bool = False, width: int = 80) -> str:
    """Return the report as text of `width` columns, at least 80."""
    return drawn(lambda console: _print(console, report), colour=colour, width=width)


def _print(console: Console, report: TraceReport) -> None:
    console.print(Text(words.shortened(report.executed.name, console.width), style="bold"))
    _lines(console, [said.subject(report)])
    _lines(console, [words.clean(report.verdict)], style="bold")
    _lines(console, [said.matched(report)])
    _lines(console, [words.clean(note) for note in report.executed.notes], style="dim")
    console.print(_timeline(report))
    _lines(console, [line for line in [said.critical_path(report.executed)] if line])
    _findings(console, report)
    _operators(console, report)
    _modules(console, report)
    _host(console, report)
    _shortfall(console, report)
    _limits(console, report)


def _lines(console: Console, lines: list[str], style: str = "") -> None:
    for line in words.hung(lines, console.width):
        console.print(Text(line, style=style))


def table_of(*columns: str) -> Table:
    """Return a table whose first column is of names, the others of figures."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column(columns[0], no_wrap=True, overflow="ellipsis")
    for name in columns[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _timeline(report: TraceReport) -> Table:
    executed = report.executed
    table = table_of("where the time goes", "time", "share", "")
    table.columns[0].width, table.columns[3].justify = 38, "left"
    for name, time in said.parts(executed):
        share = time / max(1, executed.window_ns)
        if time:
            table.add_row(name, said.per_step(executed, time), f"{share:.1%}", "█" * round(share * _BAR))
    table.add_row(said.span(executed), said.per_step(executed, executed.window_ns), "", "")
    return table


def _findings(console: Console, report: TraceReport) -> None:
    console.print()
    if not report.findings:
        console.print(Text("No findings", style="bold"))
    for number, one in enumerate(report.findings[:TOP_COUNT], start=1):
        _finding(console, report, number, one)
    if len(report.findings) > 1:
        _lines(console, [said.together(report)])


def _finding(console: Console, report: TraceReport, number: int, one: TraceFinding) -> None:
    console.print(Text(f"{number}. {one.id}  {said.gain(one, report)}", style="bold"))
    lines = [words.clean(one.claim)]
    figures = ", ".join(f"{words.clean(e.what)} {_figure(e.value, e.unit)}" for e in one.evidence[:4])
    events = next((figure.events for figure in one.evidence if figure.events), ())
    lines.append(f"evidence: {figures}" + (f"; events {', '.join(map(str, events[:3]))}" if events else ""))
    lines += [f"the gain: {made}" for made in [said.made_of(one)] if made]
    against = [f"{words.clean(counter.what)}: {counter.state}" for counter in one.counter]
    lines += [f"against it: {'; '.join(against)}"] if against else []
    lines += [f"to refute: {words.clean(one.falsifier)}"]
    lines += [f"trust: {said.trust(one)}"]
    lines += [f"at most {show(gain, 's')}: {words.clean(what)}" for what, gain in one.remedies if gain > 0]
    for line in words.hung([f"   {line}" for line in lines], console.width):
        console.print(Text(line))


def _figure(value: float, unit: str) -> str:
    if not unit or unit.startswith("of"):
        return f"{value:.2f} {unit}".strip() if value != int(value) else str(int(value))
    return show(value, unit)


def _operators(console: Console, report: TraceReport) -> None:
    rows = said.slowest(report.executed)
    if not rows:
        return
    table = table_of(*said.HEADINGS)
    cells = [said.cells(report.executed, one) for one in rows[:TOP_COUNT]]
    figures = zip(said.HEADINGS[1:], *(one[1:] for one in cells), strict=True)
    table.columns[0].width = wide = min(console.width, 120) - sum(max(map(len, column)) + 2 for column in figures)
    for name, row in zip(words.told_apart([one[0] for one in cells], wide), cells, strict=True):
        table.add_row(name, *row[1:])
    console.print()
    console.print(table)
    rest = rows[TOP_COUNT:]
    if rest:
        left = said.per_step(report.executed, sum(one.device_ns for one in rest))
        console.print(Text(f"{len(rest)} more: {left} of a step; calls are of a step, times of a call", style="dim"))


def _modules(console: Console, report: TraceReport) -> None:
    found = list(said.modules(report.executed))
    if not found:
        return
    total, table = sum(time for _, time in found), table_of("module", "time", "share")
    table.columns[0].width = wide = 50
    names = words.told_apart([name for name, _ in found[:TOP_COUNT]], wide)
    for name, (_, time) in zip(names, found, strict=False):
        table.add_row(name, said.per_step(report.executed, time), f"{time / max(1, total):.1%}")
    console.print()
    console.print(table)
    if len(found) > TOP_COUNT:
        rest = said.per_step(report.executed, sum(time for _, time in found[TOP_COUNT:]))
        console.print(Text(f"{len(found) - TOP_COUNT} more: {rest} of a step", style="dim"))


def _host(console: Console, report: TraceReport) -> None:
    tables = [(heading, said.host(report, by)) for by, heading in said.HOST.items()]
    for heading, found in tables:
        table = table_of(heading, *said.HOST_HEADINGS)
        table.columns[0].width = wide = 34
        cells = [said.host_cells(report.executed, one) for one in found]
        for name, row in zip(words.told_apart([one[0] for one in cells], wide), cells, strict=True):
            table.add_row(name, *row[1:])
        if found:
            console.print()
            console.print(table)
    if any(found for _, found in tables):
        _lines(console, [said.HOST_NOTE], style="dim")


def _shortfall(console: Console, report: TraceReport) -> None:
    found = report.shortfall
    if found is None:
        return
    executed = report.executed
    console.print()
    whose = f"of {words.clean(report.model)}" if report.model else "of the operators that ran"
    table = table_of(f"beyond the expected time {whose}", "per step")
    table.add_row("expected", said.per_step(executed, found.expected_ns))
    for name, time in said.shortfall(report):
        table.add_row(f"+ {name}" if time > 0 else f"− {name}", said.per_step(executed, abs(time)))
    table.add_row("executed", said.per_step(executed, found.executed_ns))
    console.print(table)
    console.print(Text(f"{found.covered_ratio:.0%} of busy time has an expected time", style="dim"))


def _limits(console: Console, report: TraceReport) -> None:
    reasons: dict[str, list[str]] = {}
    for one in report.abstentions:
        reasons.setdefault(one.reason, []).append(one.id)
    lines = [f"{', '.join(names)}: {words.clean(reason)}" for reason, names in reasons.items()]
    lines += [words.clean(loss) for loss in report.executed.losses]
    if lines:
        console.print()
        console.print(Text("Not told, and what to record for it", style="bold"))
        _lines(console, [f"  {line}" for line in lines], style="dim")
