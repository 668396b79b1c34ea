"""Optimizers that launch several small kernels per parameter instead of a few fused ones."""

import re
from collections.abc import Iterator
from math import ceil

from nearpeak.core.traces.executed_run import NOTHING
from nearpeak.core.traces.finding_report import Abstained, Change, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if

ID = "optimizer.unfused"
_JOINED = re.compile(r"multi_tensor|fused|foreach", re.IGNORECASE)
_UPDATES = re.compile(r"^aten::(addcdiv_|addcmul_|lerp_)$")
"""Operators that optimizers call for each parameter and hardly anything else does."""
_TENSORS = 36
"""Parameters that one kernel updates. Source: PyTorch, ATen/native/cuda/MultiTensorApply.cuh, four lists of tensors."""
_ACCESSES = 7 / 4
"""What a fused update reads and writes over what its largest step does: Adam reads weight, gradient and two moments and
writes three of them; its last step reads three and writes one."""
_LEAST = 32
"""Calls of a step from which on it is looked at."""


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Let one kernel update as many parameters as lists of tensors hold, each with the bytes of one whole update."""
    places = scene.where(lambda item: item.phase == "optimizer" and item.kernel != NOTHING)
    loose = [place for place in places if not _JOINED.search(_names(scene, place))]
    steps = scene.executed.step_count
    if len(loose) < _LEAST * steps or len(loose) < 0.5 * len(places):
        return
    updates = list(_updates(scene, loose))
    count = len(updates) / steps
    changes = [
        change
        for number, update in enumerate(updates)
        for change in _joined(scene, update, launched=number % _TENSORS == 0)
    ]
    yield from scene.finding(
        ID,
        f"the optimizer updates about {count:.0f} parameters by {len(loose) / steps:.0f} kernels of a step;"
        f" {ceil(count / _TENSORS)} over lists of tensors would suffice",
        changes,
        high_s=max(_host_s(scene, loose), scene.device_s(loose)),
        evidence=[
            scene.evidence("kernels of the optimizer per step", len(loose) / steps, "", loose),
            scene.evidence("their device time per step", scene.device_s(loose), "s"),
            scene.evidence("host time of their calls per step", _host_s(scene, loose), "s"),
            scene.evidence("parameters", count, ""),
        ],
        counter=[
            ("names of kernels that take lists of tensors", state_if(len(loose) < len(places))),
            ("a graph holds the update already", state_if(any(scene.items[p].kind == "graph" for p in loose))),
        ],
        falsifier=scene.advice(
            "update all parameters by one call that takes lists of tensors: its kernels should be as few as that",
            "torch.optim's fused=True, or foreach=True",
        ),
    )  # fmt: skip


def _names(scene: Scene, place: int) -> str:
    operator = scene.operator(scene.items[place])
    return f"{operator.name if operator else ''} {scene.executed.kernels[scene.items[place].kernel].name}"


def _updates(scene: Scene, places: list[int]) -> Iterator[list[int]]:
    """Yield the kernels of one parameter after the other: each begins with the operator that begins the phase."""
    update: list[int] = []
    first, step = "", NOTHING
    for place in places:
        name = _names(scene, place)
        if scene.items[place].step != step or (
            name == first and not (bool(update) and _names(scene, update[-1]) == _names(scene, place))
        ):
            if update:
                yield update
            if scene.items[place].step != step:
                first, step = name, scene.items[place].step
            update = []
        update.append(place)
    if update:
        yield update


def _joined(scene: Scene, update: list[int], *, launched: bool) -> Iterator[Change]:
    """Yield what is different if an update were part of a longer kernel; what starting each costs is paid once."""
    start_ns = min(scene.items[place].device_ns for place in update)
    longest = max(update, key=lambda place: scene.items[place].device_ns)
    for place in update:
        item = scene.items[place]
        named = sum(part for _, part in item.parts)
        if place != longest:
            yield Change(place, before_ns=named, call_ns=0, device_ns=0, lag_ns=min(0, item.lag_ns))
            continue
        moved = round(_ACCESSES * (item.device_ns - start_ns))
        if launched:
            yield Change(place, device_ns=min(item.device_ns, start_ns + moved))
        else:
            yield Change(place, before_ns=named, call_ns=0, device_ns=moved, lag_ns=min(0, item.lag_ns))


def _host_s(scene: Scene, places: list[int]) -> float:
    spent = sum(scene.items[place].before_ns + scene.items[place].call_ns for place in places)
    return spent * 1e-9 / scene.executed.step_count


def _updates_weights(scene: Scene) -> bool:
    return any(item.phase for item in scene.items) or any(
        _UPDATES.search(operator.name) for operator in scene.executed.operators
    )


def _fused(scene: Scene) -> Iterator[int]:
    """Yield the kernels that update lists of parameters at once."""
    for place, item in enumerate(scene.items):
        is_update = item.phase == "optimizer" or scene.family(item) == "optimizer"
        if is_update and item.kernel != NOTHING and _JOINED.search(_names(scene, place)):
            yield place


RULE = Rule(
    id=ID, look=look, needs=("host", "links", "names", "phase"), clears=_fused, concerns=_updates_weights
)  # fmt: skip
