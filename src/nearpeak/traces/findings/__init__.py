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

    >>> one = planted_shares()["idle.launch_bound"]
    >>> 0 <= one.right_count <= one.trace_count and 0 <= one.wrong_count <= one.other_count
    True
    """
    record = json.loads(PLANTED.read_text("utf-8"))
    return {name: Planted(date=record["date"], **counts) for name, counts in record["findings"].items()}


def report_of(executed: Executed, version: str = "", unseen_ns: int = 0, model: str = "") -> TraceReport:
    """Return the findings of the steps, largest gain first, and what could not be told.

    Gains are not added: `together_s` replays the steps with all causes gone at once.

    Args:
        unseen_ns: expected time of operators of `model` that never ran.
    """
    scene = Scene(executed)
    said = [one for name in RULES for one in RULES[name](scene)]
    abstained = tuple(one for one in said if isinstance(one, Abstained))
    refused = scene.refused()
    shortfall = shortfall_of(executed, unseen_ns) if any(one.predicted_s for one in executed.operators) else None
    if refused:
        return TraceReport(
            executed=executed, verdict=f"no conclusion: {refused}", findings=(), abstentions=abstained, together_s=0.0,
            exclusive=(), shortfall=shortfall, model=model, created=version,
        )  # fmt: skip
    shares = planted_shares()
    found = _ranked(replace(one, planted=shares.get(one.id)) for one in said if isinstance(one, TraceFinding))
    at_once_s = scene.gain_s(tuple(change for one in found for change in one.changes))
    own = [one.gain_s for one in found if not one.remedy_of]
    together_s = max(min(at_once_s, sum(own)), max(own, default=0.0))
    return TraceReport(
        executed=executed, verdict=_verdict(scene, found), findings=tuple(found), abstentions=abstained,
        together_s=together_s, exclusive=_exclusive(scene, found),
        shortfall=shortfall,
        model=model, created=version,
    )  # fmt: skip


def _ranked(said: Iterable[TraceFinding]) -> list[TraceFinding]:
    """Return the findings, largest gain first, and behind each cause what removes it, which gains nothing besides."""
    found = sorted(said, key=lambda one: (-one.gain_s, one.id, one.key))
    causes = {one.id for one in found}
    remedies = [one for one in found if one.remedy_of in causes]
    ranked = []
    for one in found:
        if one.remedy_of not in causes:
            ranked += [one, *(each for each in remedies if each.remedy_of == one.id)]
            remedies = [each for each in remedies if each.remedy_of != one.id]
    return ranked


def _exclusive(scene: Scene, found: list[TraceFinding]) -> tuple[tuple[str, str], ...]:
    """Return the pairs whose gains overlap by more than a tenth of the smaller one."""
    pairs = []
    for one, other in combinations([one for one in found if one.changes and not one.remedy_of][:6], 2):
        both_s = scene.gain_s((*one.changes, *other.changes))
        if one.gain_s + other.gain_s - both_s > 0.1 * min(one.gain_s, other.gain_s):
            pairs.append((_name(one), _name(other)))
    return tuple(pairs)


def _name(one: TraceFinding) -> str:
    return f"{one.id} {one.key}".strip()


def _verdict(scene: Scene, found: list[TraceFinding]) -> str:
    step, what = show(scene.step_s, "s"), "a step" if scene.executed.steps_found else "the window"
    gaining = [one for one in found if one.gain_s > 0]
    if gaining:
        first = gaining[0]
        least = show(max(0.0, scene.step_s - first.gain_s), "s")
        share = first.gain_s / scene.step_s
        return f"{first.claim}; without that {what} would take {least} instead of {step} ({share:.0%} less)"
    if not scene.executed.timeline.kernel_count + scene.executed.timeline.comm_count:
        return f"no conclusion: only copies and fills were recorded in {what} of {step}, no kernels"
    busy = scene.executed.timeline.busy_ns / max(1, scene.executed.window_ns)
    unmatched = scene.executed.unmatched_ns / max(1, scene.executed.timeline.busy_ns)
    if scene.executed.cpu_alone and not any(one.predicted_s for one in scene.executed.operators):
        unmatched = 1.0  # a CPU is busy however badly it is used
    if busy >= HEALTHY_RATIO and unmatched > UNMATCHED_RATIO:
        return (
            f"no conclusion: the device is busy {busy:.0%} of {what} of {step}, and for {unmatched:.0%} of that time "
            "it is not known what should have run, or how fast; give --target, record shapes"
        )
    if busy >= HEALTHY_RATIO:
        return f"healthy: the device is busy {busy:.0%} of {what} of {step}, and nothing that is looked for was found"
    return f"no cause found for {1 - busy:.0%} idle time of {what} of {step}; see what could not be told"


__all__ = ["LEAST_RATIO", "PLANTED", "RULES", "Rule", "Scene", "merged", "planted_shares", "replayed_ns", "report_of"]
