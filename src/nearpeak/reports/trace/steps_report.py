"""Report of a trace: verdict, time breakdown, findings, operators against theory, and unknowns."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from nearpeak.core.traces.executed_run import HOST_KINDS_OF_TIME, NOTHING, Executed, ExecutedOperator, HostCost
from nearpeak.core.traces.finding_report import TraceFinding, TraceReport
from nearpeak.core.traces.shortfall import TERMS
from nearpeak.reports.document import (
    Block,
    Details,
    Document,
    Heading,
    Items,
    Span,
    Table,
    Text,
    Timeline,
    Words,
    columns,
)
from nearpeak.reports.figure_text import clean
from nearpeak.reports.trace.steps_headline import headline_of
from nearpeak.units import counted, show

KIND, SCHEMA_VERSION = "nearpeak trace report", 1
_LEFT_OUT = ("items", "slices", "rows", "called", "counters")
TOP_COUNT, SHOWN_COUNT = 8, 40
"""Operators and modules that a terminal shows, and that a page shows."""
_COLOURS = {
    "gemm": "product", "conv": "convolution", "attention": "attention", "norm": "norm", "elementwise": "pointwise",
    "reduction": "reduction", "cast": "movement", "layout": "movement", "comm": "link", "optimizer": "optimizer",
    "copy": "dram", "set": "l2", "call": "matrix", "operator": "special", "range": "other", "unknown": "other",
    "other": "other",
}  # fmt: skip
"""Colour of the style sheet by what a slice is."""
REASON_COUNT = 6
"""Operators without a bound whose reason is shown."""
HOST_TITLES = {"kind": "host: what it does", "operator": "host: for which operator", "module": "host: in which module"}
"""Headings of the tables of the host's time."""
_HOST_NOTE = "as recorded, profiler included; what each saves at most is a replay without it, and these do not add up"
_LEAST_RATIO = 0.01
"""Part of the window below which a cost of the host is not shown."""


def document_of(report: TraceReport) -> Document:
    """Return the report as a document."""
    executed = report.executed
    slices = [(part.row, part.start_ns, part.end_ns, part.name, part.kind) for part in executed.slices]
    blocks: list[Block] = [
        _matched(report), *(Text(note, "muted") for note in executed.notes),
        Timeline(rows=tuple(executed.rows), window_ns=executed.window_ns, colours=_COLOURS, slices=slices),
        *_parts(executed),
        *_findings(report), *_operators(executed), *_modules(executed), *_host(report), *_shortfall(report),
        *_limits(report),
    ]  # fmt: skip
    return Document(
        title=executed.name, subject=_subject(report), lead=headline_of(report), blocks=blocks,
        figures=_figures(report),
        kicker="Expected and executed", foot=f"nearpeak {report.created}; {executed.timeline.order}",
    )  # fmt: skip


def _subject(report: TraceReport) -> str:
    """Return the subject of the report, in one line."""
    executed = report.executed
    device = clean(executed.device) or executed.target or "an unnamed device"
    beside = f", beside {executed.target}" if executed.target else ""
    steps = counted(executed.step_count, "step")
    steps = steps if executed.steps_found else "no steps marked: the whole window counts as one"
    warm = f", {executed.left_out_count} left out as warm-up" if executed.left_out_count else ""
    return f"{executed.format} trace on {device}{beside}; {steps}{warm}"


def _figures(report: TraceReport) -> list[tuple[str, str, str]]:
    executed, line = report.executed, report.executed.timeline
    steps = f"{executed.step_count} looked at" if executed.steps_found else "no steps marked"
    busy = f"{100 * line.busy_ns / (executed.window_ns or 1):.0f} %"
    return [
        (_span(executed).capitalize(), _per_step(executed, executed.window_ns), steps),
        ("Device busy", busy, f"idle {_per_step(executed, line.idle_ns)} per step"),
        ("All causes gone", show(report.together_s, "s"), "less per step, replayed together"),
        ("Unmatched", _per_step(executed, executed.unmatched_ns), "device time without a case, per step"),
    ]


def _span(executed: Executed) -> str:
    """Return what the parts add up to: a step only where somebody marked steps."""
    return "one step" if executed.steps_found else "whole window"


