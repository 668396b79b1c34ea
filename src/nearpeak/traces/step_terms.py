"""Terms into which a trace's step time is split, the rules that judged each, and the conclusion they allow."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

from nearpeak.core.traces.executed_run import NOTHING, Executed
from nearpeak.core.traces.finding_report import LARGE_RATIO, Term, TraceFinding
from nearpeak.core.traces.timeline import HOST_CAUSES, Idle
from nearpeak.traces.finding_scene import DEVICE_SAVED, Scene
from nearpeak.units import show

COMPUTING, UNEXPECTED = "computing", "computing without an expected time"
COMM, COPIES, FILLS = "communication alone", "copies alone", "fills alone"
LOSSES = (COMM, COPIES, FILLS)
"""Parts in which the device is busy without computing: a rule that finds no gain there explains none of them."""
HEALTHY_RATIO = 0.9
"""Part of the step in which the device is busy from which on a trace without findings is called healthy."""
_OF_HOST = ("idle.", "graph.", "host.")
"""How the kinds of findings begin that concern the time in which the device waits for its host."""
_NAMED = 3
"""Operators named that have no expected time."""


def idle_name(cause: Idle) -> str:
    """Return the name of the part of a step in which the device is idle for a cause.

    >>> idle_name(Idle.SYNC)
    'idle: blocking synchronisation'
    """
    return f"idle: {cause}"


HOST_IDLE = tuple(map(idle_name, HOST_CAUSES))
"""Parts in which the device waits for its host."""


def terms_of(
    scene: Scene, findings: Sequence[TraceFinding], looked: Mapping[str, Iterable[str]],
    open_reasons: Mapping[str, str], cleared: Mapping[str, Iterable[int]],
) -> tuple[Term, ...]:  # fmt: skip
    """Return the parts of a step that add up to it, longest first, each with the rules that judged it.

    Args:
        looked: rules that had all they needed, by the part that they judge.
        open_reasons: why a rule abstained, by the part that it would have judged.
        cleared: items that take as long as they should, by the rule that knows it.
    """
    executed, explained = scene.executed, _explained(scene.executed, findings)
    good = {name: tuple(places) for name, places in cleared.items()}
    judges = {name: tuple(rules) for name, rules in looked.items()}
    named = [name for group in (explained, good) for name, places in group.items() if places]
    judges[COMPUTING] = tuple(dict.fromkeys((*judges.get(COMPUTING, ()), *named)))
    places = {place for group in (explained, good) for members in group.values() for place in members}
    times_ns = _times_ns(executed, places)
    fruitless = [name for name in LOSSES if judges.get(name) and not {*judges[name]} & {*explained}]
    open_reasons = {**{name: f"{', '.join(judges.pop(name))}: no gain found" for name in fruitless}, **open_reasons}
    judges |= _waits_explained(scene, findings, {name: time for name, time in times_ns.items() if not judges.get(name)})
    terms = []
    for name, time_ns in times_ns.items():
        reason = "" if judges.get(name) else _reason(executed, name, open_reasons)
        terms.append(Term(
            name=name, time_s=time_ns * 1e-9 / executed.step_count, share_ratio=time_ns / max(1, executed.window_ns),
            judges=judges.get(name, ()), reason=reason,
        ))  # fmt: skip
    return tuple(sorted((term for term in terms if term.time_s > 0), key=lambda term: (-term.time_s, term.name)))


def _waits_explained(
    scene: Scene, findings: Iterable[TraceFinding], times_ns: Mapping[str, int]
) -> dict[str, tuple[str, ...]]:
    """Return the idle parts that a finding takes away, but for what is too small to be named, with its kind."""
    waits_s = {
        finding.id: finding.gain_s - dict(finding.terms).get(DEVICE_SAVED, 0.0)
        for finding in findings
        if finding.id.startswith(_OF_HOST)
    }
    cause = max(waits_s, key=lambda name: waits_s[name], default="")
    left_s, judges = waits_s.get(cause, 0.0), dict[str, tuple[str, ...]]()
    for name in sorted(set(times_ns) & set(HOST_IDLE), key=lambda name: -times_ns[name]):
        time_s = times_ns[name] * 1e-9 / scene.executed.step_count
        if time_s - left_s <= LARGE_RATIO * scene.recorded_step_s < time_s:
            judges[name] = (cause,)
            left_s -= min(left_s, time_s)
    return judges


def _explained(executed: Executed, findings: Iterable[TraceFinding]) -> dict[str, tuple[int, ...]]:
    """Return the items that a finding shortens, by its kind."""
    return {
        finding.id: tuple(
            change.item
            for change in finding.changes
            if change.device_ns is not None and change.device_ns < executed.items[change.item].device_ns
        )
        for finding in findings
    }


def _times_ns(executed: Executed, explained: Container[int]) -> dict[str, int]:
    line, operators = executed.timeline, executed.operators
    known_ns = sum(
        item.exclusive_ns
        for place, item in enumerate(executed.items)
        if item.kind in ("kernel", "graph")
        and (place in explained or (item.operator != NOTHING and operators[item.operator].predicted_s))
    )
    known_ns = min(known_ns, line.compute_ns)
    return {
        COMPUTING: known_ns, UNEXPECTED: line.compute_ns - known_ns, COMM: line.exposed_comm_ns,
        COPIES: line.exposed_memcpy_ns, FILLS: line.exposed_memset_ns,
        **{idle_name(cause): time for cause, time in line.idle_by_cause_ns.items()},
    }  # fmt: skip


def _reason(executed: Executed, name: str, open_reasons: Mapping[str, str]) -> str:
    """Return why no rule judged a part."""
    if name == UNEXPECTED:
        return _unexpected(executed)
    if name == idle_name(Idle.UNKNOWN):
        return executed.missing.get("links") or executed.missing.get("host") or "no call was recorded for what follows"
    return open_reasons.get(name, "no rule judges it")


def _unexpected(executed: Executed) -> str:
    """Return why computing has no expected time."""
    for need in ("operators", "shapes"):
        if need in executed.missing:
            return executed.missing[need]
    if not executed.target:
        return "the device is not known: pass --target"
    if "links" in executed.missing:
        return executed.missing["links"]
    times_ns: Counter[str] = Counter()
    for item in executed.items:
        if item.kind not in ("kernel", "graph"):
            continue
        if item.operator == NOTHING:
            times_ns["kernels of graphs" if item.kind == "graph" else "kernels of no operator"] += item.exclusive_ns
        elif not executed.operators[item.operator].predicted_s:
            times_ns[executed.operators[item.operator].name] += item.exclusive_ns
    return f"no case for {', '.join(name for name, time_ns in times_ns.most_common(_NAMED) if time_ns)}"


def verdict_of(scene: Scene, findings: Sequence[TraceFinding], terms: Sequence[Term]) -> str:
    """Return what may be concluded: never more than was judged, every large part that was not by its name."""
    step, what = show(scene.step_s, "s"), "a step" if scene.executed.steps_found else "the window"
    unjudged = [term for term in terms if term.is_open]
    gaining = [entry for entry in findings if entry.gain_s > 0]
    if gaining:
        sentence = _found(scene, gaining[0], what, step)
        if not unjudged:
            return sentence
        if gaining[0].gain_s >= unjudged[0].time_s:
            return f"{sentence}; no conclusion on {_named(unjudged, what)}"
        return f"no conclusion on {_named(unjudged, what)}; found beside it: {sentence}"
    if not scene.executed.timeline.kernel_count + scene.executed.timeline.comm_count:
        return f"no conclusion: only copies and fills were recorded in {what} of {step}, no kernels"
    return _without_findings(scene, terms, what, step)


def _found(scene: Scene, first: TraceFinding, what: str, step: str) -> str:
    least = show(max(0.0, scene.step_s - first.gain_s), "s")
    share = first.gain_s / scene.step_s
    return f"{first.claim}; without that {what} would take {least} instead of {step} ({share:.0%} less)"


def _named(terms: Sequence[Term], what: str) -> str:
    """Return the parts with their shares, and why the longest was not judged."""
    first, *others = terms
    texts = [f"{first.name}, {first.share_ratio:.0%} of {what} ({first.reason})"]
    return " and ".join([*texts, *(f"{term.name}, {term.share_ratio:.0%}" for term in others)])


def _without_findings(scene: Scene, terms: Sequence[Term], what: str, step: str) -> str:
    busy = scene.executed.timeline.busy_ns / max(1, scene.executed.window_ns)
    unjudged = [term for term in terms if term.is_open]
    timed = scene.executed.states_times
    if timed and busy >= HEALTHY_RATIO and [term.name for term in unjudged] == [UNEXPECTED]:
        executed, unknown = scene.executed, unjudged[0].share_ratio / busy
        if not executed.target and executed.unmatched_ns:  # what has no case stays unknown with any device
            unknown = executed.unmatched_ns / executed.timeline.busy_ns
        return (
            f"no conclusion: the device is busy {busy:.0%} of {what} of {step}, and for {unknown:.0%} of that time "
            f"no expected time is known: {unjudged[0].reason}"
        )
    if unjudged:
        return f"no conclusion on {what} of {step}: {_named(unjudged, what)}"
    if not timed:
        return "no conclusion on idle time, which the file does not state; no rule found a problem in the kernels"
    if busy >= HEALTHY_RATIO:
        return f"healthy: the device is busy {busy:.0%} of {what} of {step}, and no rule found a problem"
    return f"no conclusion: no cause found for {1 - busy:.0%} idle time of {what} of {step}; see the abstentions"
