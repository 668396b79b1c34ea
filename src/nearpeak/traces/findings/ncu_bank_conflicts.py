"""Shared-memory bank conflicts that serialise the threads of a warp."""

from collections.abc import Iterator, Mapping

from nearpeak.core.traces.finding_report import Abstained, TraceFinding
from nearpeak.traces import kernel_counters as counted
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if
from nearpeak.units import one_or_several

ID, PROFILER_RULE = "ncu.SharedMemoryConflicts", "SharedMemoryConflicts"
_CONFLICTS = ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",)
_ALL = ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",)


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Leave out the wavefronts that repeat others, where shared memory limits the kernel."""
    changes, has_data = counted.waste_changes(scene, PROFILER_RULE, conflict_ratio, counted.FIRST_LEVEL)
    if not has_data:
        yield Abstained(id=ID, reason="no counters of bank conflicts and of the first cache: ncu --set full")
        return
    places = [change.item for change in changes]
    worst = max((conflict_ratio(counted.of(scene, place)) or 0.0 for place in places), default=0.0)
    yield from scene.finding(
        ID,
        f"{one_or_several(len(places), 'kernel', 'kernels')} limited by shared memory: up to {worst:.0%} of its"
        " wavefronts are bank conflicts",
        changes,
        evidence=[
            scene.evidence("time of these kernels", scene.device_s(places), "s", places),
            scene.evidence("largest part of wavefronts that are conflicts", worst, ""),
        ],
        counter=[
            ("another unit is as busy", state_if(False)),
            ("wide accesses that need several wavefronts anyway", "not observable"),
        ],
        falsifier="pad the rows of the shared array by one element, or swizzle them: the counter should fall to 0",
        scope="local",
    )  # fmt: skip


def conflict_ratio(counters: Mapping[str, float]) -> float | None:
    """Return the part of shared memory's wavefronts that are conflicts; none where no counter tells."""
    conflicts, every = counted.first(counters, *_CONFLICTS), counted.first(counters, *_ALL)
    return None if conflicts is None or not every else min(1.0, conflicts / every)


RULE = Rule(id=ID, look=look, concerns=counted.has_counters)
