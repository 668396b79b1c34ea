"""A trace's report as Markdown, for a pull request or an issue."""

from collections.abc import Iterator

from nearpeak.core.traces.finding_report import TraceFinding, TraceReport
from nearpeak.reports import figure_text as words
from nearpeak.reports import trace_text as said
from nearpeak.units import show

_SHOWN = 20


def to_markdown(report: TraceReport) -> str:
    """Return the report as Markdown."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: TraceReport) -> Iterator[str]:
    executed = report.executed
    yield f"# {_safe(executed.name)}"
    yield f"\n{_safe(said.subject(report))}\n\n**{_safe(report.verdict)}**\n\n{_safe(said.matched(report))}\n"
    yield from (f"{_safe(note)}\n" for note in executed.notes)
    yield "| where the time goes | time | share |\n|---|---|---|"
    for name, time in said.parts(executed):
        if time:
            yield f"| {name} | {said.per_step(executed, time)} | {time / max(1, executed.window_ns):.1%} |"
    yield f"| {said.span(executed)} | {said.per_step(executed, executed.window_ns)} | |\n"
    if path := said.critical_path(executed):
        yield f"{_safe(path)}\n"
    yield "## Findings\n" if report.findings else "No findings.\n"
    for one in report.findings:
        yield from _finding(report, one)
    if len(report.findings) > 1:
        yield f"{_safe(said.together(report))}\n"
    yield "## Operators beside theory\n"
    yield f"| {' | '.join(said.HEADINGS)} |\n|{'---|' * len(said.HEADINGS)}"
    for row in said.slowest(executed)[:_SHOWN]:
        yield f"| {' | '.join(_safe(cell) for cell in said.cells(executed, row))} |"
    if executed.module_ns:
        yield "\n| module | time per step |\n|---|---|"
        for name, time in list(said.modules(executed))[:_SHOWN]:
            yield f"| {_safe(name)} | {said.per_step(executed, time)} |"
    yield from _host(report)
    if report.shortfall is not None:
        yield "\n## Beyond the expected time\n\n| part | per step |\n|---|---|"
        yield f"| expected | {said.per_step(executed, report.shortfall.expected_ns)} |"
        for name, time in said.shortfall(report):
            yield f"| {'+' if time > 0 else '−'} {name} | {said.per_step(executed, abs(time))} |"
        yield f"| executed | {said.per_step(executed, report.shortfall.executed_ns)} |"
    yield "\n## Not told\n"
    for missing in report.abstentions:
        yield f"- {missing.id}: {_safe(missing.reason)}"
    for loss in executed.losses:
        yield f"- {_safe(loss)}"


def _host(report: TraceReport) -> Iterator[str]:
    for by, heading in said.HOST.items():
        if found := said.host(report, by):
            yield f"\n| {heading} | {' | '.join(said.HOST_HEADINGS)} |\n|{'---|' * 5}"
            yield from (f"| {' | '.join(map(_safe, said.host_cells(report.executed, one)))} |" for one in found)
    if said.host(report, "kind"):
        yield f"\n{said.HOST_NOTE}"


def _finding(report: TraceReport, one: TraceFinding) -> Iterator[str]:
    yield f"### {_safe(one.id)}: {said.gain(one, report)}\n\n{_safe(one.claim)}\n"
    for figure in one.evidence:
        value = (
            show(figure.value, figure.unit) if figure.unit and not figure.unit.startswith("of") else f"{figure.value:g}"
        )
        events = f" (events {', '.join(map(str, figure.events))})" if figure.events else ""
        yield f"- {_safe(figure.what)}: {value}{events}"
    if made := said.made_of(one):
        yield f"- the gain: {made}"
    for against in one.counter:
        yield f"- against it, {_safe(against.what)}: {against.state}"
    for what, gain in one.remedies:
        yield f"- at most {show(gain, 's')}: {_safe(what)}"
    yield f"- to refute: {_safe(one.falsifier)}"
    yield f"- trust: {said.trust(one)}\n"


def _safe(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return (
        words.clean(text)
        .replace("\\", "\\\\")
        .replace("|", "\\|")
        .replace("<", "&lt;")
        .replace("*", "\\*")
        .replace("_", "\\_")
    )