def _per_step(executed: Executed, time_ns: float) -> str:
    """Return a time of the window as time of a step, in words."""
    return show(time_ns * 1e-9 / executed.step_count, "s")


def _matched(report: TraceReport) -> str:
    """Return the device time that no case explains."""
    executed = report.executed
    busy = executed.timeline.busy_ns
    if "shapes" in executed.missing:
        return f"unmatched: all device time; {executed.missing['shapes']}"
    if not executed.unmatched_ns:
        return "matched: all time of kernels has a case behind it"
    share = executed.unmatched_ns / busy if busy else 0.0
    time = _per_step(executed, executed.unmatched_ns)
    whole = "a step" if executed.steps_found else "the window"
    return f"unmatched: {time} of {whole} ({share:.1%} of busy time) has no case behind it"


def _parts(executed: Executed) -> Iterator[Block]:
    """Yield the parts of the window, which add up to it, and what decided when the last work ended."""
    line = executed.timeline
    parts = [
        ("computing", line.compute_ns), ("communication alone", line.exposed_comm_ns),
        ("copies alone", line.exposed_memcpy_ns), ("fills alone", line.exposed_memset_ns),
        *((f"idle: {cause}", time)
          for cause, time in sorted(line.idle_by_cause_ns.items(), key=lambda pair: -pair[1])),
    ]  # fmt: skip
    whole_ns = max(1, executed.window_ns)
    rows = [(name, _per_step(executed, time), time / whole_ns, time / whole_ns) for name, time in parts if time]
    rows.append((_span(executed), _per_step(executed, executed.window_ns), 1.0, 0.0))
    yield Heading("Where the time goes")
    yield Table(columns=columns("part", "#time", "#share_ratio|share", "share_bar|"), rows=rows)
    total_ns = sum(executed.path_ns.values())
    shares = sorted(executed.path_ns.items(), key=lambda pair: -pair[1])
    shares_text = ", ".join(f"{name} {time / total_ns:.0%}" for name, time in shares if time > 0.005 * total_ns)
    yield f"critical path, by what decided: {shares_text}" if total_ns else ""


def _findings(report: TraceReport) -> Iterator[Block]:
    places = {part.event: place for place, part in enumerate(report.executed.slices) if part.event != NOTHING}
    yield Heading("Findings" if report.findings else "No findings")
    for number, finding in enumerate(report.findings, start=1):
        yield Heading((f"{number}. {finding.action} → {_gain(finding, report)}  ", Span(finding.id, "muted")), 3)
        yield finding.claim
        yield Details(f"evidence and counter-evidence of {finding.id}", (Items(tuple(_evidence(finding, places))),))
    if len(report.findings) > 1:
        yield _together(report)


def _evidence(finding: TraceFinding, places: Mapping[int, int]) -> Iterator[Words]:
    """Yield what a finding rests on, what speaks against it, and how to refute it.

    Args:
        places: places of events among the slices of the timeline, to which a page leads from their numbers.
    """
    for figure in finding.evidence:
        of_unit = figure.unit and not figure.unit.startswith("of")
        value = show(figure.value, figure.unit) if of_unit else f"{figure.value:.4g} {figure.unit}".rstrip()
        numbers = [Span(str(event), f"slice-{places[event]}" if event in places else "") for event in figure.events]
        events = [piece for number in numbers for piece in (", ", number)]
        listed = (" (events ", *events[1:], ")") if events else ()
        yield (f"evidence: {figure.what} ", Span(value, "strong"), *listed)
    if len(finding.terms) > 1:
        # The terms sum to the gain: they say why it is larger or smaller than the time that the evidence names.
        (name, time), *rest = finding.terms
        signed = [f"{'+' if value > 0 else '−'} {show(abs(value), 's')} {what}" for what, value in rest]
        yield f"the gain: {show(finding.gain_s, 's')} = {show(time, 's')} {name} {' '.join(signed)}"
    yield from (Span(f"against it: {counter.what}: {counter.state}", "muted") for counter in finding.counter)
    yield from (f"at most {show(gain, 's')}: {what}" for what, gain in finding.remedies if gain > 0)
    yield f"to refute: {finding.falsifier}"
    yield Span(f"trust: {_trust(finding)}", "muted")


