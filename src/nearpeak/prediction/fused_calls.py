"""Groups of calls that a compiler fuses into one kernel, and the memory traffic that fusion saves."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from nearpeak.base.identity_key import Same
from nearpeak.core.work.workload import Call, Use, Workload
from nearpeak.ops import OPS

FUSIBLE = ("pointwise", "movement", "norm", "reduction", "loss")
"""Families of operators whose calls compilers write themselves; products, attention and optimizers stay kernels of
libraries, as in TorchInductor."""
MOST_CALLS = 64
"""Calls of one fused kernel. Source: PyTorch, torch/_inductor/config.py, `max_fusion_size`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedCalls:
    """Calls that run as one kernel."""

    positions: tuple[int, ...]
    """Their positions in the workload."""
    traffic_ratio: float
    """Bytes that the one kernel moves over those that the calls move one by one; at most 1."""


def fused_calls(workload: Workload) -> tuple[FusedCalls, ...]:
    """Return the groups of two calls and more that run as one kernel.

    Those that the capture recorded (`--fusion inductor`), else neighbours: calls between two library kernels that hand
    results to each other.
    """
    return _remembered(Same(workload))


@lru_cache(maxsize=2)  # one step is predicted on many targets in a row
def _remembered(same: "Same[Workload]") -> tuple[FusedCalls, ...]:
    workload = same.held
    groups = workload.groups or tuple(_neighbours(workload.calls))
    needed_by: dict[int, set[int]] = {}
    for number, group in enumerate(groups):
        for position in group:
            for use in workload.calls[position].reads:
                needed_by.setdefault(use.buffer, set()).add(number)
    grouped = {position for group in groups for position in group}
    outside = {use.buffer for place, call in enumerate(workload.calls) if place not in grouped for use in call.reads}
    persistent = {place for place, buffer in enumerate(workload.buffers) if buffer.kind != "activation"} | outside
    return tuple(
        FusedCalls(positions=group, traffic_ratio=_traffic_ratio(workload, group, number, needed_by, persistent))
        for number, group in enumerate(groups)
        if len(group) > 1
    )


def _neighbours(calls: Sequence[Call]) -> Iterator[tuple[int, ...]]:
    """Yield calls without a library kernel between them that are connected by what they write and read."""
    stretch: list[int] = []
    for position, call in enumerate(calls):
        is_fusible = call.case is not None and OPS[call.case.op].family in FUSIBLE and call.call_count == 1
        if not is_fusible or (stretch and calls[stretch[-1]].phase != call.phase):
            yield from _connected(calls, stretch)
            stretch = []
        if is_fusible:
            stretch.append(position)
    yield from _connected(calls, stretch)


def _connected(calls: Sequence[Call], stretch: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the calls of a stretch in groups of which each call reads what another of its group wrote."""
    home: dict[int, int] = {}  # storage: group of the call that wrote it last
    groups: dict[int, list[int]] = {}
    written: dict[int, set[int]] = {}  # by group
    for position in stretch:
        call = calls[position]
        joined = sorted({home[use.buffer] for use in call.reads if use.buffer in home})
        if sum(len(groups[number]) for number in joined) >= MOST_CALLS:
            joined = []
        number = joined[0] if joined else position
        members = [member for other in joined for member in groups.pop(other)]
        groups[number] = [*members, position]
        written[number] = {use.buffer for use in call.writes}.union(*(written.pop(other) for other in joined))
        home.update(dict.fromkeys(written[number], number))
    yield from (tuple(sorted(group)) for group in groups.values())


def _traffic_ratio(
    workload: Workload, group: Sequence[int], number: int, needed_by: Mapping[int, set[int]], persistent: set[int]
) -> float:
    """Return what the group must move over what its calls move alone; 1 where they move nothing that is known."""
    written: set[int] = set()
    reads: dict[int, int] = {}
    writes: dict[int, int] = {}
    alone = 0
    for position in group:
        call = workload.calls[position]
        alone += sum(use.bytes for use in (*call.reads, *call.writes))
        _count(reads, [use for use in call.reads if use.buffer not in written])
        needed = [use for use in call.writes if use.buffer in persistent or needed_by.get(use.buffer, set()) - {number}]
        _count(writes, needed)
        written.update(use.buffer for use in call.writes)
    return min(1.0, (sum(reads.values()) + sum(writes.values())) / alone) if alone else 1.0


def _count(largest: dict[int, int], uses: Sequence[Use]) -> None:
    for use in uses:
        largest[use.buffer] = max(largest.get(use.buffer, 0), use.bytes)
