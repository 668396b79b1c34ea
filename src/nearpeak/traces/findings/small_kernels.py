"""Chains of pointwise kernels that move the same elements through memory repeatedly."""

from collections.abc import Iterator

from nearpeak.core.traces.finding_report import Abstained, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if
from nearpeak.units import one_or_several

ID = "elementwise.unfused"


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Keep the longest kernel of each chain, as a fused one reads and writes no less than it."""
    kernel_chains = list(chains(scene))
    spare = [
        place
        for chain in kernel_chains
        for place in chain
        if place != max(chain, key=lambda p: scene.items[p].device_ns)
    ]
    if not spare:
        return
    long = max(len(chain) for chain in kernel_chains)
    per_step = len(kernel_chains) / scene.executed.step_count
    yield from scene.finding(
        ID,
        f"{one_or_several(per_step, 'chain', 'chains')} of pointwise kernels in a step, up to {long} long, could be one"
        f" kernel{' each' if round(per_step) > 1 else ''}",
        scene.dropped(spare),
        evidence=[
            scene.evidence("kernels per step that fusion saves", len(spare) / scene.executed.step_count, "", spare),
            scene.evidence("their time per step", scene.device_s(spare), "s"),
        ],
        counter=[
            (
                "a compiler has fused already",
                state_if(any("triton" in kernel.name for kernel in scene.executed.kernels)),
            )
        ],
        falsifier="torch.compile of the module: the kernels of a chain should become one, as long as the"
        " longest of them",
        scope="local",
    )


def chains(scene: Scene) -> Iterator[list[int]]:
    """Yield runs of pointwise kernels on one stream that follow each other and pass as many elements."""
    open_: dict[int, list[int]] = {}
    size: dict[int, int] = {}
    for place, item in enumerate(scene.items):
        if item.lane < 0 or item.phase:  # what the optimizer does has a finding of its own
            continue
        elements = _elements(scene, place)
        chain = open_.setdefault(item.lane, [])
        if chain and (elements is None or elements != size[item.lane] or item.step != scene.items[chain[-1]].step):
            if len(chain) > 1:
                yield chain
            chain = open_[item.lane] = []
        if elements is not None:
            size[item.lane] = elements
            chain.append(place)
    yield from (chain for chain in open_.values() if len(chain) > 1)


def _elements(scene: Scene, place: int) -> int | None:
    """Return the elements that a pointwise kernel passes; none for everything else."""
    item = scene.items[place]
    operator = scene.operator(item)
    if operator is None or scene.family(item) != "elementwise" or item.kind == "graph" or not operator.shapes:
        return None
    if operator.name in ("aten::clone", "aten::copy_", "aten::embedding", "aten::index_select", "aten::fill_"):
        return None
    count = 1
    for extent in max(operator.shapes, key=len):
        count *= extent
    return count


RULE = Rule(id=ID, look=look, needs=("names", "operators", "shapes"))
