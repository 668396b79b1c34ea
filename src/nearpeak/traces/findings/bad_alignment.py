"""Matrix products whose extents do not suit the load width of matrix units, so that padding is faster."""

from collections.abc import Iterator

from nearpeak.core.traces.executed_run import ExecutedOperator
from nearpeak.core.traces.finding_report import Abstained, Change, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if

ID = "gemm.bad_alignment"
_SLOWER = 1.25
"""Measured over what the padded product is expected to take."""


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Let products with odd extents take what the padded ones are expected to."""
    slow: list[ExecutedOperator] = []
    changes, places = [], []
    for place, item in enumerate(scene.items):
        operator = scene.operator(item)
        if operator is None or operator.padded_s is None or scene.unit(item) == "vector":
            continue
        expected = operator.padded_s * scene.usual_ratio
        if operator.measured_s > _SLOWER * expected:
            places.append(place)
            slow += [] if operator in slow else [operator]
            changes.append(Change(place, device_ns=int(item.device_ns * expected / operator.measured_s)))
    if not changes:
        return
    worst = max(slow, key=lambda candidate: candidate.device_ns)
    yield from scene.finding(
        ID,
        f"{worst.label} and {len(slow) - 1} more have extents that are not multiples of 8: padded to 64 they"
        f" would be faster"
        if len(slow) > 1 else f"{worst.label} has extents that are not multiples of 8: padded to 64 it would be faster",
        changes,
        evidence=[
            scene.evidence("time of these products per step", scene.device_s(places), "s", places),
            scene.evidence("time of the worst, one call", worst.measured_s, "s"),
            scene.evidence("expected padded, one call", (worst.padded_s or 0.0) * scene.usual_ratio, "s"),
        ],
        counter=[("their efficiency is high already", state_if(worst.measured_s < 1.1 * (worst.predicted_s or 0.0)))],
        falsifier="pad the vocabulary or the width to a multiple of 64 and time that product alone",
        scope="local",
    )  # fmt: skip


RULE = Rule(id=ID, look=look, needs=("operators", "shapes"))
