"""Exposed communication: on the compute stream, or waited for immediately."""

from collections.abc import Iterator

from nearpeak.core.traces.executed_run import NOTHING
from nearpeak.core.traces.finding_report import Abstained, Change, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if
from nearpeak.traces.step_terms import COMM

ID = "comm.exposed"


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Run communication on a stream of its own and wait for it only where the optimizer begins, or the step ends."""
    places = scene.where(lambda item: item.kind == "comm")
    exposed_s = scene.executed.timeline.exposed_comm_ns * 1e-9 / scene.executed.step_count
    if not scene.worth(exposed_s):
        return
    shared = {scene.items[place].lane for place in places} & {
        item.lane for item in scene.items if item.kind == "kernel"
    }
    how = "on the compute stream" if shared else "and is waited for immediately"
    single = (scene.executed.rank_count or 1) > 1 and scene.executed.skew is None
    yield from scene.finding(
        ID,
        f"communication runs {how}: {exposed_s * 1e3:.2f} ms of a step nothing else runs",
        _apart(scene, places),
        high_s=exposed_s,
        evidence=[
            scene.evidence("exposed communication per step", exposed_s, "s", places),
            scene.evidence("communication per step", scene.device_s(places), "s"),
        ],
        counter=[
            (
                "ranks arrive at different times: waiting, not transfer",
                "not observable" if single else state_if(False),
            )
        ],
        falsifier=scene.advice(
            "start each all-reduce on its own stream when its gradients are ready: it should hide behind other work",
            "DistributedDataParallel's buckets do so in the backward pass",
        ),
    )


def _apart(scene: Scene, places: list[int]) -> tuple[Change, ...]:
    """Return communication on its own stream, each after what came before it, and waits only where it is needed."""
    lane = 1 + max(item.lane for item in scene.items)
    talks, changes, last = set(places), [], dict[int, int]()
    pending: dict[int, int] = {}
    waited: set[int] = set()
    for place, item in enumerate(scene.items):
        if item.lane == NOTHING:
            continue
        if place in talks:
            before = last.get(item.lane)
            after = item.after if before is None else (*item.after, before)
            changes.append(Change(place, lane=lane, after=tuple(dict.fromkeys(after))))
            pending[item.step] = place
            continue
        last[item.lane] = place
        ends = _needs(scene, place) and item.step in pending and item.step not in waited
        if ends:
            waited.add(item.step)
            changes.append(
                Change(
                    place,
                    after=(
                        *(other for other in item.after if other not in talks),
                        pending[item.step],
                    ),
                )
            )
        elif any(other in talks for other in item.after):
            changes.append(Change(place, after=tuple(other for other in item.after if other not in talks)))
    return tuple(changes)


def _needs(scene: Scene, place: int) -> bool:
    """Say whether work uses what was communicated: the optimizer does."""
    operator = scene.operator(scene.items[place])
    named = operator is not None and (
        "optimizer" in operator.name.lower() or "_fused_" in operator.name or "_foreach" in operator.name
    )
    return named or scene.family(scene.items[place]) == "optimizer"


RULE = Rule(
    id=ID, look=look, judges=(COMM,), needs=("links",),
    concerns=lambda scene: any(item.kind == "comm" for item in scene.items),
)  # fmt: skip
