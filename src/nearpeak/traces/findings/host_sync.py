"""Synchronisation within a step: the host waits for the device, then the device waits for the host."""

from collections.abc import Iterator

from nearpeak.core.traces.executed_run import NOTHING, QueueItem
from nearpeak.core.traces.finding_report import Abstained, Change, TraceFinding
from nearpeak.core.traces.timeline import Idle
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if
from nearpeak.traces.step_terms import idle_name

ID = "idle.sync_bound"
_SCALAR_BYTES = 64


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Let the host go on where it waits for a stream, an event, the device, or a result that it reads."""
    places = [place for place in scene.where(_waits) if not scene.ends_step(place)]
    if not places:
        return
    scalars = [place for place in scene.where(_reads_scalar) if not scene.ends_step(place)]
    unread = {*scalars, *(place for place in places if place - 1 in scalars)}  # read on the device, neither is called
    changes = [Change(place, waits=NOTHING, call_ns=min(scene.items[place].call_ns, 3_000)) for place in places]
    changes += scene.dropped(sorted(unread))
    count = len(places) / scene.executed.step_count
    yield from scene.finding(
        ID,
        f"the host waits for the device {count:.0f} times in a step and its queue runs empty",
        changes,
        evidence=[
            scene.evidence("waits in a step, the last one left out", count, "", places),
            scene.evidence("idle part of the window", scene.idle_ratio(), ""),
        ],
        counter=[
            ("the wait ends the step anyway", state_if(False)),
            ("the host needs the awaited result to go on", "not observable"),
        ],
        falsifier=scene.advice(
            "keep results on the device and read them once, where the step ends: its gaps should disappear",
            "torch.cuda.set_sync_debug_mode('warn') names the lines (.item(), .cpu(), nonzero)",
        ),
    )


def _reads_scalar(item: QueueItem) -> bool:
    """Say whether the host reads a number or two."""
    return item.kind == "copy" and item.copy.startswith("d2h") and 0 < item.size <= _SCALAR_BYTES


def _waits(item: QueueItem) -> bool:
    """Say whether the host waits in a synchronisation or for a device-to-host copy."""
    reads = item.kind == "copy" and item.copy.startswith("d2h")
    return item.waits != NOTHING and (item.kind == "sync" or reads)


RULE = Rule(id=ID, look=look, judges=(idle_name(Idle.SYNC),), needs=("host", "links", "work"))
