"""Steps most of whose kernels take less than 5 µs and could be fused into fewer, longer ones."""

from collections.abc import Iterator

from nearpeak.core.traces.executed_run import NOTHING
from nearpeak.core.traces.finding_report import Abstained, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if
from nearpeak.traces.findings import small_kernels

ID = "kernel.tiny"
SHORT_NS = 5_000
"""Kernels below it are tiny."""
_MANY, _SHARE, _ALREADY = 0.5, 0.2, 0.5
"""Part of all kernels; part of the step that they and their gaps take; part that pointwise chains explain."""
_FUSED = ("elementwise", "cast", "norm", "reduction", "layout", "optimizer", "other", "unknown")
"""Families that compilers join; products and attention are left as they are."""


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Join runs of tiny kernels of one stream, each as long as its longest."""
    kernels = scene.where(lambda item: item.kernel != NOTHING and item.kind in ("kernel", "graph") and not item.phase)
    tiny = [place for place in kernels if scene.items[place].device_ns < SHORT_NS]
    taken_ns = sum(scene.items[place].device_ns + max(0, scene.items[place].lag_ns) for place in tiny)
    taken_s = taken_ns * 1e-9 / scene.executed.step_count
    if len(tiny) <= _MANY * len(kernels) or taken_s <= _SHARE * scene.step_s:
        return
    runs = list(_runs(scene, kernels))
    spare = [place for run in runs for place in run if place != max(run, key=lambda p: scene.items[p].device_ns)]
    chained = {place for chain in small_kernels.chains(scene) for place in chain}
    if not spare or len(chained.intersection(spare)) > _ALREADY * len(spare):
        return
    steps, compiled = scene.executed.step_count, any("triton" in kernel.name for kernel in scene.executed.kernels)
    per_step = len(tiny) / steps
    yield from scene.finding(
        ID,
        f"{per_step:.0f} of {len(kernels) / steps:.0f} kernels of a step take less than {SHORT_NS / 1000:.0f} µs;"
        f" {len(spare) / steps:.0f} of them could be fused into their predecessor",
        scene.dropped(spare),
        high_s=taken_s,
        evidence=[
            scene.evidence("kernels per step that are tiny", per_step, "", tiny),
            scene.evidence("time of these and of the gaps before them per step", taken_s, "s"),
            scene.evidence("kernels per step that joining saves", len(spare) / steps, "", spare),
            scene.evidence("longest run", max(map(len, runs)), ""),
        ],
        counter=[
            ("a graph has closed the gaps already", state_if(any(item.kind == "graph" for item in scene.items))),
            ("a compiler has joined what it can", state_if(compiled)),
            ("kernels of a run need each other's whole result, as reductions do", "not observable"),
        ],
        falsifier=scene.advice(
            "join one run in one kernel, or let a compiler do it: its time should be that of the longest",
            "torch.compile of the module, compared kernel by kernel",
        ),
        scope="local",
    )  # fmt: skip


def _runs(scene: Scene, kernels: list[int]) -> Iterator[list[int]]:
    """Yield runs of tiny kernels of one stream and step with nothing between them that cannot be joined."""
    open_: dict[int, list[int]] = {}
    for place in kernels:
        item = scene.items[place]
        run = open_.setdefault(item.lane, [])
        joins = item.device_ns < SHORT_NS and scene.family(item) in _FUSED and not item.after
        if run and (not joins or item.step != scene.items[run[-1]].step):
            if len(run) > 1:
                yield run
            run = open_[item.lane] = []
        if joins:
            run.append(place)
    yield from (run for run in open_.values() if len(run) > 1)


RULE = Rule(id=ID, look=look, needs=("names",))
