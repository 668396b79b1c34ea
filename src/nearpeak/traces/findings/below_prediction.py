"""Operators far slower than predicted although they run on the right units with aligned extents."""

from collections.abc import Iterator

from nearpeak.core.traces.executed_run import ExecutedOperator
from nearpeak.core.traces.finding_report import Abstained, Change, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if
from nearpeak.traces.step_terms import COMPUTING

ID = "kernel.below_roofline"
_SLOWER, _LEAST_S = 2.0, 8e-6
"""Measured over expected, at the distance that is usual in this trace; calls shorter than that are left out."""

_SCATTER = 3.0
"""Longer half of the calls over the shorter one, beyond which their mean says little of the kernel."""


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Let each operator that is far from its expected time take it."""
    known = [candidate for candidate in scene.executed.operators if candidate.predicted_s]
    if not known:
        yield Abstained(id=ID, reason="no operator has an expected time: pass --target")
        return
    for number, operator in enumerate(scene.executed.operators):
        if _is_slow(scene, operator):
            yield from _one(scene, number, operator)


def _is_slow(scene: Scene, operator: ExecutedOperator) -> bool:
    if not operator.predicted_s or operator.measured_s < _LEAST_S:
        return False
    units = {kernel.unit for kernel in scene.executed.kernels if kernel.name in operator.kernels}
    explained = operator.padded_s is not None or (operator.family in ("gemm", "conv") and "vector" in units)
    moved = operator.name in ("aten::_to_copy", "aten::clone", "aten::contiguous", "aten::copy_")
    moved = moved or not operator.kernels  # copies over a link, which other rules judge
    return not explained and not moved and operator.measured_s > _SLOWER * operator.predicted_s * scene.usual_ratio


def _one(scene: Scene, number: int, operator: ExecutedOperator) -> list[TraceFinding]:
    expected = (operator.predicted_s or 0.0) * scene.usual_ratio
    places = scene.where(lambda item: item.operator == number and item.device_ns > 0)
    times = sorted(scene.items[place].device_ns for place in places)
    half = len(times) // 2
    scatters = half > 0 and sum(times[-half:]) > _SCATTER * sum(times[:half])
    ratio = operator.measured_s / expected
    bound = operator.bound_s or expected
    return scene.finding(
        ID,
        f"{operator.label} takes {ratio:.1f} times what good kernels take"
        f" ({operator.measured_s * 1e6:.0f} µs, {bound / operator.measured_s:.0%} of its bound reached)",
        [Change(place, device_ns=int(scene.items[place].device_ns / ratio)) for place in places],
        key=operator.label,
        high_s=(operator.measured_s - bound) * operator.call_count / scene.executed.step_count,
        evidence=[
            scene.evidence("time of one call", operator.measured_s, "s", places),
            scene.evidence("expected of one call", expected, "s"),
            scene.evidence("bound of one call", bound, "s"),
        ],
        counter=[
            (
                "it is faster than its bound, which would be an error of the bound",
                state_if(operator.measured_s < bound),
            ),
            (
                "its calls differ threefold among themselves: something else interfered",
                state_if(scatters),
            ),
        ],
        falsifier=f"time this case alone: nearpeak measure on the device; the kernel is"
        f" {operator.kernels[0] if operator.kernels else '?'}",
        scope="local",
    )


RULE = Rule(id=ID, look=look, judges=(COMPUTING,), needs=("operators", "shapes"))
