"""Hardware counters of a kernel under Nsight Compute's names on its raw and details pages."""

from collections.abc import Callable, Mapping

from nearpeak.core.traces.finding_report import Change
from nearpeak.traces.finding_scene import Scene

LIMITED = 60.0
"""Per cent of a resource's peak from which on it limits a kernel. Source: Nsight Compute, rule SOLBottleneck."""
LEAST_WASTE = 0.1
"""Part of a resource's work that serves nothing from which on it is spoken of."""
MEMORY = (
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
)
COMPUTE = ("sm__throughput.avg.pct_of_peak_sustained_elapsed",)
FIRST_LEVEL = ("l1tex__throughput.avg.pct_of_peak_sustained_active",)
SMS = ("launch__sm_count",)


def has_counters(scene: Scene) -> bool:
    """Say whether the trace holds counters at all."""
    return bool(scene.executed.counters)


def of(scene: Scene, place: int) -> Mapping[str, float]:
    """Return the counters of an item; none where it has none."""
    return scene.executed.counters.get(place, {})


def first(counters: Mapping[str, float], *names: str) -> float | None:
    """Return the first of some counters that is there."""
    return next((counters[name] for name in names if name in counters), None)


def profiler_rule_items(scene: Scene, rule: str) -> set[int]:
    """Return the items of which a rule of the profiler speaks itself, with an estimate."""
    return {entry.item for entry in scene.executed.rules if entry.name == rule and entry.saved_ratio is not None}


def waste_changes(
    scene: Scene, rule: str, waste: Callable[[Mapping[str, float]], float | None], limits: tuple[str, ...]
) -> tuple[list[Change], bool]:
    """Return kernels without work that serves nothing, where that work limits them, and whether any counter tells.

    The other units stay as busy as they are, so that a kernel gets no shorter than they let it.

    Args:
        rule: the profiler's own rule; kernels of which it speaks itself are left out.
        waste: part of the work of a resource that serves nothing; none where no counter tells.
        limits: counters of how busy that resource is, in per cent of its peak.
    """
    reported, changes, has_data = profiler_rule_items(scene, rule), [], False
    for place in scene.executed.counters:
        counters = of(scene, place)
        part, busy = waste(counters), first(counters, *limits)
        if part is None or busy is None:
            continue
        has_data = True
        compute = first(counters, *COMPUTE) or 0.0
        if place in reported or part < LEAST_WASTE or busy < max(LIMITED, compute):
            continue
        gone = min(part, 1 - compute / 100)
        changes.append(Change(place, device_ns=round(scene.items[place].device_ns * (1 - gone))))
    return changes, has_data
