"""Graph launches that take far longer than the number of their nodes explains."""

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from nearpeak.core.traces.executed_run import NOTHING
from nearpeak.core.traces.finding_report import Abstained, Change, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if

ID = "graph.slow_launch"
LAUNCH_NS, NODE_NS = 10_000, 200
"""Host time of a launch and of each node: what drivers before CUDA 12.6 take for a straight line of kernels, and room
for a recorder. Source: NVIDIA technical blog, "Constant time launch for straight-line CUDA graphs", September 2024:
2 µs and 200 ns a node before, 2.5 µs and 1 ns a node since."""
_SLOWER, _UPLOAD = 3.0, 2.0
"""Measured over that from which on it is spoken of; first launch over the others from which on it uploads the graph."""


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Let each launch but the first of its graph take what its nodes explain."""
    slow, alone = [], 0
    for launches in _graphs(scene).values():
        late = [launch for launch in launches if scene.items[launch[0]].call_ns > _SLOWER * expected_ns(launch[1])]
        if len(launches) == 1:
            alone += len(late)
            continue
        usual = median(scene.items[place].call_ns for place, _ in launches[1:])
        uploads = scene.items[launches[0][0]].call_ns > _UPLOAD * usual
        slow += [launch for launch in late if not uploads or launch != launches[0]]
    if not slow:
        if alone:
            reason = f"graphs that launch slowly are launched once only, which uploads them: {scene.more_steps}"
            yield Abstained(id=ID, reason=reason)
        return
    changes = []
    for place, count in slow:  # the first node begins earlier by as much where it waited for the call to end
        item, call_ns = scene.items[place], expected_ns(count)
        lag_ns = item.lag_ns - max(0, min(item.lag_ns, item.call_ns - call_ns))
        changes.append(Change(place, call_ns=call_ns, lag_ns=lag_ns))
    places = [place for place, _ in slow]
    spent = median(scene.items[place].call_ns for place in places)
    nodes = round(median(count for _, count in slow))
    yield from scene.finding(
        ID,
        f"launching a graph of {nodes} nodes takes {spent / 1000:.0f} µs of the host; its nodes explain"
        f" {expected_ns(nodes) / 1000:.0f} µs",
        changes,
        evidence=[
            scene.evidence("host time of a launch", spent * 1e-9, "s", places),
            scene.evidence("launches per step", len(places) / scene.executed.step_count, ""),
            scene.evidence("nodes of the graph", nodes, ""),
            scene.evidence("idle part of the window", scene.idle_ratio(), ""),
        ],
        counter=[
            ("only the first launch, which uploads the graph", state_if(False)),
            ("the device is busy meanwhile", state_if(scene.idle_ratio() < 0.05)),
            ("a profiler that follows each node of a graph", "not observable"),
        ],
        falsifier=scene.advice(
            "time the launches without the profiler, and with another version of driver and framework: the excess"
            " should be gone in one of them",
            "torch.compile(mode='reduce-overhead') of another release, or torch.cuda.CUDAGraph by hand",
        ),
    )  # fmt: skip


def expected_ns(node_count: int) -> int:
    """Return what a launch of a graph takes the host."""
    return LAUNCH_NS + NODE_NS * node_count


def _graphs(scene: Scene) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """Return by the kernels of a graph its launches in order: place of the first node, count of nodes."""
    launches: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
    items = scene.items
    place = 0
    while place < len(items):
        end = place + 1
        while end < len(items) and items[end].kind == "graph" and items[end].call == items[place].call:
            end += 1
        if end > place + 1 and items[place].call != NOTHING:
            launches[tuple(item.kernel for item in items[place:end])].append((place, end - place))
        place = end
    return launches


def _launches(scene: Scene) -> bool:
    """Say whether graphs are launched, or calls were not recorded."""
    return "host" in scene.executed.missing or any(item.kind == "graph" for item in scene.items)


RULE = Rule(id=ID, look=look, needs=("host", "links", "work"), concerns=_launches)
