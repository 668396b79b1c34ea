"""Clock throttling at the power or temperature limit, which slows all computation."""

from bisect import bisect_right
from collections.abc import Iterator

from nearpeak.core.traces.executed_run import NOTHING
from nearpeak.core.traces.finding_report import Abstained, Change, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene

ID = "power.throttle"
_FALLEN = 0.95
"""Clock over the highest seen below which it counts as fallen."""


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Let kernels take the time that they would at the highest clock seen."""
    samples = [sample for sample in scene.executed.clocks if sample.clock_hz]
    if len(samples) < 3:
        yield Abstained(id=ID, reason="fewer than three clock samples within the steps")
        return
    highest = max(sample.clock_hz or 0.0 for sample in samples)
    low = [sample for sample in samples if (sample.clock_hz or 0.0) < _FALLEN * highest]
    if not low:
        return
    firsts = [sample.item for sample in samples]
    changes, places = [], []
    for place, item in enumerate(scene.items):
        if item.kernel == NOTHING or item.kind == "comm":
            continue
        clock = samples[max(0, bisect_right(firsts, place) - 1)].clock_hz or highest
        if clock < _FALLEN * highest:
            places.append(place)
            changes.append(Change(place, device_ns=int(item.device_ns * clock / highest)))
    mean = sum(sample.clock_hz or 0.0 for sample in low) / len(low)
    watts = [sample.power_w for sample in low if sample.power_w is not None]
    limit = scene.executed.power_limit_w
    capped = "not observable" if not watts or not limit else "found" if max(watts) >= 0.95 * limit else "not found"
    yield from scene.finding(
        ID,
        f"the clock falls from {highest / 1e6:.0f} to {mean / 1e6:.0f} MHz in {len(low) / len(samples):.0%} of"
        f" the samples",
        changes,
        evidence=[
            scene.evidence("clock while it is low", mean, "Hz", places),
            scene.evidence("highest clock seen", highest, "Hz"),
            *([scene.evidence("power then", max(watts), "W")] if watts else []),
        ],
        counter=[
            ("the clocks were locked", "not observable"),
            ("the power is at its limit, which supports it", capped),
        ],
        falsifier="lock the clock at the low value: the slow steps should stay as they are and the fast ones"
        " become slow",
    )


RULE = Rule(id=ID, look=look, needs=("clocks",))