def _gain(finding: TraceFinding, report: TraceReport) -> str:
    """Return the gain of a finding in words."""
    if finding.method == "none":
        return "corrects a claim"
    share = finding.gain_s / report.step_s if report.step_s else 0.0
    interval = f"{show(finding.gain_low_s, 's')} to {show(finding.gain_high_s, 's')}"
    return f"{show(finding.gain_s, 's')} less ({share:.0%}; {interval})"


def _trust(finding: TraceFinding) -> str:
    """Return how often findings of this kind were right where the cause is known."""
    planted = finding.planted
    if planted is None:
        return "how often it is right was not measured: no traces have this cause planted"
    return (
        f"first in {planted.right_count:,} of {planted.trace_count:,} traces with this cause planted and in "
        f"{planted.wrong_count:,} of {planted.other_count:,} without it ({planted.date})"
    )


def _together(report: TraceReport) -> str:
    """Return what all findings gain at once, and which overlap."""
    share = report.together_s / report.step_s if report.step_s else 0.0
    pairs = "; ".join(f"{first} and {other}" for first, other in report.exclusive)
    overlap = f"; these take the same time away: {pairs}" if pairs else ""
    whole = "step" if report.executed.steps_found else "window"
    gained = f"{show(report.together_s, 's')} of the {whole} ({share:.0%})"
    return f"all causes gone at once: {gained}, not the sum{overlap}"


def _operators(executed: Executed) -> Iterator[Block]:
    """Yield the operators against theory, most device time first; times are of one call."""
    ordered = sorted(executed.operators, key=lambda operator: (-operator.device_ns, operator.name))
    left = _per_step(executed, sum(operator.device_ns for operator in ordered[TOP_COUNT:]))
    rest = f"{len(ordered) - TOP_COUNT} more: {left} of a step"
    heads = ("#calls", "#measured_s|measured", "#predicted_s|expected", "#bound_s|bound", "#of bound")
    if ordered:
        yield Heading("Operators against theory")
        yield Table(columns=columns("operator", *heads),
                    rows=[_cells(executed, operator) for operator in ordered[:SHOWN_COUNT]],
                    brief_count=TOP_COUNT, rest=rest)  # fmt: skip
        yield Text("calls are of a step, times of a call", "muted")
    yield from _without_case(executed, ordered)


def _without_case(executed: Executed, ordered: Sequence[ExecutedOperator]) -> Iterator[Block]:
    """Yield why device time has no case or no bound behind it, operator by operator."""
    reasons = [(operator.device_ns, operator.label or operator.name, operator.reason)
               for operator in ordered if operator.reason and operator.device_ns]  # fmt: skip
    stray_ns = sum(item.exclusive_ns for item in executed.items if item.operator == NOTHING != item.event)
    if stray_ns and "operators" not in executed.missing:
        reasons.append((stray_ns, "work outside operators", "no operator encloses the calls that launched it"))
    reasons.sort(key=lambda entry: -entry[0])
    lines = [f"{clean(name)}: {_per_step(executed, time)} of a step: {reason}" for time, name, reason in reasons]
    left = [f"{counted(len(lines) - REASON_COUNT, 'more operator')}"] if len(lines) > REASON_COUNT else []
    if lines and "shapes" not in executed.missing:
        yield Heading("Without a bound, and why", 3)
        yield Items(tuple(Span(line, "muted") for line in [*lines[:REASON_COUNT], *left]))


def _cells(executed: Executed, operator: ExecutedOperator) -> Sequence[str | float | None]:
    reached = f"{operator.bound_s / operator.measured_s:.0%}" if operator.bound_s and operator.measured_s else "–"
    calls = f"{round(operator.call_count / executed.step_count, 2):g}"
    return (
        operator.label or operator.name,
        calls,
        operator.measured_s,
        operator.predicted_s or None,
        operator.bound_s or None,
        reached,
    )


