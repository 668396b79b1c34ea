"""Words of a trace's report that all of its formats share."""

from collections.abc import Iterator

from nearpeak.core.traces.executed_run import HOST_KINDS_OF_TIME, Executed, ExecutedOperator, HostCost
from nearpeak.core.traces.finding_report import TraceFinding, TraceReport
from nearpeak.core.traces.shortfall import TERMS
from nearpeak.reports import figure_text as words
from nearpeak.units import show

HEADINGS = ("operator", "calls", "measured", "expected", "bound", "of bound")
HOST_HEADINGS = ("calls", "of a call", "per step", "saves at most")


def subject(report: TraceReport) -> str:
    """Return what was looked at, in one line."""
    executed = report.executed
    device = words.clean(executed.device) or executed.target or "an unnamed device"
    beside = f", beside {words.clean(executed.target)}" if executed.target else ""
    counted = f"{executed.step_count} step{'s' if executed.step_count > 1 else ''}"
    steps = counted if executed.steps_found else "no steps marked: the whole window counts as one"
    warm = f", {executed.left_out_count} left out as warm-up" if executed.left_out_count else ""
    return f"{executed.format} trace on {device}{beside}; {steps}{warm}"


def span(executed: Executed) -> str:
    """Return what the parts add up to: a step only where somebody marked steps."""
    return "one step" if executed.steps_found else "whole window"


def parts(executed: Executed) -> Iterator[tuple[str, int]]:
    """Yield the parts of the window; they add up to it."""
    timeline = executed.timeline
    yield "computing", timeline.compute_ns
    yield "communication alone", timeline.exposed_comm_ns
    yield "copies alone", timeline.exposed_memcpy_ns
    yield "fills alone", timeline.exposed_memset_ns
    for cause, time in sorted(timeline.idle_by_cause_ns.items(), key=lambda pair: -pair[1]):
        yield f"idle: {cause}", time


def critical_path(executed: Executed) -> str:
    """Return what decided when the last work ended, in one line; empty where nothing ran."""
    total = sum(executed.path_ns.values())
    if not total:
        return ""
    shares = sorted(executed.path_ns.items(), key=lambda pair: -pair[1])
    shown = [f"{name} {time / total:.0%}" for name, time in shares if time > 0.005 * total]
    return f"critical path, by what decided: {', '.join(shown)}"


def modules(executed: Executed) -> Iterator[tuple[str, int]]:
    """Yield the modules with their device time, longest first."""
    for name, time in executed.module_ns.items():
        yield words.clean(name.removeprefix("nn.Module: ")) or "in no module", time


HOST = {"kind": "host: what it does", "operator": "host: for which operator", "module": "host: in which module"}
"""Headings of the tables of the host's time."""
HOST_NOTE = "as recorded, profiler included; what each saves at most is a replay without it, and these do not add up"
_LEAST_RATIO = 0.01


def host(report: TraceReport, by: str) -> list[HostCost]:
    """Return the host's time by `kind`, `operator` or `module`, where the step waits for its host at all."""
    executed = report.executed
    least = _LEAST_RATIO * executed.window_ns
    if report.verdict.startswith("no conclusion") or all(one.gain_ns < least for one in executed.host):
        return []
    return [one for one in executed.host if one.by == by and (by == "kind" or one.gain_ns >= least)]


def host_cells(executed: Executed, one: HostCost) -> tuple[str, str, str, str, str]:
    """Return name, calls of a step, time of a call, time of a step, and what a step saves at most."""
    name = HOST_KINDS_OF_TIME[one.name] if one.by == "kind" else words.clean(one.name.removeprefix("nn.Module: "))
    calls = one.call_count / executed.step_count
    each = show(one.time_ns * 1e-9 / max(1, one.call_count), "s")
    return name, f"{calls:.0f}", each, per_step(executed, one.time_ns), per_step(executed, one.gain_ns)


def per_step(executed: Executed, time_ns: float) -> str:
    """Return a time of the window as time of a step, in words."""
    return show(time_ns * 1e-9 / executed.step_count, "s")


def matched(report: TraceReport) -> str:
    """Return how much device time no case stands behind."""
    executed = report.executed
    busy = executed.timeline.busy_ns
    if "shapes" in executed.missing:
        return f"unmatched: all device time; {executed.missing['shapes']}"
    share = executed.unmatched_ns / busy if busy else 0.0
    time = per_step(executed, executed.unmatched_ns)
    return f"unmatched: {time} of a step ({share:.1%} of busy time) has no case behind it"


def slowest(executed: Executed) -> list[ExecutedOperator]:
    """Return the operators, most device time first."""
    return sorted(executed.operators, key=lambda one: (-one.device_ns, one.name))


def cells(executed: Executed, one: ExecutedOperator) -> tuple[str, ...]:
    """Return a row for an operator; times are of one call."""
    label = words.clean(one.label or one.name)
    reached = f"{one.bound_s / one.measured_s:.0%}" if one.bound_s and one.measured_s else "–"
    return (
        label, f"{one.call_count / executed.step_count:g}", show(one.measured_s, "s"),
        show(one.predicted_s, "s") if one.predicted_s else "–", show(one.bound_s, "s") if one.bound_s else "–", reached,
    )  # fmt: skip


def gain(one: TraceFinding, report: TraceReport) -> str:
    """Return the gain of a finding in words."""
    if one.method == "none":
        return "corrects a claim"
    share = one.gain_s / report.step_s if report.step_s else 0.0
    return f"{show(one.gain_s, 's')} ({share:.0%}; {show(one.gain_low_s, 's')} to {show(one.gain_high_s, 's')})"


def made_of(one: TraceFinding) -> str:
    """Return why a gain is larger or smaller than the time that its evidence names: its terms, which sum to it.

    Empty where the gain is one term alone.
    """
    if len(one.terms) < 2:
        return ""
    (name, time), *rest = one.terms
    signed = [f"{'+' if value > 0 else '−'} {show(abs(value), 's')} {what}" for what, value in rest]
    return f"{show(one.gain_s, 's')} = {show(time, 's')} {name} {' '.join(signed)}"


def trust(one: TraceFinding) -> str:
    """Return how often findings of this kind were right where the cause is known."""
    found = one.planted
    if found is None:
        return "how often it is right was not measured: no traces have this cause planted"
    return (
        f"first in {found.right_count:,} of {found.trace_count:,} traces with this cause planted and in "
        f"{found.wrong_count:,} of {found.other_count:,} without it ({found.date})"
    )


def together(report: TraceReport) -> str:
    """Return what all findings gain at once, and which overlap."""
    share = report.together_s / report.step_s if report.step_s else 0.0
    pairs = "; ".join(f"{one} and {other}" for one, other in report.exclusive)
    overlap = f"; these take the same time away: {pairs}" if pairs else ""
    whole = "step" if report.executed.steps_found else "window"
    gained = f"{show(report.together_s, 's')} of the {whole} ({share:.0%})"
    return f"all causes gone at once: {gained}, not the sum{overlap}"


def shortfall(report: TraceReport) -> Iterator[tuple[str, int]]:
    """Yield the parts of executed less expected time, in words."""
    found = report.shortfall
    for part in found.parts if found else ():
        yield TERMS[part.term] + (f": {part.detail}" if part.detail else ""), part.time_ns
