"""Registry of finding rules and the report built from them: evidence, gain, counter-evidence, abstentions."""

import json
from collections.abc import Iterable, Mapping, Sequence
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
from nearpeak.traces.step_terms import terms_of, verdict_of

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
    by_rule = {name: tuple(RULES[name](scene)) for name in RULES if RULES[name].concerns(scene)}
    results = [item for items in by_rule.values() for item in items]
    abstained = tuple(item for item in results if isinstance(item, Abstained))
    refused = scene.refused()
    shortfall = shortfall_of(executed, unseen_ns) if any(item.predicted_s for item in executed.operators) else None
    if refused:
        return TraceReport(
            executed=executed, verdict=f"no conclusion: {refused}", refused=refused, findings=(), abstentions=abstained,
            together_s=0.0, exclusive=(), shortfall=shortfall, model=model, created=version,
        )  # fmt: skip
    shares = planted_shares()
    findings = _ranked(replace(item, planted=shares.get(item.id)) for item in results if isinstance(item, TraceFinding))
    at_once_s = scene.gain_s(tuple(change for item in findings for change in item.changes))
    own_gains_s = [item.gain_s for item in findings if not item.remedy_of]
    together_s = max(min(at_once_s, sum(own_gains_s)), max(own_gains_s, default=0.0))
    cleared = {RULES[name].id: tuple(RULES[name].clears(scene)) for name in RULES}
    terms = terms_of(scene, findings, *_judged(by_rule), cleared)
    return TraceReport(
        executed=executed, verdict=verdict_of(scene, findings, terms), terms=terms,
        findings=tuple(findings), abstentions=abstained,
        together_s=together_s, exclusive=_exclusive(scene, findings),
        shortfall=shortfall,
        model=model, created=version,
    )  # fmt: skip


def _judged(
    by_rule: Mapping[str, Sequence[TraceFinding | Abstained]],
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return by part of a step the rules that judged it, and the reason of one that could not."""
    looked: dict[str, list[str]] = {}
    reasons: dict[str, str] = {}
    for name, results in by_rule.items():
        rule = RULES[name]
        abstained = [item.reason for item in results if isinstance(item, Abstained)]
        for part in rule.judges:
            if abstained and len(abstained) == len(results):
                reasons.setdefault(part, "; ".join(abstained))
            else:
                looked.setdefault(part, []).append(rule.id)
    return looked, reasons


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


__all__ = ["LEAST_RATIO", "PLANTED", "RULES", "Rule", "Scene", "merged", "planted_shares", "replayed_ns", "report_of"]
