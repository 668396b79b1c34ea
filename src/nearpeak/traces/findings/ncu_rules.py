"""Nsight Compute's own rules, passed through with their typed estimates."""

from collections import defaultdict
from collections.abc import Iterator

from nearpeak.core.traces.executed_run import KernelRule
from nearpeak.core.traces.finding_report import Abstained, Change, Counter, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene
from nearpeak.traces.step_terms import UNEXPECTED
from nearpeak.units import one_or_several

ID = "ncu"
_ADVISES = ("OPT", "WRN")
_SHOWN = 160


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Yield a finding per rule: `global` estimates shorten the kernel, `local` ones concern a part and bound only."""
    by_name: dict[str, list[KernelRule]] = defaultdict(list)
    for rule in scene.executed.rules:
        if rule.kind in _ADVISES and rule.saved_ratio and 0 < rule.saved_ratio <= 1:
            by_name[rule.name].append(rule)
    for name, rules in by_name.items():
        whole = [rule for rule in rules if rule.scope == "global"]
        if whole:
            yield from _whole(scene, name, whole)
        elif rules:
            yield from _part(scene, name, rules)


def _whole(scene: Scene, name: str, rules: list[KernelRule]) -> list[TraceFinding]:
    best = _largest(rules)
    changes = [
        Change(place, device_ns=round(scene.items[place].device_ns * (1 - (rule.saved_ratio or 0.0))))
        for place, rule in best.items()
    ]
    return scene.finding(
        f"{ID}.{name}", _claim(scene, best), changes, high_s=scene.device_s(best),
        evidence=[
            scene.evidence("time of the kernels that it speaks of", scene.device_s(best), "s", list(best)),
            scene.evidence("largest estimate", max(rule.saved_ratio or 0.0 for rule in best.values()), "of a kernel"),
        ],
        counter=[("other rules that take the same time of a kernel away", _others(scene, name, best))],
        falsifier="change what the rule names and profile again: the kernel should take that much less",
        scope="local",
    )  # fmt: skip


def _part(scene: Scene, name: str, rules: list[KernelRule]) -> Iterator[TraceFinding]:
    """Yield what bounds a gain only: the estimate is of a part of the kernel, whose share is not stated."""
    best = _largest(rules)
    high_s = sum(scene.device_s([place]) * (rule.saved_ratio or 0.0) for place, rule in best.items())
    if not scene.worth(high_s):
        return
    yield TraceFinding(
        id=f"{ID}.{name}", key="", claim=scene.phrased(_claim(scene, best)),
        evidence=(scene.evidence("time of the kernels that it speaks of", scene.device_s(best), "s", list(best)),),
        counter=(
            Counter(what="the part of the kernel that the estimate concerns is small", state="not observable"),
            Counter(what="estimates of other rules for the same kernels", state=_others(scene, name, best)),
        ),
        gain_s=0.0, gain_low_s=0.0, gain_high_s=min(high_s, scene.step_s), scope="local", method="bound",
        falsifier="change what the rule names and profile again: if the kernel takes as long, another part decides",
    )  # fmt: skip


def _largest(rules: list[KernelRule]) -> dict[int, KernelRule]:
    largest: dict[int, KernelRule] = {}
    for rule in rules:
        if rule.item not in largest or (rule.saved_ratio or 0.0) > (largest[rule.item].saved_ratio or 0.0):
            largest[rule.item] = rule
    return largest


def _claim(scene: Scene, best: dict[int, KernelRule]) -> str:
    worst = max(best.values(), key=lambda rule: scene.items[rule.item].device_ns * (rule.saved_ratio or 0.0))
    kernel = scene.executed.kernels[scene.items[worst.item].kernel].name
    text = worst.text if len(worst.text) <= _SHOWN else worst.text[:_SHOWN].rsplit(" ", 1)[0] + " …"
    return f"{one_or_several(len(best), 'kernel', 'kernels')}, most of all {kernel[:60]}: {text}"


def _others(scene: Scene, name: str, best: dict[int, KernelRule]) -> str:
    both = any(rule.name != name and rule.saved_ratio and rule.item in best for rule in scene.executed.rules)
    return "found" if both else "not found"


RULE = Rule(id=ID, look=look, judges=(UNEXPECTED,), concerns=lambda scene: bool(scene.executed.rules))
