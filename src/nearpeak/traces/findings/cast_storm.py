"""Format casts that take a large part of the step."""

from collections.abc import Iterator

from nearpeak.core.traces.executed_run import NOTHING, QueueItem
from nearpeak.core.traces.finding_report import Abstained, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if
from nearpeak.units import one_or_several

ID = "amp.casts"
_COPIES = ("aten::clone", "aten::contiguous", "aten::copy_", "aten::cat", "aten::index_select", "aten::repeat")


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Remove the casts."""
    votes: dict[int, list[bool]] = {}
    for item in scene.items:
        if scene.family(item) == "cast" and scene.operator(item) is not None:
            votes.setdefault(item.kernel, []).append(_does(scene, item))
    casts_mostly = {kernel: 2 * sum(launches) > len(launches) for kernel, launches in votes.items()}
    places = scene.where(lambda item: item.kernel != NOTHING and _casts(scene, item, casts_mostly))
    if not places:
        return
    compiled = any("triton" in use.name for use in scene.executed.kernels)
    yield from scene.finding(
        ID,
        f"{one_or_several(len(places) / scene.executed.step_count, 'cast of a step takes', 'casts of a step take')}"
        f" {scene.device_s(places) * 1e3:.2f} ms",
        scene.dropped(places),
        evidence=[
            scene.evidence("casts per step", len(places) / scene.executed.step_count, "", places),
            scene.evidence("their time per step", scene.device_s(places), "s"),
        ],
        counter=[
            ("a compiler fuses casts already", state_if(compiled)),
            (
                "copies in one format under the same kernel names, which were left out",
                state_if(False in casts_mostly.values()),
            ),
        ],
        falsifier="convert the model as a whole (.bfloat16()), or cache the casts of frozen weights: the"
        " kernels should disappear",
        scope="local",
    )


def _casts(scene: Scene, item: QueueItem, casts_mostly: dict[int, bool]) -> bool:
    """Say whether a kernel casts: by its operator, else by what other launches of the kernel do, else by its name."""
    if scene.operator(item) is not None:
        return _does(scene, item)
    return scene.family(item) == "cast" and casts_mostly.get(item.kernel, True)


def _does(scene: Scene, item: QueueItem) -> bool:
    """Say whether an operator casts; kernels of plain copies are named like those of casts."""
    operator = scene.operator(item)
    name, formats = ("", ()) if operator is None else (operator.name, operator.dtypes)
    if name == "aten::_to_copy":
        return True
    if name in _COPIES:
        return name == "aten::copy_" and len(set(formats)) > 1
    return scene.family(item) == "cast"


RULE = Rule(id=ID, look=look, needs=("names", "operators"))
