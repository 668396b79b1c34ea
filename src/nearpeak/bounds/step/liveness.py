"""Device memory of a step over time, from the lifetime of each storage."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from nearpeak.core.answers.analysis import Fit, MemoryUse
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload

_PERSISTENT = ("weight", "state", "kv_cache", "input")


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """Memory use of a step, call by call."""

    use: MemoryUse
    """Sums and peaks."""
    fixed_bytes: tuple[int, ...]
    """Bytes during each call that do not grow with the batch: weights, optimizer state, gradients of weights."""
    growing_bytes: tuple[int, ...]
    """Bytes during each call that grow with it: inputs, caches, intermediate results."""


def occupancy_of(workload: Workload) -> Occupancy:
    """Return the least memory of the step as captured: a storage lives from its first write to its last use.

    Weights, optimizer state, caches and inputs live throughout; gradients of parameters are those storages that
    the backward pass writes and the optimizer reads.
    """
    written = {use.buffer for call in workload.calls if call.phase == "backward" for use in call.writes}
    read = {use.buffer for call in workload.calls if call.phase == "optimizer" for use in call.reads}
    gradients = frozenset(n for n in written & read if workload.buffers[n].kind not in _PERSISTENT)
    by_kind = {kind: sum(buffer.bytes for buffer in workload.buffers if buffer.kind == kind) for kind in _PERSISTENT}
    everything, passing = _timeline(workload, frozenset()), _timeline(workload, gradients)
    held = by_kind["weight"] + by_kind["state"]
    carried = by_kind["kv_cache"] + by_kind["input"]
    use = MemoryUse(
        weight_bytes=by_kind["weight"],
        gradient_bytes=sum(workload.buffers[number].bytes for number in gradients),
        state_bytes=by_kind["state"],
        kv_cache_bytes=by_kind["kv_cache"],
        input_bytes=by_kind["input"],
        activation_peak_bytes=max(passing, default=0),
        peak_bytes=held + carried + max(everything, default=0),
    )
    fixed = tuple(held + both - growing for both, growing in zip(everything, passing, strict=True))
    return Occupancy(use=use, fixed_bytes=fixed, growing_bytes=tuple(carried + growing for growing in passing))


def fit_of(occupancy: Occupancy | None, target: Target, batch_count: int | None) -> Fit:
    """Return whether the step fits `target`, and the largest batch that would at every call of it."""
    capacity = target.dram.capacity_bytes
    if capacity is None or occupancy is None:
        return Fit(fits=None, capacity_bytes=capacity, largest_batch_count=None)
    largest = None  # none when nothing grows with the batch
    if batch_count is not None:
        pairs = set(zip(occupancy.fixed_bytes, occupancy.growing_bytes, strict=True))
        limits = [(capacity - fixed) * batch_count // growing for fixed, growing in pairs if growing > 0]
        largest = max(0, min(limits)) if limits else None
    fits = occupancy.use.peak_bytes <= capacity
    return Fit(fits=fits, capacity_bytes=capacity, largest_batch_count=largest)


def _timeline(workload: Workload, left_out: frozenset[int]) -> list[int]:
    """Return the bytes of passing storages that live during each call."""
    first, last = _lifetimes(workload)
    steps = [0] * (len(workload.calls) + 1)
    for number, start in first.items():
        if number not in left_out:
            steps[start] += workload.buffers[number].bytes
            steps[last[number] + 1] -= workload.buffers[number].bytes
    return list(accumulate(steps))


def _lifetimes(workload: Workload) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Return the first and last call that uses each passing storage; outputs live to the end."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index, call in enumerate(workload.calls):
        for use in (*call.reads, *call.writes):
            buffer = workload.buffers[use.buffer]
            if buffer.kind not in _PERSISTENT:
                first.setdefault(use.buffer, index)
                last[use.buffer] = len(workload.calls) - 1 if buffer.kind == "output" else index
    return first, last
