"""Kernels with fewer blocks than the device has multiprocessors."""

from collections.abc import Iterator

from nearpeak.core.traces.finding_report import Abstained, Change, TraceFinding
from nearpeak.traces import kernel_counters as counted
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene
from nearpeak.units import one_or_several

ID, PROFILER_RULE = "ncu.LaunchConfiguration", "LaunchConfiguration"
_START_NS = 2_000
"""What a kernel takes that does nothing, which more blocks do not shorten."""


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Spread the work over all multiprocessors, but for what starting a kernel takes."""
    reported, changes, silent = counted.profiler_rule_items(scene, PROFILER_RULE), [], True
    for place, counters in scene.executed.counters.items():
        item, sms = scene.items[place], counted.first(counters, *counted.SMS) or scene.executed.sm_count
        if not sms or item.block_count < 0:
            continue
        silent = False
        if place in reported or item.block_count >= sms:
            continue
        work_ns = max(0, item.device_ns - _START_NS)
        changes.append(Change(place, device_ns=item.device_ns - round(work_ns * (1 - item.block_count / sms))))
    if silent:
        yield Abstained(id=ID, reason="the grids of kernels or the number of multiprocessors are missing")
        return
    places = [change.item for change in changes]
    if not places:
        return
    fewest = min(places, key=lambda place: scene.items[place].block_count)
    yield from scene.finding(
        ID,
        f"{one_or_several(len(places), 'kernel has', 'kernels have')} fewer blocks than the device has multiprocessors,"
        f" down to {scene.items[fewest].block_count}",
        changes,
        evidence=[
            scene.evidence("time of these kernels", scene.device_s(places), "s", places),
            scene.evidence("fewest blocks", scene.items[fewest].block_count, "", [fewest]),
        ],
        counter=[
            ("they run beside other kernels outside the profiler, which runs them one by one", "not observable"),
            ("their work cannot be cut finer", "not observable"),
        ],
        falsifier="launch the same work in as many blocks as there are multiprocessors: the time should fall in"
        " proportion",
        scope="local",
    )  # fmt: skip


RULE = Rule(id=ID, look=look, concerns=counted.has_counters)
