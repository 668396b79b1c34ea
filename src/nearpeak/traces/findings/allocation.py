"""Device memory allocation or release within steps, which stalls host and device."""

from collections.abc import Iterator

from nearpeak.core.traces.executed_run import NOTHING
from nearpeak.core.traces.finding_report import Abstained, Change, TraceFinding
from nearpeak.core.traces.timeline import Idle
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if
from nearpeak.traces.step_terms import idle_name
from nearpeak.units import one_or_several

ID = "idle.alloc"


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Remove the calls."""
    places = scene.where(lambda item: item.kind == "alloc")
    if not places:
        return
    steps = {scene.items[place].step for place in places}
    if len(steps) < 0.5 * scene.executed.step_count or ("steps" in scene.executed.missing):
        yield Abstained(id=ID, reason="allocations occur, but not in most of several steps: they may be warm-up")
        return
    spent = sum(scene.items[place].call_ns for place in places) * 1e-9 / scene.executed.step_count
    yield from scene.finding(
        ID,
        one_or_several(
            len(places) / scene.executed.step_count,
            "call of a step allocates or frees device memory and stops the device",
            "calls of a step allocate or free device memory and stop the device",
        ),
        [Change(place, call_ns=0, waits=NOTHING) for place in places],
        evidence=[
            scene.evidence("allocating calls per step", len(places) / scene.executed.step_count, "", places),
            scene.evidence("host time in them per step, without waiting", spent, "s"),
        ],
        counter=[("only in the first steps", state_if(len(steps) < scene.executed.step_count))],
        falsifier=scene.advice(
            "allocate before the loop, or from a caching pool: the calls should disappear",
            "no empty_cache() in the loop, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        ),
    )


RULE = Rule(id=ID, look=look, judges=(idle_name(Idle.ALLOC),), needs=("host", "work"))
