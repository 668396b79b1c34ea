"""Host calls and their device work in order: the host and device queues of a trace."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearpeak.core.traces.executed_run import CUT, DEVICE, NOTHING, OWN, QueueItem
from nearpeak.core.traces.trace import DEVICE_KINDS, CopyKind, EventKind, Family, Memory, SyncKind
from nearpeak.traces import NO_ROW, Trace
from nearpeak.traces.executed.host_causes import Cover, Covers
from nearpeak.traces.timeline.lanes import lanes_of

Array = npt.NDArray[Any]
MOST_UNLINKED = 0.2
"""Part of device events without a call beyond which the device is looked at alone."""
_SYNC = re.compile(r"(Device|Stream|Event|Ctx|Context)Synchronize")
_ALLOC = re.compile(r"^(cuda|hip|cu)(Malloc|Free|MemAlloc|MemFree|HostAlloc|MemCreate|MemMap|MemUnmap)")
_WAIT = re.compile(r"StreamWaitEvent")
_GRAPH = re.compile(r"GraphLaunch")
_KINDS = {EventKind.MEMCPY: "copy", EventKind.MEMSET: "set"}
_UNSEEN = -2
"""Stream of what ran before the trace begins."""
_MOST_LATENCY_NS = 20_000
"""What a launch takes to its work at most where the queue is empty; more is waiting."""
_SLOW_ALLOC_NS = 20_000
"""Allocations that take less than this are served without waiting for the device."""


class Queues(NamedTuple):
    """The items, and what goes with them."""

    items: tuple[QueueItem, ...]
    latency_ns: int
    kernel_names: tuple[str, ...]
    operator_rows: tuple[int, ...]
    """For each item the row of its operator, NOTHING where there is none."""
    windows: tuple[tuple[int, int], ...]
    """Begin and end of each stretch of steps: from the end of earlier work to that of the host, or of the last work."""
    first_items: tuple[int, ...]
    """First item of each stretch."""


_CALLS = (("sync", _SYNC), ("alloc", _ALLOC), ("wait", _WAIT), ("graph", _GRAPH))


class _Call(NamedTuple):
    row: int
    works: tuple[int, ...]
    kind: str


def queues_of(
    trace: Trace, device: int, stretches: Sequence[Sequence[tuple[int, int]]], operators: Mapping[int, int],
    *, whole: bool = False,
) -> Queues:  # fmt: skip
    """Return the queues of stretches of steps, each step a (begin, end) on the host; both end before the next begins.

    Args:
        operators: row of the operator by row of the call.
        whole: whether the one step stands for the whole trace, which then begins with the first work of the device.
    """
    steps = [step for stretch in stretches for step in stretch]
    reader = _Reader(trace, steps, steps[0][0], operators)
    windows, first_items, items = [], list[int](), list[QueueItem]()
    for stretch in stretches:
        begin, end = stretch[0][0], stretch[-1][1]
        reader.resume(begin)
        first_items.append(len(items))
        windows.append(_read_stretch(reader, trace, device, (begin, end), whole=whole))
        items += _exclusive(trace, reader.items[len(items) :], windows[-1])
    return Queues(
        items=tuple(items), latency_ns=reader.latency_ns, kernel_names=tuple(reader.kernels),
        operator_rows=tuple(reader.operator_rows), windows=tuple(windows), first_items=tuple(first_items),
    )  # fmt: skip


def _read_stretch(
    reader: "_Reader", trace: Trace, device: int, span: tuple[int, int], *, whole: bool
) -> tuple[int, int]:
    """Take the calls of a stretch of steps; return its window."""
    begin, end = span
    calls = _calls(trace, device, begin, end)
    reader.backlog(device)
    if whole and calls:
        reader.waiting(min((int(trace.start_ns[row]) for call in calls for row in call.works), default=begin))
    for call in calls:
        reader.add(call)
    if not whole and any(call.row != NOTHING for call in calls):
        reader.finish(end)
    last = max((int(trace.end_ns[row]) for call in calls for row in call.works), default=end)
    return begin + reader.backlog_ns, last if whole else max(end, last)


def _calls(trace: Trace, device: int, begin: int, end: int) -> list[_Call]:
    """Return the calls within the steps in order of start, each with its device work in order of start."""
    work = trace.device_rows()
    work = work[trace.device[work] == device]
    if unlinked_ratio(trace, work) > MOST_UNLINKED:  # calls tell too little: the device alone
        inside = work[(trace.start_ns[work] >= begin) & (trace.start_ns[work] < end)]
        return [_Call(NOTHING, (int(row),), "") for row in inside]
    linked = work[trace.launch[work] != NO_ROW]
    launch = trace.launch[linked]
    inside = (trace.start_ns[launch] >= begin) & (trace.start_ns[launch] < end)
    order = np.lexsort((trace.start_ns[linked[inside]], launch[inside]))
    rows, first = np.unique(launch[inside][order], return_index=True)
    groups = np.split(linked[inside][order], first[1:]) if len(rows) else []
    by_call = {int(row): tuple(map(int, group)) for row, group in zip(rows, groups, strict=True)}
    processes = (
        np.unique(trace.process[launch]) if len(launch) else np.unique(trace.process[trace.rows(EventKind.HOST_API)])
    )
    api = trace.rows(EventKind.HOST_API)
    api = api[(trace.start_ns[api] >= begin) & (trace.start_ns[api] < end) & np.isin(trace.process[api], processes)]
    kinds = {name: trace.matching_names(pattern) for name, pattern in _CALLS}
    calls_in_steps = []
    for row in map(int, api):
        name = int(trace.name[row])
        kind = next((call_kind for call_kind, table in kinds.items() if table[name]), "")
        parent = int(trace.parent[row])
        nested = parent != NO_ROW and trace.kind[parent] == EventKind.HOST_API
        if row in by_call:
            calls_in_steps.append(_Call(row, by_call[row], kind if kind == "graph" else ""))
        elif kind in ("sync", "alloc", "wait") and not nested:
            calls_in_steps.append(_Call(row, (), kind))
    return calls_in_steps


def unlinked_ratio(trace: Trace, work: Array) -> float:
    """Return the part of device events that no recorded call of a runtime has enqueued."""
    call = trace.launch[work]
    return float(((call == NO_ROW) | (trace.kind[call] != EventKind.HOST_API)).mean()) if len(work) else 0.0


_ORDER = {"kernel": 0, "graph": 0, "comm": 1, "copy": 2, "set": 3}


def _exclusive(trace: Trace, items: Sequence[QueueItem], window: tuple[int, int]) -> tuple[QueueItem, ...]:
    """Return the items with the part of their length that no item of a class before, or begun before, covers."""
    exclusive_items = list(items)
    covered: list[tuple[int, int]] = []
    for rank in range(4):
        places = [p for p, item in enumerate(items) if item.event != NOTHING and _ORDER.get(item.kind) == rank]
        places.sort(key=lambda place: (int(trace.start_ns[items[place].event]), place))
        before = Cover(np.array([a for a, _ in covered]), np.array([b for _, b in covered])) if covered else None
        reached = window[0]
        for place in places:
            row = items[place].event
            start, end = max(int(trace.start_ns[row]), reached), min(int(trace.end_ns[row]), window[1])
            if end > start:
                exclusive_ns = end - start - (before.inside(start, end) if before else 0)
                exclusive_items[place] = exclusive_items[place]._replace(exclusive_ns=exclusive_ns)
                covered.append((start, end))
                reached = end
    return tuple(exclusive_items)


class _Reader:
    """Converts calls to queue items and tracks the recorded state of both queues."""

    def __init__(
        self, trace: Trace, steps: Sequence[tuple[int, int]], begin: int, operators: Mapping[int, int]
    ) -> None:
        self.trace, self.begin, self.operators = trace, begin, operators
        self.ends_of_steps = [end for _, end in steps]
        self.items: list[QueueItem] = []
        self.operator_rows: list[int] = []
        self.kernels: dict[str, int] = {}
        self.host_ns, self.step, self.backlog_ns = begin, 0, 0
        self.streams = lanes_of(trace, trace.rows(*DEVICE_KINDS, EventKind.SYNC))
        self.lanes: dict[int, int] = {}
        self.last: dict[int, int] = {}  # last item by lane
        self.ends: list[int] = []  # observed end of each item's work
        self.waits: dict[int, list[int]] = {}  # items that the next work of a lane runs after
        self.covers = Covers(trace, steps)
        self.latency_ns = self._latency()
        self.sync_rows = self._sync_by_call()

    def _latency(self) -> int:
        """Return the least time from call to work, of which launches a twentieth may be faster."""
        trace, rows = self.trace, self.trace.device_rows()
        rows = rows[trace.launch[rows] != NO_ROW]
        if not len(rows):
            return 0
        return min(
            _MOST_LATENCY_NS, max(0, int(np.quantile(trace.start_ns[rows] - trace.start_ns[trace.launch[rows]], 0.05)))
        )

    def _sync_by_call(self) -> dict[int, int]:
        rows = self.trace.rows(EventKind.SYNC)
        return {int(self.trace.launch[row]): int(row) for row in rows if self.trace.launch[row] != NO_ROW}

    def resume(self, begin: int) -> None:
        """Go on with a later stretch of steps, once host and device have ended the one before."""
        if self.items:
            self._append(NOTHING, NOTHING, CUT, waits=DEVICE, end=begin)
        while self.step < len(self.ends_of_steps) - 1 and begin >= self.ends_of_steps[self.step]:
            self.step += 1
        self.begin, self.host_ns, self.backlog_ns = begin, begin, 0
        self.last.clear()
        self.waits.clear()

    def backlog(self, device: int) -> None:
        """Begin with the work of earlier steps that still runs, one item per stream."""
        trace, rows = self.trace, self.trace.device_rows()
        rows = rows[(trace.device[rows] == device) & (trace.start_ns[rows] < self.begin + 10**9)]
        launch = trace.launch[rows]
        early = np.where(launch != NO_ROW, trace.start_ns[launch], trace.start_ns[rows]) < self.begin
        rows = rows[early & (trace.end_ns[rows] > self.begin)]
        streams = np.array([self.streams.of(int(row)) for row in rows], np.int64)
        for stream in np.unique(streams):
            end = int(trace.end_ns[rows[streams == stream]].max())
            lane = self.lanes.setdefault(int(stream), len(self.lanes))
            self.backlog_ns = max(self.backlog_ns, end - self.begin)
            self._append(
                NOTHING, NOTHING, "backlog", device_ns=end - self.begin, lag_ns=-self.latency_ns, lane=lane, end=end
            )

    def waiting(self, until: int) -> None:
        """Begin with the device work before the first recorded one."""
        if until - self.begin > self.backlog_ns:
            self.backlog_ns = until - self.begin
            lane = self.lanes.setdefault(_UNSEEN, len(self.lanes))
            self._append(
                NOTHING, NOTHING, "backlog", device_ns=self.backlog_ns, lag_ns=-self.latency_ns, lane=lane, end=until
            )

    def add(self, call: _Call) -> None:
        """Add a call and its work."""
        trace = self.trace
        begun = call.works[0] if call.row < 0 else call.row
        start, end = int(trace.start_ns[begun]), int(trace.end_ns[begun])
        while self.step < len(self.ends_of_steps) - 1 and start >= self.ends_of_steps[self.step]:
            self.step += 1
        if call.row < 0:
            self._lone(begun)
            return
        before = max(0, start - self.host_ns)
        parts = tuple(self.covers.parts(self.host_ns, start))
        issued = max(start, self.host_ns)
        taken = max(0, end - issued)
        if not call.works:
            self._wait(call, issued, end, before, taken, parts)
        for index, row in enumerate(call.works):
            first = index == 0
            self._work(
                call, row, issued, end, before if first else 0, taken if first else 0, parts if first else (), first
            )
        self.host_ns = max(self.host_ns, end)

    def finish(self, end: int) -> None:
        """End with the host time after the last call."""
        if end > self.host_ns:
            parts = tuple(self.covers.parts(self.host_ns, end))
            self._append(NOTHING, NOTHING, "host", before_ns=end - self.host_ns, parts=parts, end=end)

    def _lone(self, row: int) -> None:
        start, end = int(self.trace.start_ns[row]), int(self.trace.end_ns[row])
        lane = self._lane(row)
        ready = self.ends[self.last[lane]] if lane in self.last else self.begin
        self._append(
            NOTHING, row, self._kind(row), device_ns=end - start, lane=lane,
            lag_ns=start - max(ready, self.begin + self.latency_ns),
            kernel=self._kernel(row), end=end, operator=self.operators.get(int(self.trace.launch[row]), NOTHING),
            **self._copied(row, self._kind(row)),
        )  # fmt: skip

    def _wait(self, call: _Call, issued: int, end: int, before: int, taken: int, parts: Any) -> None:
        """Add a call without device work: a wait of the host or of a stream, or an allocation."""
        running = max((self.ends[index] for index in self.last.values()), default=0)
        if call.kind == "wait":
            self._stream_wait(call.row)
            self._append(call.row, NOTHING, "host", before_ns=before, call_ns=taken, parts=parts, end=end)
            return
        slow = call.kind == "sync" or (end - issued > _SLOW_ALLOC_NS and running > issued and end >= running)
        target = self._waited_for(call.row) if call.kind == "sync" else DEVICE
        reached = self.ends[target] if target >= 0 else running
        if slow and reached > issued and end >= reached:
            taken = end - reached
        elif call.kind == "sync" and reached > end:  # it waited for something that ended before
            slow = False
        self._append(
            call.row, NOTHING, call.kind, before_ns=before, call_ns=taken, waits=target if slow else NOTHING,
            parts=parts,
            end=end,
        )  # fmt: skip

    def _waited_for(self, row: int) -> int:
        """Return what a synchronisation waits for: the last item of its stream, or the device."""
        sync = self.sync_rows.get(row)
        if sync is not None and self.trace.at("sync", sync) in (SyncKind.STREAM, SyncKind.EVENT):
            lane = self.lanes.get(self.streams.of(sync))
            if lane in self.last:
                return self.last[lane]
        return DEVICE

    def _stream_wait(self, row: int) -> None:
        """Record that the next work of a stream runs after the latest work of another stream."""
        sync = self.sync_rows.get(row)
        if sync is None:
            return
        waited = self.trace.at("wait_stream", sync)
        other = None if waited is None else self.lanes.get(self.streams.beside(sync, int(waited)))
        lane = self._lane(sync)
        if other is not None and other in self.last and other != lane:
            self.waits.setdefault(lane, []).append(self.last[other])

    def _work(
        self, call: _Call, row: int, issued: int, end: int, before: int, taken: int, parts: Any, first: bool
    ) -> None:  # fmt: skip
        trace, lane = self.trace, self._lane(row)
        start, stop = int(trace.start_ns[row]), int(trace.end_ns[row])
        ready = self.ends[self.last[lane]] if lane in self.last else self.begin
        after = tuple(self.waits.pop(lane, ()))
        host = issued if first else max(issued, end)
        earliest = max(ready, host + self.latency_ns, *(self.ends[item] for item in after), 0)
        kind = "graph" if call.kind == "graph" and not first else self._kind(row)
        blocking = kind == "copy" and first and end >= stop
        if blocking:
            taken = end - stop
        self._append(
            call.row, row, kind, before_ns=before, call_ns=taken, device_ns=stop - start, lag_ns=start - earliest,
            lane=lane,
            waits=OWN if blocking else NOTHING, after=after, kernel=self._kernel(row), parts=parts, end=stop,
            operator=self.operators.get(call.row, NOTHING), **self._copied(row, kind),
        )  # fmt: skip

    def _append(self, call: int, event: int, kind: str, *, end: int, operator: int = NOTHING, **fields: Any) -> None:
        """Add an item; absent fields are 0 or `NOTHING`."""
        blank = {
            "before_ns": 0, "call_ns": 0, "device_ns": 0, "lag_ns": 0, "lane": NOTHING, "waits": NOTHING, "after": (),
            "kernel": NOTHING,
        }  # fmt: skip
        item = QueueItem(call=call, event=event, kind=kind, step=self.step, operator=NOTHING, **{**blank, **fields})
        self.items.append(item)
        self.operator_rows.append(operator)
        self.ends.append(end)
        if item.lane != NOTHING:
            self.last[item.lane] = len(self.items) - 1

    def _copied(self, row: int, kind: str) -> dict[str, Any]:
        """Return bytes and ends of a copy."""
        if kind != "copy":
            return {}
        direction = CopyKind(self.trace.at("copy_kind", row) or 0)
        end = "source_memory" if direction == CopyKind.H2D else "target_memory"
        memory = Memory(self.trace.at(end, row) or 0)
        size = self.trace.at("bytes", row)
        return {"size": NOTHING if size is None else int(size), "copy": f"{direction.name} {memory.name}".lower()}

    def _lane(self, row: int) -> int:
        return self.lanes.setdefault(self.streams.of(row), len(self.lanes))

    def _kind(self, row: int) -> str:
        kind = EventKind(self.trace.kind[row])
        if kind in _KINDS:
            return _KINDS[kind]
        return "comm" if self.trace.family[row] == Family.COMM else "kernel"

    def _kernel(self, row: int) -> int:
        if self.trace.kind[row] != EventKind.KERNEL:
            return NOTHING
        return self.kernels.setdefault(self.trace.name_of(row), len(self.kernels))


def operator_rows(trace: Trace, known: Any, begin: int, end: int) -> dict[int, int]:
    """Return for each call that gives work to a device the row of its operator: the innermost that `known` accepts.

    Where none is accepted, the innermost operator; a copy within a cast or a clone belongs to that.

    Args:
        known: says of the name of an operator whether it can be joined to a case.
        begin: first nanosecond of the calls asked about; end likewise.
    """
    table = trace.name_table(lambda text: bool(known(text)))
    outer = trace.name_table(lambda text: text in ("aten::_to_copy", "aten::clone"))
    rows_by_call: dict[int, int] = {}
    rows = trace.rows(*DEVICE_KINDS)
    calls = np.unique(trace.launch[rows][trace.launch[rows] != NO_ROW])
    for call in calls[(trace.start_ns[calls] >= begin) & (trace.start_ns[calls] < end)]:
        row, innermost, chosen = int(call), NOTHING, NOTHING
        while row != NO_ROW:
            if trace.kind[row] == EventKind.HOST_OP:
                innermost = row if innermost == NOTHING else innermost
                if chosen == NOTHING and table[trace.name[row]]:
                    chosen = row
                elif chosen != NOTHING and outer[trace.name[row]]:
                    chosen = row
                    break
            row = int(trace.parent[row])
        rows_by_call[int(call)] = chosen if chosen != NOTHING else innermost
    return rows_by_call
