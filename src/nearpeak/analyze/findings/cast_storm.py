"""Casts between formats that take a large part of the step."""

from collections.abc import Iterator

from nearpeak.analyze.findings._rule import Rule
from nearpeak.analyze.findings._scene import Scene, found_if
from nearpeak.core.executed import NOTHING, QueueItem
from nearpeak.core.finding_report import Abstained, TraceFinding

ID = "amp.casts"


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Leave the casts out."""

    def casts(item: QueueItem) -> bool:
        operator = scene.operator(item)
        return item.kernel != NOTHING and (
            scene.family(item) == "cast" or (operator is not None and operator.name == "aten::_to_copy")
        )

    places = scene.where(casts)
    if not places:
        return
    compiled = any("triton" in use.name for use in scene.executed.kernels)
    yield from scene.finding(
        ID,
        f"{len(places) / scene.executed.step_count:.0f} casts of a step take {scene.device_s(places) * 1e3:.2f} ms",
        scene.dropped(places),
        evidence=[
            scene.evidence("casts per step", len(places) / scene.executed.step_count, "", places),
            scene.evidence("their time per step", scene.device_s(places), "s"),
        ],
        counter=[("a compiler fuses casts already", found_if(compiled))],
        falsifier="convert the model as a whole (.bfloat16()), or cache the casts of frozen weights: the"
        " kernels should be gone",
        scope="local",
    )


RULE = Rule(id=ID, look=look, needs=("names", "operators"))
