"""Input-bound steps: the device waits while the host loads the next batch."""

from collections.abc import Iterator

from nearpeak.core.traces.finding_report import Abstained, TraceFinding
from nearpeak.core.traces.timeline import Idle
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if
from nearpeak.traces.step_terms import idle_name

ID = "idle.input_bound"


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Remove the host time in the data loader."""
    spent_s = scene.part_s("loading")
    if not spent_s:
        return
    places = scene.where(lambda item: any(cause == "loading" for cause, _ in item.parts))
    yield from scene.finding(
        ID,
        f"the host spends {spent_s * 1e3:.2f} ms of each step in its data loader while the device is idle",
        scene.without_part("loading"),
        high_s=spent_s,
        evidence=[
            scene.evidence("time in the data loader per step", spent_s, "s", places),
            scene.evidence("idle part of the window", scene.idle_ratio(), ""),
        ],
        counter=[("loading takes less than the device computes",
        state_if(scene.gain_s(scene.without_part("loading")) < spent_s / 2))],
        falsifier=scene.advice(
            "feed the same batch repeatedly: the gap at the start of each step should disappear; then prefetch",
            "more workers, prefetch_factor, pin_memory of the DataLoader",
        ),
    )  # fmt: skip


RULE = Rule(id=ID, look=look, judges=(idle_name(Idle.INPUT),), needs=("host", "links", "work", "ranges"))
