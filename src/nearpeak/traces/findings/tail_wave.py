"""Tail effect: matrix products whose last wave of blocks is nearly empty (wave quantisation)."""

import re
from collections.abc import Iterator
from math import ceil

from nearpeak.core.traces.executed_run import QueueItem
from nearpeak.core.traces.finding_report import Abstained, Change, TraceFinding
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if

ID = "gemm.tail"
_SPREADS = re.compile(r"split_?-?k|stream_?-?k|_sk_|persistent", re.IGNORECASE)
_TILE, _MUCH = 256, 0.2
"""Elements along a side of the largest tiles; part of the step from which on hidden waves are worth a line."""
_FULL, _WASTE = 0.5, 0.1
"""How full the last wave may be; part of a kernel's time that it must waste."""


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Let products whose last wave is nearly empty take the time of their blocks spread evenly.

    A wave is one block on each multiprocessor: where several share one, each runs slower by as much. Source: NVIDIA,
    "Matrix multiplication background user's guide", wave quantization.
    """
    sms = scene.executed.sm_count
    if not sms:
        yield Abstained(id=ID, reason="the number of multiprocessors is unknown: pass --target")
        return
    places = scene.where(lambda item: _product(scene, item) and wasted_ratio(item.block_count, sms) >= _WASTE)
    spread = [place for place in places if _SPREADS.search(scene.executed.kernels[scene.items[place].kernel].name)]
    places = [place for place in places if place not in set(spread)]
    if not places:
        # Blocks that stay on their multiprocessors work off several tiles each: waves cannot be seen.
        staying = scene.where(lambda item: _product(scene, item) and 0 < item.block_count <= sms < _tiles(scene, item))
        if scene.device_s(staying) > _MUCH * scene.step_s:
            reason = "most products run in persistent blocks, which stay on their multiprocessors: grids show no waves"
            yield Abstained(id=ID, reason=reason)
        return
    changes = [
        Change(place, device_ns=round(item.device_ns * (1 - wasted_ratio(item.block_count, sms))))
        for place in places
        for item in [scene.items[place]]
    ]
    worst = max(places, key=lambda place: scene.items[place].device_ns)
    blocks = scene.items[worst].block_count
    yield from scene.finding(
        ID,
        f"{len(places) / scene.executed.step_count:.0f} products of a step end in a wave that is nearly empty:"
        f" {blocks} blocks on {sms} multiprocessors are {blocks / sms:.2f} waves and take {ceil(blocks / sms)}",
        changes,
        evidence=[
            scene.evidence("time of these products per step", scene.device_s(places), "s", places),
            scene.evidence("blocks of the longest", blocks, "", [worst]),
            scene.evidence("waves of the longest", blocks / sms, ""),
        ],
        counter=[
            ("their names say that work is split evenly (split-K, stream-K)", state_if(False)),
            ("others that do so were left out", state_if(bool(spread))),
            ("several blocks share a multiprocessor, so that the last wave is shorter", "not observable"),
        ],
        falsifier="time the product with the batch cut so that its blocks fill whole waves: time per row should fall by"
        " the wasted share; then other tiles, split-K or stream-K",
        scope="local",
    )  # fmt: skip


def wasted_ratio(block_count: int, sm_count: int) -> float:
    """Return the part of a kernel's time that its last wave wastes; 0 where that is half full, or the only one.

    >>> round(wasted_ratio(140, 132), 3), wasted_ratio(264, 132), wasted_ratio(200, 132), wasted_ratio(100, 132)
    (0.47, 0.0, 0.0, 0.0)
    """
    if block_count <= sm_count or (block_count % sm_count) / sm_count >= _FULL:
        return 0.0
    waves = block_count / sm_count
    return 1 - waves / ceil(waves)


def _tiles(scene: Scene, item: QueueItem) -> int:
    """Return how many tiles a product has at least; 0 where its extents are not known."""
    operator = scene.operator(item)
    axes = dict(operator.cases[0].axes) if operator is not None and len(operator.cases) == 1 else {}
    return ceil(axes["m"] / _TILE) * ceil(axes["n"] / _TILE) if {"m", "n"} <= set(axes) else 0


def _product(scene: Scene, item: QueueItem) -> bool:
    return scene.family(item) in ("gemm", "conv")


RULE = Rule(
    id=ID,
    look=look,
    needs=("names", "grid"),
    concerns=lambda scene: any(_product(scene, item) for item in scene.items),
)
