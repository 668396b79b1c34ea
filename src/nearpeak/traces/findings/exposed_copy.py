"""Exposed copies from pinned memory that could overlap with computation."""

from collections.abc import Iterator

from nearpeak.core.traces.finding_report import Abstained, Change, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import LEAST_RATIO, Scene, state_if
from nearpeak.traces.step_terms import COPIES

ID = "copy.exposed"
_LARGE = 1 << 16


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Copy on a stream of its own, one step ahead."""
    exposed = scene.executed.timeline.exposed_memcpy_ns
    places = scene.where(
        lambda item: item.kind == "copy" and item.copy != "h2d pageable" and not item.copy.startswith("d2d")
        and item.size > _LARGE
    )  # fmt: skip
    if not places:
        reason = "exposed copies are within the device, or smaller than 64 KiB: no rule says what they should take"
        yield Abstained(id=ID, reason=reason)
        return
    lane = 1 + max(item.lane for item in scene.items)
    changes = [Change(place, lane=lane, lag_ns=0) for place in places]
    size = sum(scene.items[place].size for place in places) / scene.executed.step_count
    others = sum(item.device_ns for item in scene.items if item.kind != "copy") / max(1, scene.executed.window_ns)
    yield from scene.finding(
        ID,
        f"copies of {size / 1e6:.0f} MB per step keep the device from computing"
        f" {exposed / scene.executed.window_ns:.0%} of the time",
        changes,
        high_s=exposed * 1e-9 / scene.executed.step_count,
        evidence=[
            scene.evidence("exposed copies", exposed * 1e-9 / scene.executed.step_count, "s", places),
            scene.evidence("bytes copied per step", size, "B"),
        ],
        counter=[("the copy engine is busy all the time, so that overlap helps little", state_if(others < 0.2))],
        falsifier="copy the next batch on a second stream while this one computes",
    )


RULE = Rule(
    id=ID,
    look=look,
    judges=(COPIES,),
    needs=("bytes",),
    concerns=lambda scene: scene.executed.timeline.exposed_memcpy_ns >= LEAST_RATIO * scene.executed.window_ns,
)
