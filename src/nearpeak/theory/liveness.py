"""Device memory of a step: what must exist when, storage by storage."""

from collections.abc import Mapping
from itertools import accumulate

from nearpeak.core.analysis import Fit, MemoryUse
from nearpeak.core.target import Target
from nearpeak.core.workload import Workload

_PERSISTENT = ("weight", "state", "kv_cache", "input")
_PER_BATCH = ("kv_cache", "input")


def memory_use(workload: Workload) -> MemoryUse:
    """Return the least memory of the step as captured: a storage lives from its first write to its last use.

    Weights, optimizer state, caches and inputs live throughout; gradients of parameters are those storages that
    the backward pass writes and the optimizer reads.
    """
    gradients = _parameter_gradients(workload)
    by_kind = {kind: _kind_bytes(workload, kind) for kind in _PERSISTENT}
    timeline = _timeline(workload, frozenset())
    passing = _timeline(workload, gradients)
    fixed = sum(by_kind.values())
    return MemoryUse(
        weight_bytes=by_kind["weight"],
        gradient_bytes=sum(workload.buffers[number].bytes for number in gradients),
        state_bytes=by_kind["state"],
        kv_cache_bytes=by_kind["kv_cache"],
        input_bytes=by_kind["input"],
        activation_peak_bytes=max(passing, default=0),
        peak_bytes=fixed + max(timeline, default=0),
    )


def fit_of(memory: MemoryUse | None, target: Target, batch_count: int | None) -> Fit:
    """Return whether the step fits `target`, and the largest batch that would.

    Weights, their gradients and optimizer state do not grow with the batch; everything else is taken as
    proportional to it.
    """
    capacity = target.dram.capacity_bytes
    if capacity is None or memory is None:
        return Fit(fits=None, capacity_bytes=capacity, largest_batch_count=None)
    fits = memory.peak_bytes <= capacity
    if batch_count is None:
        return Fit(fits=fits, capacity_bytes=capacity, largest_batch_count=None)
    fixed = memory.weight_bytes + memory.state_bytes + memory.gradient_bytes
    growing = max(memory.peak_bytes - fixed, memory.activation_peak_bytes + memory.input_bytes + memory.kv_cache_bytes)
    largest = (capacity - fixed) * batch_count // growing if growing > 0 and capacity > fixed else 0
    return Fit(fits=fits, capacity_bytes=capacity, largest_batch_count=max(0, largest))


def _kind_bytes(workload: Workload, kind: str) -> int:
    return sum(buffer.bytes for buffer in workload.buffers if buffer.kind == kind)


def _parameter_gradients(workload: Workload) -> frozenset[int]:
    """Return the storages that carry gradients of parameters from the backward pass to the optimizer."""
    written = {use.buffer for call in workload.calls if call.phase == "backward" for use in call.writes}
    read = {use.buffer for call in workload.calls if call.phase == "optimizer" for use in call.reads}
    return frozenset(n for n in written & read if workload.buffers[n].kind not in _PERSISTENT)


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
