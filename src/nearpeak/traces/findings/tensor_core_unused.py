"""Matrix products that ran on vector units although matrix units could form them."""

from collections.abc import Iterator

from nearpeak.core.traces.executed_run import ExecutedOperator
from nearpeak.core.traces.finding_report import Abstained, Change, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if

ID = "gemm.no_tensor_core"
_NARROW = ("bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "int8")


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Let products of 16-bit numbers, and those of fp32 in TF32, take their expected time on matrix units."""
    places = scene.where(lambda item: scene.unit(item) == "vector" and _is_product(scene.operator(item)))
    if not places:
        return
    changes, unknown = [], 0
    for place in places:
        item, operator = scene.items[place], scene.operator(scene.items[place])
        plain = (
            None if operator is None else operator.tensor_s if operator.dtypes[0] == "fp32" else operator.predicted_s
        )
        if operator is None or plain is None:
            unknown += 1
        elif (expected := plain * scene.usual_ratio) < operator.measured_s:
            changes.append(Change(place, device_ns=int(item.device_ns * expected / operator.measured_s)))
    if unknown and not changes:
        yield Abstained(id=ID, reason="products run on vector units, but the target is unknown: pass --target")
        return
    formats = sorted(
        {
            candidate.dtypes[0]
            for place in places
            if (candidate := scene.operator(scene.items[place])) and candidate.dtypes
        }
    )
    forbidden = scene.executed.flags.get("allow_tf32") == "False"
    yield from scene.finding(
        ID,
        f"products of {' and '.join(formats) or 'fp32'} take {scene.device_s(places) * 1e3:.2f} ms of a step on"
        f" vector units",
        changes,
        evidence=[
            scene.evidence("time on vector units per step", scene.device_s(places), "s", places),
            scene.evidence("launches per step", len(places) / scene.executed.step_count, ""),
        ],
        counter=[
            ("fp64, which these units are made for", state_if("fp64" in formats)),
            (
                "fp32 on purpose (allow_tf32=False)",
                state_if(forbidden) if scene.executed.flags else "not observable",
            ),
        ],
        falsifier="torch.backends.cuda.matmul.allow_tf32 = True, or autocast: kernels named tf32, 1688 or 16816"
        " should appear",
        scope="local",
    )


def _is_product(operator: ExecutedOperator | None) -> bool:
    if operator is None or operator.family not in ("gemm", "conv"):
        return False
    return operator.dtypes[:1] in [(dtype,) for dtype in ("fp32", *_NARROW)]


RULE = Rule(id=ID, look=look, needs=("names", "operators", "shapes"))
