"""Host time of the steps by kind, operator and module, with an upper limit of the gain from removing it."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.base.compilation import compiled_exactly
from nearpeak.core.traces.executed_run import HOST_KINDS_OF_TIME, NOTHING, ExecutedOperator, HostCost, QueueItem
from nearpeak.core.traces.finding_report import Change
from nearpeak.core.traces.trace import HOST_KINDS, EventKind
from nearpeak.traces import NO_ROW, Trace
from nearpeak.traces.executed.host_causes import CREATION, LOADING
from nearpeak.traces.executed.queue_replay import replayed_ns
from nearpeak.traces.timeline.hierarchy import modules_of, nearest

Array = npt.NDArray[Any]
_KINDS = tuple(HOST_KINDS_OF_TIME)
_RUNTIME, _OPERATORS, _AUTOGRAD, _CREATION, _MEMORY, _LOADING, _OUTSIDE = range(len(_KINDS))
_GRADIENT = re.compile(r"^autograd::|Backward\d*$|AccumulateGrad$")
_EMPTY = re.compile(
    r"^aten::(empty|empty_strided|empty_like|new_empty|resize_)$|^(cuda|hip|cu)(Malloc|Free|Mem(Alloc|Free))"
)
_NUMBER = re.compile(r"_\d+$")
MOST_ROWS = 6
"""Operators and kinds of modules of which the cost is worked out: those on which the host spends most."""


def host_costs(
    trace: Trace,
    items: Sequence[QueueItem],
    operators: Sequence[ExecutedOperator],
    latency_ns: int,
    window_ns: tuple[Array, Array],
) -> tuple[HostCost, ...]:
    """Return the host time by kind, operator and module, largest first; nothing where no calls are recorded.

    Times of kinds add up to the host's time without its waits. What each costs the step is a bound: the difference of
    two replays, the second without that time.

    Args:
        window_ns: begin of the stretch of steps of each item, before which no host time counts, and its end.
    """
    if not any(item.call != NOTHING for item in items):
        return ()
    parts = _parts(trace, items, *window_ns)
    spent = parts.sum(axis=1)
    base = replayed_ns(items, latency_ns)

    def cost(by: str, name: str, changes: list[Change], time_ns: int, count: int) -> HostCost:
        gain = max(0, base - replayed_ns(items, latency_ns, changes))
        return HostCost(by=by, name=name, time_ns=time_ns, call_count=count, gain_ns=gain)

    costs = []
    for kind, name in enumerate(_KINDS):
        if parts[:, kind].any():
            changes, count = _without(items, parts[:, kind], kind), int((parts[:, kind] > 0).sum())
            costs.append(cost("kind", name, changes, int(parts[:, kind].sum()), count))
    by_operator = (
        (place, operators[item.operator].name)
        for place, item in enumerate(items)
        if NOTHING not in (item.operator, item.event)
    )
    for by, owners in (("operator", by_operator), ("module", _modules(trace, items))):
        for name, places in _largest(spent, owners):
            changes = [Change(place, before_ns=0, call_ns=0) for place in places]
            costs.append(cost(by, name, changes, int(spent[places].sum()), len(places)))
    order = {"kind": 0, "operator": 1, "module": 2}
    return tuple(sorted(costs, key=lambda host_cost: (order[host_cost.by], -host_cost.time_ns, host_cost.name)))


def _parts(trace: Trace, items: Sequence[QueueItem], begin_ns: Array, end_ns: Array) -> Array:
    """Return for each item the host time before and in its call by kind, in whole nanoseconds that add up to it."""
    times_ns = np.zeros((len(items), len(_KINDS)), np.int64)
    calls = np.array([item.call for item in items], np.int64)
    known = calls != NOTHING
    ends = np.where(known, trace.start_ns[calls], end_ns)
    before = np.minimum(np.array([item.before_ns for item in items], np.int64), np.maximum(ends - begin_ns, 0))
    kinds = _kinds(trace)
    threads = np.stack([trace.process[calls[known]], trace.thread[calls[known]]]) if known.any() else np.zeros((2, 0))
    for process, thread in np.unique(threads, axis=1).T:
        mine = known & (trace.process[calls] == process) & (trace.thread[calls] == thread)
        times_ns[mine] = _covered(trace, (process, thread), ends[mine] - before[mine], ends[mine], kinds)
    times_ns[:, _OUTSIDE] += before - times_ns.sum(axis=1)
    slow = [place for place, item in enumerate(items) if item.kind == "alloc"]
    kind_of_call = np.full(len(items), _RUNTIME)
    kind_of_call[slow] = _MEMORY
    times_ns[np.arange(len(items)), kind_of_call] += np.array([item.call_ns for item in items], np.int64)
    return times_ns


def _kinds(trace: Trace) -> Array:
    """Return the kind of time that each host event takes while no event inside it does."""
    kinds = np.full(len(trace), _OUTSIDE, np.int8)
    operators = trace.of_kind(EventKind.HOST_OP)
    kinds[operators] = _OPERATORS

    def named(pattern: re.Pattern[str]) -> Array:
        return trace.where(lambda name: bool(pattern.search(name)))

    kinds[operators & named(_GRADIENT)] = _AUTOGRAD
    kinds[operators & (nearest(trace, operators & named(CREATION)) != NO_ROW)] = _CREATION
    kinds[trace.of_kind(EventKind.HOST_API)] = _RUNTIME
    kinds[trace.of_kind(EventKind.HOST_OP, EventKind.HOST_API) & named(_EMPTY) & (kinds != _CREATION)] = _MEMORY
    kinds[nearest(trace, trace.of_kind(*HOST_KINDS) & named(LOADING)) != NO_ROW] = _LOADING
    return kinds


def _covered(trace: Trace, lane: tuple[int, int], begin: Array, end: Array, kinds: Array) -> Array:
    """Return the time of spans of one thread by the kind of the innermost event."""
    rows = trace.rows(*HOST_KINDS)
    rows = rows[(trace.process[rows] == lane[0]) & (trace.thread[rows] == lane[1])]
    rows = rows[(trace.end_ns[rows] > trace.start_ns[rows]) & (trace.end_ns[rows] > begin.min(initial=0))]
    rows = rows[trace.start_ns[rows] < end.max(initial=0)]
    times = np.concatenate([trace.end_ns[rows], trace.start_ns[rows]])
    order = np.lexsort((np.repeat([0, 1], len(rows)), times))  # at one moment, what ends before what begins
    innermost = _innermost(order, len(rows))
    times = times[order]
    kind = np.where(innermost < 0, _OUTSIDE, kinds[rows[innermost]]) if len(rows) else innermost
    times_ns = np.zeros((len(begin), len(_KINDS)), np.int64)
    for kind_number in range(len(_KINDS)):
        if kind_number == _OUTSIDE or not len(times):
            continue
        length = np.where(kind[:-1] == kind_number, np.diff(times), 0)
        reached = np.concatenate([[0], np.cumsum(length)])
        times_ns[:, kind_number] = _until(end, times, kind == kind_number, reached) - _until(
            begin, times, kind == kind_number, reached
        )
    return times_ns


@compiled_exactly()
def _innermost(order: Any, count: int) -> Any:
    """Return after each end and begin the event that began last of those still open, -1 where none is.

    Clocks of profilers let events of one thread cross a little, so that the enclosing event alone does not tell.
    """
    stack, innermost = np.empty(count, np.int64), np.empty(len(order), np.int64)
    closed = np.zeros(count, np.bool_)
    depth = 0
    for i in range(len(order)):
        if order[i] >= count:
            stack[depth] = order[i] - count
            depth += 1
        else:
            closed[order[i]] = True
        while depth and closed[stack[depth - 1]]:
            depth -= 1
        innermost[i] = stack[depth - 1] if depth else -1
    return innermost


def _until(moments: Array, times: Array, open_: Array, reached: Array) -> Array:
    """Return the time of a kind before each moment."""
    place = np.searchsorted(times, moments, side="right") - 1
    inside = np.where(open_[place], moments - times[place], 0)
    before_ns: Array = np.where(place < 0, 0, reached[place] + inside)
    return before_ns


def _without(items: Sequence[QueueItem], part: Array, kind: int) -> list[Change]:
    """Return the changes that remove the host time of a kind."""
    changes = []
    for place in np.flatnonzero(part).tolist():
        item, gone = items[place], int(part[place])
        in_call = item.call_ns if kind == (_MEMORY if item.kind == "alloc" else _RUNTIME) else 0
        changes.append(Change(place, before_ns=item.before_ns - (gone - in_call), call_ns=item.call_ns - in_call))
    return changes


def _modules(trace: Trace, items: Sequence[QueueItem]) -> Iterator[tuple[int, str]]:
    places = [place for place, item in enumerate(items) if NOTHING not in (item.event, item.call)]
    owners = modules_of(trace, np.array([items[place].event for place in places], np.int64))
    for place, owner in zip(places, owners.tolist(), strict=True):
        if owner != NO_ROW:
            yield place, _NUMBER.sub("", trace.name_of(owner))


def _largest(spent: Array, owners: Iterable[tuple[int, str]]) -> list[tuple[str, list[int]]]:
    """Return the names with most host time, with their items."""
    places_by_name: Mapping[str, list[int]] = defaultdict(list)
    for place, name in owners:
        places_by_name[name].append(place)
    return sorted(places_by_name.items(), key=lambda pair: (-int(spent[pair[1]].sum()), pair[0]))[:MOST_ROWS]
