"""Matrix products whose counters show idle matrix units and busy vector units."""

from collections.abc import Iterator

from nearpeak.core.traces.finding_report import Abstained, Counter, TraceFinding
from nearpeak.traces import kernel_counters as counted
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if

ID = "ncu.TensorPipeIdle"
_TENSOR = (
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.sum",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
)
_VECTOR = (
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
)
_DOUBLE = ("sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active",)
_BUSY = 30.0
"""Per cent of the vector units' peak from which on they do the product."""


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Name the products; their time on matrix units is bounded by that of the vector units that goes."""
    products = [place for place in scene.executed.counters if scene.family(scene.items[place]) in ("gemm", "conv")]
    known = [
        place
        for place in products
        if all(counted.first(counted.of(scene, place), *names) is not None for names in (_TENSOR, _VECTOR))
    ]
    if products and not known:
        yield Abstained(id=ID, reason="no counters of the matrix units: ncu --section ComputeWorkloadAnalysis")
        return
    silent = [place for place in known if not counted.first(counted.of(scene, place), *_TENSOR)]
    busy = {place: counted.first(counted.of(scene, place), *_VECTOR) or 0.0 for place in silent}
    idle = {place: vector for place, vector in busy.items() if vector >= _BUSY}
    high_s = sum(scene.device_s([place]) * vector / 100 for place, vector in idle.items())
    if not idle or not scene.worth(high_s):
        return
    double = any((counted.first(counted.of(scene, p), *_DOUBLE) or 0.0) >= _BUSY for p in idle)
    yield TraceFinding(
        id=ID, key="",
        claim=f"{len(idle)} products take {scene.device_s(idle) * 1e6:.0f} µs on vector units; matrix units are idle",
        evidence=(
            scene.evidence("time of these products", scene.device_s(idle), "s", list(idle)),
            scene.evidence("per cent of the vector units' peak, at most", max(idle.values()), ""),
        ),
        counter=(
            Counter(what="fp64, which these units are made for", state=state_if(double)),
            Counter(what="fp32 on purpose", state="not observable"),
        ),
        gain_s=0.0, gain_low_s=0.0, gain_high_s=min(high_s, scene.step_s), scope="local", method="bound",
        falsifier="run the product in 16-bit numbers or TF32: the counter of the matrix units should be above 0",
    )  # fmt: skip


RULE = Rule(id=ID, look=look, concerns=counted.has_counters)
