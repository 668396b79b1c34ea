"""Replay of host and device as two queues: step time after changes to some items."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from nearpeak.core.traces.executed_run import CUT, DEVICE, NOTHING, OWN, QueueItem
from nearpeak.core.traces.finding_report import Change

QUEUE_DEPTH = 1024
"""Launches that may wait before a call blocks; what drivers allow is not documented."""


class WorkTimes(NamedTuple):
    """Earliest possible and actual start of one piece of work."""

    called_ns: int
    """Its call and the latency of launches after it."""
    start_ns: int
    """Begin."""
    end_ns: int
    """End."""


def replayed_ns(items: Sequence[QueueItem], latency_ns: int, changes: Iterable[Change] = ()) -> int:
    """Return the time from the first call to the end of the last work.

    The host issues one call after the other; work starts when its stream is free, its call is `latency_ns` old,
    and what
    it waits for has ended; calls that wait, and queues that are full, stop the host.

    Source: the recurrences H(i) = max(H(i-1), S(i-Q)) + h(i), S(i) = max(E(i-1), H(i) + latency, E(dependencies)).

    >>> item = QueueItem(0, 1, "kernel", 5, 2, 10, 0, 0, NOTHING, (), 0, 0, NOTHING)
    >>> replayed_ns([item, item], 3), replayed_ns([item, item], 3, [Change(0, device_ns=1)])
    (28, 25)
    """
    by_item = {change.item: change for change in changes}
    queues = _Queues(len(items), latency_ns)
    for index, item in enumerate(items):
        change = by_item.get(index)
        queues.take(index, item if change is None else changed(item, change))
    return max(queues.host, max(queues.ready.values(), default=0))


def lead_ns(items: Sequence[QueueItem]) -> int:
    """Return the time for which earlier work still runs where stretches of steps begin."""
    total, longest = 0, 0
    for item in items:
        if item.kind == CUT:
            total, longest = total + longest, 0
        elif item.kind == "backlog":
            longest = max(longest, item.device_ns)
    return total + longest


def begun_ns(items: Sequence[QueueItem], latency_ns: int) -> Iterator[WorkTimes | None]:
    """Yield for each item when its work was called and when it ran; none for items without work.

    >>> item = QueueItem(0, 1, "kernel", 5, 2, 10, 0, 0, NOTHING, (), 0, 0, NOTHING)
    >>> [tuple(each) for each in begun_ns([item, item], 3)]
    [(8, 8, 18), (15, 18, 28)]
    """
    queues = _Queues(len(items), latency_ns)
    for index, item in enumerate(items):
        yield queues.take(index, item)


class _Queues:
    """State of host and streams during a replay."""

    __slots__ = ("ends", "host", "latency", "ready", "starts")

    def __init__(self, item_count: int, latency_ns: int) -> None:
        self.host, self.latency = 0, latency_ns
        self.ends, self.ready = [0] * item_count, dict[int, int]()
        self.starts: list[int] = []

    def take(self, index: int, item: QueueItem) -> WorkTimes | None:
        self.host += item.before_ns
        end, begun = self.host, None
        if item.lane != NOTHING:
            if item.call != NOTHING and len(self.starts) >= QUEUE_DEPTH:  # work without a call fills no queue
                self.host = max(self.host, self.starts[-QUEUE_DEPTH])
            called = self.host + self.latency
            start = max(self.ready.get(item.lane, 0), called)
            for other in item.after:
                start = max(start, self.ends[other])
            start += item.lag_ns
            self.starts.append(start)
            end = self.ready[item.lane] = start + item.device_ns
            begun = WorkTimes(called, start, end)
        self.ends[index] = end
        self._wait(item, end)
        self.host += item.call_ns
        return begun

    def _wait(self, item: QueueItem, end: int) -> None:
        if item.waits == OWN:
            self.host = max(self.host, end)
        elif item.waits == DEVICE:
            self.host = max(self.host, max(self.ready.values(), default=0))
        elif item.waits >= 0:
            self.host = max(self.host, self.ends[item.waits])


def changed(item: QueueItem, change: Change) -> QueueItem:
    """Return the item after `change`."""
    fields = {name: value for name, value in change._asdict().items() if value is not None and name != "item"}
    return item._replace(**fields)


def merged(changes: Iterable[Change], items: Sequence[QueueItem]) -> tuple[Change, ...]:
    """Return one change per item: of several, the shortest times, and what no longer waits."""
    by_item: dict[int, Change] = {}
    for change in changes:
        before = by_item.get(change.item)
        by_item[change.item] = change if before is None else _both(before, change, items[change.item])
    return tuple(by_item.values())


def _both(first: Change, second: Change, item: QueueItem) -> Change:
    def least(name: str) -> int | None:
        values: list[int] = [v for v in (getattr(first, name), getattr(second, name)) if v is not None]
        if name in ("before_ns",) and len(values) == 2:  # two parts of the same gap are taken away one after the other
            return max(0, sum(values) - int(getattr(item, name)))
        return min(values) if values else None

    return Change(
        item=first.item, before_ns=least("before_ns"), call_ns=least("call_ns"), device_ns=least("device_ns"),
        lag_ns=least("lag_ns"), lane=first.lane if first.lane is not None else second.lane,
        waits=first.waits if first.waits is not None else second.waits,
        after=first.after if first.after is not None else second.after,
    )  # fmt: skip