def _modules(executed: Executed) -> Iterator[Block]:
    """Yield the modules with their device time, longest first."""
    total_ns = max(1, sum(executed.module_ns.values()))
    rows = [(clean(name.removeprefix("nn.Module: ")) or "in no module", _per_step(executed, time), time / total_ns)
            for name, time in executed.module_ns.items()]  # fmt: skip
    left = _per_step(executed, sum(list(executed.module_ns.values())[TOP_COUNT:]))
    rest = f"{len(rows) - TOP_COUNT} more: {left} of a step"
    if rows:
        yield Heading("Time by module")
        heads = columns("module", "#time", "#share_ratio|share")
        yield Table(columns=heads, rows=rows[:SHOWN_COUNT], brief_count=TOP_COUNT, rest=rest)


def host_costs(report: TraceReport, by: str) -> list[HostCost]:
    """Return the host's time by `kind`, `operator` or `module`, where the step waits for its host at all."""
    executed = report.executed
    least = _LEAST_RATIO * executed.window_ns
    if report.refused or all(cost.gain_ns < least for cost in executed.host):
        return []
    return [cost for cost in executed.host if cost.by == by and (by == "kind" or cost.gain_ns >= least)]


def _host(report: TraceReport) -> Iterator[Block]:
    tables = [
        Table(columns=columns(heading, "#calls", "#of a call", "#per step", "#saves at most"),
              rows=[_host_cells(report.executed, cost) for cost in costs])
        for by, heading in HOST_TITLES.items() if (costs := host_costs(report, by))
    ]  # fmt: skip
    if tables:
        yield Heading("The host")
        yield from tables
        yield Text(_HOST_NOTE, "muted")


def _host_cells(executed: Executed, cost: HostCost) -> tuple[str, str, str, str, str]:
    """Return name, calls of a step, time of a call, time of a step, and what a step saves at most."""
    name = HOST_KINDS_OF_TIME[cost.name] if cost.by == "kind" else clean(cost.name.removeprefix("nn.Module: "))
    calls = cost.call_count / executed.step_count
    each = show(cost.time_ns * 1e-9 / max(1, cost.call_count), "s")
    return name, f"{calls:.0f}", each, _per_step(executed, cost.time_ns), _per_step(executed, cost.gain_ns)


def _shortfall(report: TraceReport) -> Iterator[Block]:
    """Yield the parts of executed less expected time."""
    if report.shortfall is None:
        return
    executed, whose = report.executed, f"of {report.model}" if report.model else "of the operators that ran"
    rows = [("expected", _per_step(executed, report.shortfall.expected_ns))]
    for part in report.shortfall.parts:
        name = TERMS[part.term] + (f": {part.detail}" if part.detail else "")
        rows.append((f"{'+' if part.time_ns > 0 else '−'} {name}", _per_step(executed, abs(part.time_ns))))
    rows.append(("executed", _per_step(executed, report.shortfall.executed_ns)))
    yield Heading(f"Beyond the expected time {whose}")
    yield Table(columns=columns("part", "#per step"), rows=rows)
    yield Text(f"{report.shortfall.covered_ratio:.0%} of busy time has an expected time", "muted")


def _limits(report: TraceReport) -> Iterator[Block]:
    reasons: dict[str, list[str]] = {}
    for abstention in report.abstentions:
        reasons.setdefault(abstention.reason, []).append(abstention.id)
    lines = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
    lines += report.executed.losses
    if lines:
        yield Heading("Not determined, and what to record for it")
        yield Items(tuple(Span(line, "muted") for line in lines))


def to_json(report: TraceReport) -> str:
    """Return the report as one JSON object; cases as `label` names them."""
    record: dict[str, Any] = {"kind": KIND, "schema_version": SCHEMA_VERSION}
    for field in fields(report):
        if field.name != "executed":
            record[field.name] = _plain(getattr(report, field.name))
    record["step_s"] = report.step_s
    record["headline"] = headline_of(report)
    record["findings"] = [
        {name: value for name, value in finding.items() if name != "changes"} for finding in record["findings"]
    ]
    executed = report.executed
    record["executed"] = {
        field.name: _plain(getattr(executed, field.name)) for field in fields(executed) if field.name not in _LEFT_OUT
    }
    return json.dumps(record, ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def _plain(value: Any) -> Any:
    """Return a value as objects, lists and scalars; tuples with names keep them."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, dict) or hasattr(value, "items"):
        return {str(name): _plain(item) for name, item in value.items()}
    return value
