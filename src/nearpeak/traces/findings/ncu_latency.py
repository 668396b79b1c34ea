"""Latency-bound kernels, limited by neither compute nor memory, with the limiter of their occupancy."""

from collections.abc import Iterator, Mapping

from nearpeak.core.traces.finding_report import Abstained, Counter, TraceFinding
from nearpeak.traces import kernel_counters as counted
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if
from nearpeak.traces.step_terms import UNEXPECTED
from nearpeak.units import one_or_several

ID = "ncu.SOLBottleneck"
_LIMITS = {
    "registers": "launch__occupancy_limit_registers", "shared memory": "launch__occupancy_limit_shared_mem",
    "threads of a block": "launch__occupancy_limit_warps", "blocks": "launch__occupancy_limit_blocks",
}  # fmt: skip
_LEAST_NS = 8_000
"""Shorter kernels take mostly what starting one takes."""


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Say how far kernels that no unit limits are from their nearest roof: a bound, as what they wait for is open."""
    known: dict[int, float] = {}
    for place, counters in scene.executed.counters.items():
        memory, compute = counted.first(counters, *counted.MEMORY), counted.first(counters, *counted.COMPUTE)
        if memory is not None and compute is not None:
            known[place] = max(memory, compute)
    if not known:
        yield Abstained(id=ID, reason="no counters of computing and memory throughput: ncu --set full")
        return
    far = {p: top for p, top in known.items() if top < counted.LIMITED and scene.items[p].device_ns >= _LEAST_NS}
    high_s = sum(scene.device_s([place]) * (1 - top / 100) for place, top in far.items())
    if not far or not scene.worth(high_s):
        return
    worst = max(far, key=lambda place: scene.items[place].device_ns * (1 - far[place] / 100))
    full = sum(counted.of(scene, place).get("launch__waves_per_multiprocessor", 1.0) < 1 for place in far)
    yield TraceFinding(
        id=ID, key="",
        claim=f"{one_or_several(len(far), 'kernel reaches', 'kernels reach')}"
        f" less than {counted.LIMITED:.0f}% of any roof, the longest {far[worst]:.0f}%;"
        f" its occupancy limiter: {limiter(counted.of(scene, worst)) or 'not stated'}",
        evidence=(
            scene.evidence("time of these kernels", scene.device_s(far), "s", list(far)),
            scene.evidence("per cent of the nearest roof of the longest", far[worst], "", [worst]),
        ),
        counter=(
            Counter(what="the grid is too small to fill the device", state=state_if(full > 0)),
            Counter(what="a chain of dependent instructions that no occupancy shortens", state="not observable"),
        ),
        gain_s=0.0, gain_low_s=0.0, gain_high_s=min(high_s, scene.step_s), scope="local", method="bound",
        falsifier="raise the occupancy (fewer registers or bytes of shared memory a block): if the time stays, latency"
        " within a warp decides",
    )  # fmt: skip


def limiter(counters: Mapping[str, float]) -> str:
    """Return what allows the fewest blocks on a multiprocessor; empty where that is not stated.

    >>> limiter({"launch__occupancy_limit_registers": 2.0, "launch__occupancy_limit_warps": 8.0})
    'registers'
    """
    known = {what: counters[name] for what, name in _LIMITS.items() if name in counters}
    return min(known, key=lambda what: known[what]) if known else ""


RULE = Rule(id=ID, look=look, judges=(UNEXPECTED,), concerns=counted.has_counters)
