"""Launch-bound steps, and the gains from graphs, fusion, larger batches and cached tensors."""

from collections.abc import Iterator

from nearpeak.core.traces.executed_run import NOTHING
from nearpeak.core.traces.finding_report import Abstained, Change, TraceFinding
from nearpeak.core.traces.timeline import Idle
from nearpeak.traces.executed.queue_replay import merged, replayed_ns
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if
from nearpeak.traces.step_terms import idle_name
from nearpeak.units import one_or_several, show

ID = "idle.launch_bound"
GRAPH_NS, GAP_NS = 10_000, 1_200
"""Host time to launch a graph; time between its kernels."""
_CAUSES = (Idle.LAUNCH, Idle.FRAMEWORK, Idle.HOST_OTHER, Idle.COPY_CALL)
"""Causes of idle time that calls without a cause of their own have."""
_IDLE, _HOST, _FEW = 0.15, 0.6, 0.6
"""Idle part of the window; part of it in which the device waits for its host; part of host time in a few stretches."""


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Replace the calls of each step by one graph launch, without blocking calls."""
    if scene.idle_ratio() < _IDLE or scene.host_wait_ratio() < _HOST:
        return
    # Most host time without a known cause lies before a few calls, which is no cost of launches.
    spent = sorted((item.before_ns - sum(part for _, part in item.parts) for item in scene.items), reverse=True)
    if sum(spent[: max(scene.executed.step_count, len(spent) // 20)]) > _FEW * max(1, sum(spent)):
        yield Abstained(id=ID, reason="a few long spans of unnamed host code delay the device: record ranges")
        return
    changes = graph_changes(scene)
    gain_s = scene.gain_s(changes, scene.unblocked)
    launches = scene.where(lambda item: item.event != NOTHING and item.kind != "graph")
    per_call = sum(scene.items[i].before_ns + scene.items[i].call_ns for i in launches) / max(1, len(launches))
    device = sum(item.device_ns for item in scene.items)
    count = round(len(launches) / scene.executed.step_count)
    yield from scene.finding(
        ID,
        f"the device waits for {one_or_several(count, 'call', 'calls')} of {per_call / 1000:.1f} µs each,"
        f" {scene.idle_ratio():.0%} of the time idle",
        changes,
        gain_s=gain_s,
        high_s=scene.step_s - device * 1e-9 / scene.executed.step_count,
        evidence=[
            scene.evidence(
                "idle time that waits for the host", scene.idle_ratio() * scene.host_wait_ratio(), "of the window"
            ),
            scene.evidence("host time per call with device work", per_call * 1e-9, "s", launches),
            scene.evidence("calls with device work per step", count, ""),
            scene.evidence("device work per step", device * 1e-9 / scene.executed.step_count, "s"),
        ],
        counter=[
            ("calls that wait for the device", state_if(bool(scene.unblocked))),
            ("a graph is used already", state_if(any(item.kind == "graph" for item in scene.items))),
            ("the sequence of kernels varies between steps", varies(scene)),
            ("stacks were recorded, which slows the host", "not observable"),
        ],
        falsifier=scene.advice(
            f"capture {'the step' if scene.executed.steps_found else 'what repeats'} in a graph: it should take"
            f" {show(max(0.0, scene.step_s - gain_s), 's')}; without the profiler the host is faster, the gain"
            " smaller",
            "torch.compile(mode='reduce-overhead'), or torch.cuda.CUDAGraph",
        ),
        remedies=_remedies(scene, gain_s),
    )


def graph_changes(scene: Scene) -> tuple[Change, ...]:
    """Return the changes that make each step one graph launch; host time with a known cause stays."""
    changes, begun = [], set()
    for place, item in enumerate(scene.items):
        if item.event == NOTHING or item.kind in ("backlog", "graph"):
            continue
        known = sum(part for _, part in item.parts)
        first = item.step not in begun
        begun.add(item.step)
        changes.append(
            Change(
                place,
                before_ns=known + (GRAPH_NS if first else 0),
                call_ns=0,
                lag_ns=min(max(item.lag_ns, GAP_NS), 5_000),
            )
        )
    return tuple(changes)


def varies(scene: Scene) -> str:
    """Say whether the sequence of kernels differs between the steps."""
    sequences: dict[int, list[int]] = {}
    for item in scene.items:
        if item.kernel != NOTHING:
            sequences.setdefault(item.step, []).append(item.kernel)
    if len(sequences) < 3:
        return "not observable"
    inner = list(sequences.values())[:-1]
    return state_if(any(sequence != inner[0] for sequence in inner))


def batched_s(scene: Scene) -> float:
    """Return what a step gains per sample with twice the batch: calls cost the same, kernels do twice as much.

    What the shortest kernel takes is what starting one takes, and does not double.
    """
    kernels = [(place, item.device_ns) for place, item in enumerate(scene.items) if item.kernel != NOTHING]
    start_ns = min((time for _, time in kernels), default=0)
    wider = [Change(place, device_ns=2 * time - start_ns) for place, time in kernels]
    latency = scene.executed.latency_ns
    longer = replayed_ns(scene.items, latency, wider)
    return max(0.0, scene.base_ns - longer / 2) * 1e-9 / scene.executed.step_count


def _remedies(scene: Scene, gain_s: float) -> tuple[tuple[str, float], ...]:
    """Return what each remedy gains at most."""
    tiny = scene.where(
        lambda item: scene.family(item) in ("elementwise", "cast", "norm", "optimizer") and item.kind != "graph"
    )
    halved = scene.dropped(tiny[1::2])
    creation = scene.without_part("creation")
    remedies = [
        ("one CUDA graph per step", gain_s),
        ("fuse every second pointwise kernel", scene.gain_s(merged(halved, scene.items))),
        ("twice the batch, per sample", batched_s(scene)),
    ]
    if creation:
        remedies.append(("cache tensors that each step creates again", scene.gain_s(creation)))
    return tuple(remedies)


RULE = Rule(id=ID, look=look, judges=tuple(map(idle_name, _CAUSES)), needs=("host", "links", "work"))
