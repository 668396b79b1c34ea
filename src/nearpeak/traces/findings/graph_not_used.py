"""Launch-bound steps that repeat the same kernels and could be captured in a graph."""

from collections.abc import Iterator

from nearpeak.core.traces.executed_run import NOTHING
from nearpeak.core.traces.finding_report import Abstained, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if
from nearpeak.traces.findings import launch_bound
from nearpeak.units import one_or_several

ID = "graph.not_used"


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Say whether what `idle.launch_bound` gains by a graph can be had by one: the same kernels in each step."""
    if not any(isinstance(result, TraceFinding) for result in launch_bound.RULE(scene)):
        return
    if any(item.kind == "graph" for item in scene.items):
        return
    same = launch_bound.varies(scene)
    if same == "not observable":
        reason = f"fewer than three steps do not show whether each runs the same kernels: {scene.more_steps}"
        yield Abstained(id=ID, reason=reason)
        return
    if same == "found":
        return
    changes = launch_bound.graph_changes(scene)
    blocking = [change.item for change in scene.unblocked]
    count = len(scene.where(lambda item: item.event != NOTHING)) / scene.executed.step_count
    yield from scene.finding(
        ID,
        f"each of {scene.executed.step_count} steps runs the same"
        f" {one_or_several(count, 'kernel or copy', 'kernels and copies in the same order')},"
        " one call each",
        changes,
        gain_s=scene.gain_s(changes, scene.unblocked),
        high_s=scene.step_s - scene.device_s(range(len(scene.items))),
        evidence=[
            scene.evidence("steps with the same kernels", scene.executed.step_count, ""),
            scene.evidence("kernels and copies per step", count, ""),
            scene.evidence("calls that wait within a step", len(blocking) / scene.executed.step_count, "", blocking),
        ],
        counter=[
            ("the sequence of kernels varies", state_if(False)),
            ("calls within the step that wait, which a graph cannot hold", state_if(bool(blocking))),
            ("shapes or addresses that change from step to step", "not observable"),
        ],
        falsifier=scene.advice(
            "capture one step and replay it: results must be equal, and the host should issue one call",
            "torch.cuda.graphs.make_graphed_callables, or torch.compile(mode='reduce-overhead')",
        ),
        remedy_of=launch_bound.ID,
    )  # fmt: skip


RULE = Rule(id=ID, look=look, needs=("host", "links", "work"))
