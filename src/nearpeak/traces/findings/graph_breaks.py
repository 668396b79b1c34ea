"""Graph breaks: a compiled model runs as several graphs with Python code between them."""

from collections.abc import Iterator

from nearpeak.core.traces.finding_report import Abstained, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if

ID = "graph.breaks"


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Remove the host time between compiled regions of a step."""
    spent_s = scene.part_s("between graphs")
    if not spent_s:
        return
    places = scene.where(lambda item: any(cause == "between graphs" for cause, _ in item.parts))
    count = len(places) / scene.executed.step_count
    yield from scene.finding(
        ID,
        f"the compiled step breaks {count:.0f} times; Python between its graphs takes {spent_s * 1e6:.0f} µs",
        scene.without_part("between graphs"),
        high_s=spent_s,
        evidence=[
            scene.evidence("breaks per step", count, "", places),
            scene.evidence("host time between compiled regions per step", spent_s, "s"),
        ],
        counter=[("the regions are different models", "not observable"), ("the device is busy"
        " meanwhile", state_if(scene.idle_ratio() < 0.05))],
        falsifier="torch._dynamo.explain names each break; with fullgraph=True there should be one region per step",
    )  # fmt: skip


RULE = Rule(id=ID, look=look, needs=("host", "links", "work", "ranges"))
