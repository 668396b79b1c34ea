"""Hardware counters of a kernel under the names that Nsight Compute gives them, on its raw and its details page."""

from collections.abc import Mapping

from nearpeak.analyze.findings._scene import Scene

LIMITED = 60.0
"""Per cent of a resource's peak from which on it limits a kernel. Source: Nsight Compute, rule SOLBottleneck."""
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


def said_by_profiler(scene: Scene, rule: str) -> set[int]:
    """Return the items of which a rule of the profiler speaks itself, with an estimate."""
    return {one.item for one in scene.executed.rules if one.name == rule and one.saved_ratio is not None}
