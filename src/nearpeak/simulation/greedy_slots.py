"""Greedy schedule of unequal thread blocks: each takes the earliest free slot, in grid order."""

from typing import Any

import numpy as np

from nearpeak.base.compilation import compiled
from nearpeak.errors import SpecError


def makespan_ps(durations_ps: Any, slot_count: int) -> int:
    """Return when the last of many blocks ends.

    Args:
        durations_ps: Length of each block, shape (blocks,), in the order in which they start.
        slot_count: Blocks that run at the same time.

    >>> makespan_ps([4, 3, 3, 2], 2)
    6
    """
    durations = np.ascontiguousarray(durations_ps, dtype=np.int64)
    if slot_count < 1:
        raise SpecError(f"{slot_count} slots: at least one block must run at a time")
    if durations.size == 0 or durations.min() < 0:
        raise SpecError("block lengths must be whole picoseconds, at least one and none negative")
    return int(max(_ends(durations, min(slot_count, durations.size))))


@compiled()
def _ends(durations: Any, slot_count: int) -> Any:
    """Return when each slot falls free for good: a binary heap of slots, the earliest on top."""
    heap = durations[:slot_count].copy()
    for start in range(slot_count // 2 - 1, -1, -1):
        _sink(heap, start)
    for i in range(slot_count, len(durations)):
        heap[0] += durations[i]
        _sink(heap, 0)
    return heap


@compiled()
def _sink(heap: Any, start: int) -> None:
    """Let an entry that grew go down to its place."""
    place, value = start, heap[start]
    while True:
        child = 2 * place + 1
        if child >= len(heap):
            break
        if child + 1 < len(heap) and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = value
