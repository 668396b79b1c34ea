"""Host and device as two queues: how long the steps take if some items were different."""

from collections.abc import Iterable, Sequence

from nearpeak.core.executed import DEVICE, NOTHING, OWN, QueueItem
from nearpeak.core.finding_report import Change

QUEUE_DEPTH = 1024
"""Launches that may wait before a call blocks; what drivers allow is not documented."""


def replayed_ns(items: Sequence[QueueItem], latency_ns: int, changes: Iterable[Change] = ()) -> int:
    """Return the time from the first call to the end of the last work.

    The host issues one call after the other; work starts when its stream is free, its call is `latency_ns` old,
    and what
    it waits for has ended; calls that wait, and queues that are full, stop the host.

    Source: the recurrences H(i) = max(H(i-1), S(i-Q)) + h(i), S(i) = max(E(i-1), H(i) + latency, E(dependencies)).

    >>> one = QueueItem(0, 1, "kernel", 5, 2, 10, 0, 0, NOTHING, (), 0, 0, NOTHING)
    >>> replayed_ns([one, one], 3), replayed_ns([one, one], 3, [Change(0, device_ns=1)])
    (28, 25)
    """
    by_item = {change.item: change for change in changes}
    host, ends, ready, starts = 0, [0] * len(items), dict[int, int](), list[int]()
    for index, item in enumerate(items):
        change = by_item.get(index)
        if change is not None:
            item = changed(item, change)  # noqa: PLW2901  # the item as it would be
        host += item.before_ns
        end = host
        if item.lane != NOTHING:
            if len(starts) >= QUEUE_DEPTH:
                host = max(host, starts[-QUEUE_DEPTH])
            start = max(ready.get(item.lane, 0), host + latency_ns)
            for other in item.after:
                start = max(start, ends[other])
            start += item.lag_ns
            starts.append(start)
            end = ready[item.lane] = start + item.device_ns
        ends[index] = end
        if item.waits == OWN:
            host = max(host, end)
        elif item.waits == DEVICE:
            host = max(host, max(ready.values(), default=0))
        elif item.waits >= 0:
            host = max(host, ends[item.waits])
        host += item.call_ns
    return max(host, max(ready.values(), default=0))


def changed(item: QueueItem, change: Change) -> QueueItem:
    """Return the item as `change` has it."""
    fields = {name: value for name, value in change._asdict().items() if value is not None and name != "item"}
    return item._replace(**fields)


def merged(changes: Iterable[Change], items: Sequence[QueueItem]) -> tuple[Change, ...]:
    """Return one change per item: of several, the shortest times, and what no longer waits."""
    found: dict[int, Change] = {}
    for change in changes:
        before = found.get(change.item)
        found[change.item] = change if before is None else _both(before, change, items[change.item])
    return tuple(found.values())


def _both(one: Change, other: Change, item: QueueItem) -> Change:
    def least(name: str) -> int | None:
        values: list[int] = [v for v in (getattr(one, name), getattr(other, name)) if v is not None]
        if name in ("before_ns",) and len(values) == 2:  # two parts of the same gap are taken away one after the other
            return max(0, sum(values) - int(getattr(item, name)))
        return min(values) if values else None

    return Change(
        item=one.item, before_ns=least("before_ns"), call_ns=least("call_ns"), device_ns=least("device_ns"),
        lag_ns=least("lag_ns"), lane=one.lane if one.lane is not None else other.lane,
        waits=one.waits if one.waits is not None else other.waits,
        after=one.after if one.after is not None else other.after,
    )  # fmt: skip
