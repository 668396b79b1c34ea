"""Copies from pageable memory, which are slow and block the host."""

from collections.abc import Iterator
from statistics import median

from nearpeak.core.traces.executed_run import NOTHING
from nearpeak.core.traces.finding_report import Abstained, Change, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if
from nearpeak.traces.step_terms import COPIES
from nearpeak.units import one_or_several

ID = "copy.pageable_h2d"
PINNED_BYTES_PER_S = 22e9
"""Rate of copies from pinned memory over PCIe 4.0 x16, used where the trace holds none."""
_LARGE = 1 << 16


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Copy at the rate of pinned memory, on a stream of its own, without waiting."""
    places = scene.where(lambda item: item.copy == "h2d pageable" and item.size > _LARGE)
    if not places:
        return
    size = sum(scene.items[place].size for place in places)
    device_ns = sum(scene.items[place].device_ns for place in places)
    time_s, exposed_ns = device_ns * 1e-9, scene.executed.timeline.exposed_memcpy_ns
    rate = size / time_s if time_s else 0.0
    lane = 1 + max(item.lane for item in scene.items)
    rates = [
        item.size / item.device_ns * 1e9 for item in scene.items
        if item.copy == "h2d pinned" and item.size > _LARGE and item.device_ns
    ]  # fmt: skip
    pinned = median(rates) if rates else PINNED_BYTES_PER_S
    changes = [
        Change(
            place, device_ns=min(scene.items[place].device_ns, int(scene.items[place].size / pinned * 1e9)), lane=lane,
            waits=NOTHING, call_ns=min(scene.items[place].call_ns, 10_000),
        )
        for place in places
    ]  # fmt: skip
    yield from scene.finding(
        ID,
        f"{one_or_several(len(places) / scene.executed.step_count, 'copy of a step reads', 'copies of a step read')}"
        f" pageable memory at {rate / 1e9:.1f} GB/s while the host waits",
        changes,
        high_s=time_s / scene.executed.step_count,
        evidence=[
            scene.evidence("bytes copied from pageable memory per step", size / scene.executed.step_count, "B", places),
            scene.evidence("rate of these copies", rate, "B/s"),
            scene.evidence("rate from pinned memory", pinned, "B/s"),
        ],
        counter=[("the copies overlap with work already", state_if(exposed_ns < 0.5 * device_ns)),
                 ("their rate is near that of the link", state_if(rate > 0.8 * pinned))],
        falsifier=scene.advice(
            "copy from page-locked memory without waiting: the copies should leave the critical path",
            "pin_memory=True in the loader and non_blocking=True in .to()",
        ),
    )  # fmt: skip


def _concerns(scene: Scene) -> bool:
    """Say whether copies from pageable memory are there, or copies whose memory or size was not recorded."""
    copies = [item for item in scene.items if item.kind == "copy"]
    unknown = "copies" in scene.executed.missing or "bytes" in scene.executed.missing
    return bool(copies) and (unknown or any(item.copy == "h2d pageable" for item in copies))


RULE = Rule(id=ID, look=look, judges=(COPIES,), needs=("copies", "bytes"), concerns=_concerns)
