"""Kernels that only change the layout of tensors for neighbouring operators."""

from collections.abc import Iterator

from nearpeak.core.traces.executed_run import NOTHING
from nearpeak.core.traces.finding_report import Abstained, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if
from nearpeak.traces.timeline.kernel_names import is_layout_conversion
from nearpeak.units import one_or_several

ID = "layout.transpose"
_COPIES = ("aten::clone", "aten::contiguous")

_ONLY = ("kernel of a step only changes", "kernels of a step only change")


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Remove the kernels."""
    places = [place for place, item in enumerate(scene.items) if item.kernel != NOTHING and _moves(scene, place)]
    if not places:
        return
    steps = scene.executed.step_count
    formats = [
        place for place in places if is_layout_conversion(scene.executed.kernels[scene.items[place].kernel].name)
    ]
    yield from scene.finding(
        ID,
        f"{one_or_several(len(places) / steps, *_ONLY)} layouts ({scene.device_s(places) * 1e3:.2f} ms),"
        f" {len(formats) / steps:.0f} of them conversions"
        f"{', the others copies into another order' if len(formats) < len(places) else ''}",
        scene.dropped(places),
        high_s=scene.device_s(places),
        evidence=[
            scene.evidence("time of layout kernels per step", scene.device_s(places), "s", places),
            scene.evidence("of them named as conversions", scene.device_s(formats), "s", formats),
        ],
        counter=[
            ("needed once, not in each step", state_if(len(places) < scene.executed.step_count)),
            ("a copy that protects a tensor from being overwritten", "not observable"),
        ],
        falsifier=_advice(scene, converted=2 * len(formats) > len(places)),
        scope="local",
    )


def _advice(scene: Scene, *, converted: bool) -> str:
    if not converted:
        return (
            "pass the strides unchanged to the next operator, or fuse the copy into the previous one:"
            " it should disappear"
        )
    return scene.advice(
        "keep tensors in the layout of these operators: the conversions should disappear",
        "model.to(memory_format=torch.channels_last) and its inputs",
    )


def _moves(scene: Scene, place: int) -> bool:
    item = scene.items[place]
    operator = scene.operator(item)
    if is_layout_conversion(scene.executed.kernels[item.kernel].name):
        return True
    return (
        operator is not None
        and operator.name in _COPIES
        and scene.family(item) in ("elementwise", "layout", "copy", "cast")
    )


RULE = Rule(id=ID, look=look, needs=("names",))
