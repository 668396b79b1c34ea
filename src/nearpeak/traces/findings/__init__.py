"""Registry of finding rules and the report built from them: evidence, gain, counter-evidence, abstentions."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

from nearpeak.base.registry import Registry
from nearpeak.core.traces.executed_run import Executed
from nearpeak.core.traces.finding_report import Abstained, Planted, TraceFinding, TraceReport
from nearpeak.traces.executed.queue_replay import merged, replayed_ns
from nearpeak.traces.executed.shortfall_terms import shortfall_of
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import LEAST_RATIO, Scene
from nearpeak.units import show

UNMATCHED_RATIO = 0.5
"""Part of the busy time without a case behind it from which on nothing is called healthy."""
HEALTHY_RATIO = 0.9
"""Part of the step in which the device is busy from which on a trace without findings is called healthy."""


RULES: Registry[Rule] = Registry.of_modules(
    "RULE", kind="finding", package=__name__, file=__file__, group="nearpeak.findings"
)
"""All rules by name; adding one is adding a file that ends in `RULE = Rule(...)`."""

PLANTED = Path(__file__).with_name("planted.json")
"""What `benchmarks/planted_traces.py` counted, by kind of finding."""


@cache
def planted_shares() -> Mapping[str, Planted]:
    """Return how often each kind of finding was right on traces with planted causes; kinds without such traces lack.

    >>> share = planted_shares()["idle.launch_bound"]
    >>> 0 <= share.right_count <= share.trace_count and 0 <= share.wrong_count <= share.other_count
    True
    """
    record = json.loads(PLANTED.read_text("utf-8"))
    return {name: Planted(date=record["date"], **counts) for name, counts in record["findings"].items()}


def report_of(executed: Executed, version: str = "", unseen_ns: int = 0, model: str = "") -> TraceReport:
    """Return the findings of the steps, largest gain first, and the abstentions.

    Gains are not added: `together_s` replays the steps with all causes gone at once.

    Args:
        unseen_ns: expected time of operators of `model` that never ran.
    """
    scene = Scene(executed)
    results = [item for name in RULES for item in RULES[name](scene)]
    abstained = tuple(item for item in results if isinstance(item, Abstained))
    refused = scene.refused()
    shortfall = shortfall_of(executed, unseen_ns) if any(item.predicted_s for item in executed.operators) else None
    if refused:
        return TraceReport(
            executed=executed, verdict=f"no conclusion: {refused}", findings=(), abstentions=abstained, together_s=0.0,
            exclusive=(), shortfall=shortfall, model=model, created=version,
        )  # fmt: skip
    shares = planted_shares()
    findings = _ranked(replace(item, planted=shares.get(item.id)) for item in results if isinstance(item, TraceFinding))
    at_once_s = scene.gain_s(tuple(change for item in findings for change in item.changes))
    own_gains_s = [item.gain_s for item in findings if not item.remedy_of]
    together_s = max(min(at_once_s, sum(own_gains_s)), max(own_gains_s, default=0.0))
    return TraceReport(
        executed=executed, verdict=_verdict(scene, findings), findings=tuple(findings), abstentions=abstained,
        together_s=together_s, exclusive=_exclusive(scene, findings),
        shortfall=shortfall,
        model=model, created=version,
    )  # fmt: skip


def _ranked(findings: Iterable[TraceFinding]) -> list[TraceFinding]:
    """Return the findings, largest gain first, each cause followed by its remedies, which add no gain."""
    by_gain = sorted(findings, key=lambda finding: (-finding.gain_s, finding.id, finding.key))
    causes = {finding.id for finding in by_gain}
    remedies = [finding for finding in by_gain if finding.remedy_of in causes]
    ranked = []
    for finding in by_gain:
        if finding.remedy_of not in causes:
            ranked += [finding, *(remedy for remedy in remedies if remedy.remedy_of == finding.id)]
            remedies = [remedy for remedy in remedies if remedy.remedy_of != finding.id]
    return ranked


def _exclusive(scene: Scene, findings: list[TraceFinding]) -> tuple[tuple[str, str], ...]:
    """Return the pairs whose gains overlap by more than a tenth of the smaller one."""
    pairs = []
    for first, second in combinations([first for first in findings if first.changes and not first.remedy_of][:6], 2):
        both_s = scene.gain_s((*first.changes, *second.changes))
        if first.gain_s + second.gain_s - both_s > 0.1 * min(first.gain_s, second.gain_s):
            pairs.append((_name(first), _name(second)))
    return tuple(pairs)


def _name(finding: TraceFinding) -> str:
    return f"{finding.id} {finding.key}".strip()


def _verdict(scene: Scene, findings: list[TraceFinding]) -> str:
    step, what = show(scene.step_s, "s"), "a step" if scene.executed.steps_found else "the window"
    gaining = [entry for entry in findings if entry.gain_s > 0]
    if gaining:
        first = gaining[0]
        least = show(max(0.0, scene.step_s - first.gain_s), "s")
        share = first.gain_s / scene.step_s
        return f"{first.claim}; without that {what} would take {least} instead of {step} ({share:.0%} less)"
    if not scene.executed.timeline.kernel_count + scene.executed.timeline.comm_count:
        return f"no conclusion: only copies and fills were recorded in {what} of {step}, no kernels"
    busy = scene.executed.timeline.busy_ns / max(1, scene.executed.window_ns)
    unmatched = scene.executed.unmatched_ns / max(1, scene.executed.timeline.busy_ns)
    if scene.executed.cpu_alone and not any(entry.predicted_s for entry in scene.executed.operators):
        unmatched = 1.0  # a CPU is busy however badly it is used
    if busy >= HEALTHY_RATIO and unmatched > UNMATCHED_RATIO:
        return (
            f"no conclusion: the device is busy {busy:.0%} of {what} of {step}, and for {unmatched:.0%} of that time "
            "no expected time is known; pass --target, record shapes"
        )
    if busy >= HEALTHY_RATIO:
        return f"healthy: the device is busy {busy:.0%} of {what} of {step}, and no rule found a problem"
    return f"no cause found for {1 - busy:.0%} idle time of {what} of {step}; see the abstentions"


__all__ = ["LEAST_RATIO", "PLANTED", "RULES", "Rule", "Scene", "merged", "planted_shares", "replayed_ns", "report_of"]
