"""Small constant tensors that the host creates again in each step."""

import re
from collections.abc import Iterator

from nearpeak.core.traces.executed_run import NOTHING
from nearpeak.core.traces.finding_report import Abstained, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if

ID = "host.constant_rebuild"
_MADE = re.compile(
    r"^aten::(tensor|scalar_tensor|full|zeros|ones|arange|eye|linspace|lift_fresh|new_(full|zeros|ones)|fill_)$"
)


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Remove the host time of creating tensors, and their calls."""
    spent_s = scene.part_s("creation")
    if not spent_s:
        return
    every = scene.where(lambda item: any(cause == "creation" for cause, _ in item.parts))
    places = [
        place
        for place in every
        if scene.items[place].event != NOTHING
        and (operator := scene.operator(scene.items[place])) is not None
        and _MADE.search(operator.name)
    ]
    alike, which = True, "the same in every step"
    if "shapes" in scene.executed.missing:
        alike, which = False, "and whether they are the same in every step was not recorded"
    elif scene.executed.step_count < 2:
        alike, which = False, "and one step does not show whether others create the same"
    yield from scene.finding(
        ID,
        f"the host spends {spent_s * 1e6:.0f} µs of each step on creating tensors, {which}",
        (*scene.dropped(places), *scene.without_part("creation")),
        evidence=[
            scene.evidence("host time for creating tensors per step", spent_s, "s", every),
            scene.evidence("idle part of the window", scene.idle_ratio(), ""),
        ],
        counter=[
            ("the device is busy meanwhile", state_if(scene.idle_ratio() < 0.05)),
            ("their shapes and values differ between steps", "not found" if alike else "not observable"),
            ("something writes into them, so they must be created again", "not observable"),
        ],
        falsifier="create them once and keep them (register_buffer): the host time of the step should fall by as much",
    )  # fmt: skip


RULE = Rule(id=ID, look=look, needs=("host", "links", "work", "operators"))
