"""Profiler overhead: recorded steps longer than the step time without a profiler."""

from collections.abc import Iterator

from nearpeak.core.traces.finding_report import Abstained, Counter, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if

ID = "profiler.inflated"
_LONGER = 1.1
"""Recorded over unrecorded step from which on it is spoken of."""
_IDLE, _HOST = 0.15, 0.6
"""Idle part of the window, and part of it that waits for the host, from which on the question matters."""


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Compare the recorded step with the one that somebody timed without a profiler."""
    plain_s = scene.executed.unprofiled_step_s
    if plain_s is None:
        reason = "the step time without the profiler is unknown: measure it and pass --unprofiled"
        yield Abstained(id=ID, reason=reason)
        return
    recorded_s = scene.recorded_step_s
    if recorded_s < _LONGER * plain_s:
        return
    host_s = sum(item.before_ns + item.call_ns for item in scene.executed.items) * 1e-9 / scene.executed.step_count
    explains = "found" if scene.host_ratio > 0 else "not found"
    yield TraceFinding(
        id=ID, key="",
        claim=f"a step takes {recorded_s / plain_s:.2f} times as long with the profiler as without: host times are"
        f" scaled to {scene.host_ratio:.0%} of the recorded ones",
        evidence=(
            scene.evidence("recorded step", recorded_s, "s"), scene.evidence("step without the profiler", plain_s, "s"),
            scene.evidence("recorded host time per step", host_s, "s", range(len(scene.items))),
        ),
        counter=(
            Counter(what="the device alone takes longer than that", state=state_if(scene.host_ratio <= 0)),
            Counter(what="shorter host times explain the unrecorded step", state=explains),
        ),
        gain_s=0.0, gain_low_s=0.0, gain_high_s=0.0, scope="global", method="none",
        falsifier="record without stacks, shapes and memory: the recorded step should come near the unrecorded one",
    )  # fmt: skip


def _matters(scene: Scene) -> bool:
    if scene.executed.unprofiled_step_s is not None:
        return True
    linked = not {"host", "links"} & set(scene.executed.missing)
    return linked and scene.idle_ratio() >= _IDLE and scene.host_wait_ratio() >= _HOST


RULE = Rule(id=ID, look=look, needs=("host", "links"), concerns=_matters)
