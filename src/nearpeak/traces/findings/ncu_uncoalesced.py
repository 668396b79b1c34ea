"""Uncoalesced global memory accesses, which move sectors that are mostly unused."""

from collections.abc import Iterator, Mapping

from nearpeak.core.traces.finding_report import Abstained, TraceFinding
from nearpeak.traces import kernel_counters as counted
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if
from nearpeak.units import one_or_several

ID, PROFILER_RULE = "ncu.UncoalescedGlobalAccess", "UncoalescedGlobalAccess"
_EXCESS, _ALL = "derived__memory_l2_theoretical_sectors_global_excessive", "memory_l2_theoretical_sectors_global"
_USED = (
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct",
)


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Move only the sectors that are used, where memory limits the kernel; the other units stay as busy as they are."""
    changes, has_data = counted.waste_changes(scene, PROFILER_RULE, excess_ratio, counted.MEMORY)
    if not has_data:
        yield Abstained(id=ID, reason="no counters of sectors and of memory throughput: ncu --set full")
        return
    places = [change.item for change in changes]
    worst = max((excess_ratio(counted.of(scene, place)) or 0.0 for place in places), default=0.0)
    yield from scene.finding(
        ID,
        f"{one_or_several(len(places), 'kernel that memory limits moves', 'kernels that memory limits move')} sectors"
        f" of which up to {worst:.0%} are not used",
        changes,
        evidence=[
            scene.evidence("time of these kernels", scene.device_s(places), "s", places),
            scene.evidence("largest unused part of the sectors", worst, ""),
        ],
        counter=[("a cache serves them, so that memory has room", state_if(False)),
                 ("the caller fixes the data layout", "not observable")],
        falsifier="let neighbouring threads read neighbouring addresses: sectors per request should fall to what the"
        " bytes need, and the time with them",
        scope="local",
    )  # fmt: skip


def excess_ratio(counters: Mapping[str, float]) -> float | None:
    """Return the part of the sectors of global memory that nothing uses; none where no counter tells.

    >>> excess_ratio({"smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct": 25.0})
    0.75
    >>> excess_ratio({"memory_l2_theoretical_sectors_global": 8.0}) is None  # how many of them are too many is not said
    True
    """
    if counters.get(_ALL) and _EXCESS in counters:
        return counters[_EXCESS] / counters[_ALL]
    used = counted.first(counters, *_USED)
    return None if used is None else max(0.0, 1 - used / 100)


RULE = Rule(id=ID, look=look, concerns=counted.has_counters)
