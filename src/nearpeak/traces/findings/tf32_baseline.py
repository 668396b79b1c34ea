"""Steps called fp32 whose products ran in TF32, so that they are no fp32 baseline."""

from collections.abc import Iterator

from nearpeak.core.traces.finding_report import Abstained, Counter, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene

ID = "amp.tf32_baseline"
_SHARE = 0.2


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Compare the format of products with the units that the names of their kernels state."""
    places = scene.where(lambda item: scene.unit(item) == "tf32" and _single(scene, item.operator))
    share = scene.device_s(places) / scene.step_s if scene.step_s else 0.0
    if share < _SHARE:
        return
    flags = scene.executed.flags
    if any(value == "False" for value in flags.values()):
        yield Abstained(id=ID, reason="flags and names of kernels disagree about TF32")
        return
    plain = scene.where(lambda item: scene.unit(item) == "vector" and _single(scene, item.operator))
    yield TraceFinding(
        id=ID,
        key="",
        claim=f"products of fp32 inputs run in TF32 for {share:.0%} of the step: as a baseline it is not fp32",
        evidence=(
            scene.evidence("time of TF32 kernels on fp32 inputs per step", scene.device_s(places), "s", places),
            scene.evidence("time of fp32 kernels on fp32 inputs per step", scene.device_s(plain), "s", plain),
        ),
        counter=(Counter(what="flags that the trace states", state="not observable" if not flags else "not found"),),
        gain_s=0.0, gain_low_s=0.0, gain_high_s=0.0, scope="global", method="none",
        falsifier="torch.set_float32_matmul_precision('highest') and torch.backends.cudnn.allow_tf32 = False: the step"
        " should get several times slower",
    )  # fmt: skip


def _single(scene: Scene, operator: int) -> bool:
    return operator >= 0 and scene.executed.operators[operator].dtypes[:1] == ("fp32",)


RULE = Rule(id=ID, look=look, needs=("names", "operators", "shapes"))
