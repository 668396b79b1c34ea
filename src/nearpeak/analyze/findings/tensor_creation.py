"""Small tensors that the host makes anew in each step."""

import re
from collections.abc import Iterator

from nearpeak.analyze.findings._rule import Rule
from nearpeak.analyze.findings._scene import Scene, found_if
from nearpeak.core.executed import NOTHING
from nearpeak.core.finding_report import Abstained, TraceFinding

ID = "host.constant_rebuild"
_MADE = re.compile(
    r"^aten::(tensor|scalar_tensor|full|zeros|ones|arange|eye|linspace|lift_fresh|new_(full|zeros|ones)|fill_)$"
)


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Take the host time of making tensors away, with the calls that this makes."""
    spent_s = scene.part_s("creation")
    if not spent_s:
        return
    places = scene.where(lambda item: item.event != NOTHING and _made(scene, item.operator))
    every = scene.where(lambda item: any(cause == "creation" for cause, _ in item.parts))
    yield from scene.finding(
        ID,
        f"the host spends {spent_s * 1e6:.0f} µs of each step on making tensors that are the same in every step",
        (*scene.dropped(places), *scene.without_part("creation")),
        evidence=[
            scene.evidence("host time for making tensors per step", spent_s, "s", every),
            scene.evidence("idle part of the window", scene.idle_ratio(), ""),
        ],
        counter=[("the device is busy meanwhile", found_if(scene.idle_ratio() < 0.05)), ("their values differ"
        " between steps", "not observable")],
        falsifier="make them once and keep them (register_buffer): the host time of the step should fall by as much",
    )  # fmt: skip


def _made(scene: Scene, operator: int) -> bool:
    return operator != NOTHING and bool(_MADE.search(scene.executed.operators[operator].name))


RULE = Rule(id=ID, look=look, needs=("host", "links", "operators"))
