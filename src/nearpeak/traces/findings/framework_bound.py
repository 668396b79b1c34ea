"""CPU steps with much time between operators, in the framework and in Python."""

from collections.abc import Iterator

from nearpeak.core.traces.executed_run import NOTHING
from nearpeak.core.traces.finding_report import Abstained, Change, TraceFinding
from nearpeak.core.traces.timeline import Idle
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene
from nearpeak.traces.step_terms import HOST_IDLE

ID = "idle.framework"


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Let each operator follow the one before at once; what lies before a step's first one is the caller's."""
    steps, places = scene.executed.step_count, list(_inner(scene))
    if not places:
        return
    changes = [Change(place, lag_ns=0) for place in places]
    between_s = sum(scene.items[place].lag_ns for place in places) * 1e-9 / steps
    profiled_s = scene.recorded_step_s - scene.step_s  # what the profiler adds, it adds between operators
    count = len([item for item in scene.items if item.event != NOTHING]) / steps
    within_s = scene.executed.timeline.idle_by_cause_ns.get(Idle.FRAMEWORK, 0) * 1e-9 / steps
    yield from scene.finding(
        ID,
        f"{between_s / scene.recorded_step_s:.0%} of a step is spent between its {count:.0f} operators,"
        f" {between_s / count * 1e6:.1f} µs before each",
        changes,
        gain_s=max(0.0, scene.gain_s(changes) - profiled_s),
        high_s=max(0.0, between_s - profiled_s),
        evidence=[
            scene.evidence("time between operators per step", between_s, "s", places),
            scene.evidence("idle time within operators that call others or only rename tensors", within_s, "s"),
            scene.evidence("operators per step", count, ""),
        ],
        counter=[
            ("the profiler itself takes time at each operator", "found" if profiled_s else "not observable"),
            ("the next operator waits for data or for another thread", "not observable"),
        ],
        falsifier=scene.advice(
            "time the step without the profiler (--unprofiled), then with fewer, larger operators",
            "torch.compile of the module, or a larger batch: the time between operators should shrink",
        ),
    )  # fmt: skip


def _inner(scene: Scene) -> Iterator[int]:
    """Yield the items that start later than they could, but the first of each step."""
    begun: set[int] = set()
    for place, item in enumerate(scene.items):
        if item.event == NOTHING:
            continue
        if item.step in begun and item.lag_ns > 0:
            yield place
        begun.add(item.step)


RULE = Rule(id=ID, look=look, judges=HOST_IDLE, needs=("kernels",), concerns=lambda scene: scene.executed.cpu_alone)
