"""Device time by use: compute, exposed communication, copies and fills, and idle time by cause."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.core.traces.timeline import HOST_CAUSES, Idle, Timeline
from nearpeak.core.traces.trace import DEVICE_KINDS, EventKind, Family
from nearpeak.traces.timeline.interval_arithmetic import exposed, gaps_of, inside, union_ns
from nearpeak.traces.timeline.kernel_names import is_library_communication
from nearpeak.traces.timeline.lanes import lanes_of
from nearpeak.traces.timeline.trace_columns import MISSING, NO_ROW, Trace

Array = npt.NDArray[Any]
_COMPUTE, _COMM, _MEMCPY, _MEMSET = range(4)


class Communication(StrEnum):
    """Which kernels count as communication."""

    LIBRARY = "kernels of NCCL and RCCL, as most tools count"
    ANY = "every kernel that the table of names calls communication"


class Events(StrEnum):
    """Which device events count."""

    ALL = "all"
    LINKED = "those whose call was recorded"


def timelines(
    trace: Trace,
    *,
    events: Events = Events.ALL,
    communication: Communication = Communication.LIBRARY,
    kinds: Sequence[EventKind] = DEVICE_KINDS,
    window_ns: tuple[int, int] | None = None,
) -> tuple[Timeline, ...]:
    """Return the timeline of each device; several devices are never merged into one.

    Args:
        kinds: which kinds of device events count; kernels alone make a device look idle that copies.
        window_ns: start and end of what is looked at; events that it cuts are clipped, and it is the span. Without it
            the span reaches from the first start to the last end.

    Identity: compute + exposed communication + exposed copies + exposed fills + idle = span, in whole nanoseconds.
    """
    rows = trace.rows(*kinds)
    if events is Events.LINKED:
        rows = rows[trace.launch[rows] != NO_ROW]
    if window_ns is not None:
        rows = rows[(trace.end_ns[rows] > window_ns[0]) & (trace.start_ns[rows] < window_ns[1])]
    devices = np.unique(trace.device[rows])
    return tuple(_timeline(trace, rows[trace.device[rows] == device], communication, window_ns) for device in devices)


def end_to_end(parts: Sequence[Timeline], span_ns: int) -> Timeline:
    """Return the timeline of several windows of one device laid end to end.

    Args:
        span_ns: length of all windows; of those in which the device did nothing there is no part.
    """
    if len(parts) == 1 and parts[0].span_ns == span_ns:
        return parts[0]
    first, idle_ns, busy_ns = parts[0], Counter[Idle](), Counter[str]()
    for part in parts:
        idle_ns.update(part.idle_by_cause_ns)
        busy_ns.update(part.stream_busy_ns)
    idle_ns[Idle.UNKNOWN] += span_ns - sum(part.span_ns for part in parts)
    delays = [part.queue_delay_ns for part in parts if part.queue_delay_ns is not None]
    combined = ("device", "start_ns", "end_ns", "idle_by_cause_ns", "stream_busy_ns", "queue_delay_ns", "order")
    sums: dict[str, Any] = {
        field.name: sum(getattr(part, field.name) for part in parts)
        for field in fields(Timeline) if field.name not in combined
    }  # fmt: skip
    return replace(
        first, end_ns=first.start_ns + span_ns, idle_by_cause_ns=+idle_ns, stream_busy_ns=busy_ns,
        queue_delay_ns=int(np.median(delays)) if delays else None, **sums,
    )  # fmt: skip


def _timeline(trace: Trace, rows: Array, communication: Communication, window: tuple[int, int] | None) -> Timeline:
    start, end = trace.start_ns[rows], trace.end_ns[rows]
    if window is not None:
        start, end = np.maximum(start, window[0]), np.minimum(end, window[1])
    rank = class_of(trace, rows, communication)
    first, whole = exposed(start, end, rank, 4)
    count = np.bincount(rank, minlength=4)
    length = [int((end - start)[rank == number].sum()) for number in range(4)]
    gaps, causes = _idle(trace, rows, start, end, window)
    api = trace.of_kind(EventKind.HOST_API)
    launches_graph = api & _named(trace, api, re.compile("GraphLaunch"))
    linked = rows[trace.launch[rows] != NO_ROW]
    delays = trace.start_ns[linked] - trace.start_ns[trace.launch[linked]]
    graph = launches_graph[trace.launch[rows]] & (trace.launch[rows] != NO_ROW)
    size = trace.values("bytes", rows[rank == _MEMCPY])
    device = trace.device[rows[0]]
    lanes = lanes_of(trace, rows)
    order = np.argsort(lanes.numbers, kind="stable")
    stops = np.cumsum(np.bincount(lanes.numbers, minlength=len(lanes.labels)))
    parts = zip(lanes.labels, np.split(order, stops[:-1]), strict=True)
    streams = {label: union_ns(start[mine], end[mine]) for label, mine in parts}
    return Timeline(
        device=None if device == MISSING else int(device),
        start_ns=int(start.min() if window is None else window[0]),
        end_ns=int(end.max() if window is None else window[1]),
        compute_ns=int(first[0]),
        exposed_comm_ns=int(first[1]),
        exposed_memcpy_ns=int(first[2]),
        exposed_memset_ns=int(first[3]),
        comm_ns=int(whole[1]),
        memcpy_ns=int(whole[2]),
        memset_ns=int(whole[3]),
        kernel_count=int(count[0]),
        comm_count=int(count[1]),
        memcpy_count=int(count[2]),
        memset_count=int(count[3]),
        kernel_sum_ns=length[0],
        comm_sum_ns=length[1],
        memcpy_bytes=int(size[size != MISSING].sum()),
        unlinked_count=int((trace.launch[rows] == NO_ROW).sum()),
        gap_count=gaps,
        idle_by_cause_ns=causes,
        queue_delay_ns=int(np.median(delays)) if len(linked) else None,
        stream_busy_ns=streams,
        graph_launch_count=len(np.unique(trace.launch[rows[graph]])),
        graph_kernel_count=int(graph.sum()),
    )


def class_of(trace: Trace, rows: Array, communication: Communication = Communication.LIBRARY) -> Array:
    """Return the class of device events: 0 compute, 1 communication, 2 copies, 3 fills."""
    kind = trace.kind[rows]
    if communication is Communication.ANY:
        talks = trace.family[rows] == Family.COMM
    else:
        table = np.zeros(len(trace.texts), np.bool_)
        for index in np.unique(trace.name[rows]):
            table[index] = is_library_communication(trace.texts[int(index)])
        talks = table[trace.name[rows]] if len(rows) else np.zeros(0, np.bool_)
    classes = np.where(talks, _COMM, _COMPUTE)
    classes[kind == EventKind.MEMCPY] = _MEMCPY
    classes[kind == EventKind.MEMSET] = _MEMSET
    return classes


def _idle(
    trace: Trace, rows: Array, start: Array, end: Array, window: tuple[int, int] | None
) -> tuple[int, dict[Idle, int]]:
    """Return how many gaps there are and the idle time by cause.

    A gap ends where the next work starts. Until its call has returned, the device waits for the host; after that for
    what comes before in the queue.
    """
    places, begins = gaps_of(start, end)
    stops = start[places]
    call = _earliest_calls(trace, rows, start, places)
    if window is not None:
        edges = [
            (window[0], int(start[0]), int(_earliest_calls(trace, rows, start, np.zeros(1, np.int64))[0])),
            (int(end.max()), window[1], NO_ROW),
        ]
        more = [edge for edge in edges if edge[1] > edge[0]]
        begins = np.concatenate([begins, np.array([edge[0] for edge in more], np.int64)])
        stops = np.concatenate([stops, np.array([edge[1] for edge in more], np.int64)])
        call = np.concatenate([call, np.array([edge[2] for edge in more], np.int32)])
    known = call != NO_ROW
    split = np.where(known, np.clip(trace.end_ns[call] if len(trace) else begins, begins, stops), begins)
    causes = {
        Idle.QUEUE: int((stops - split)[known].sum()),
        Idle.UNKNOWN: int((stops - begins)[~known].sum()),
        **_host_causes(trace, call[known], begins[known], split[known]),
    }
    return len(begins), {cause: time for cause, time in causes.items() if time}


def _earliest_calls(trace: Trace, rows: Array, start: Array, places: Array) -> Array:
    """Return the call for which each gap waited: of work that starts together, that whose call returned first."""
    if not len(places):
        return np.zeros(0, np.int32)
    call = trace.launch[rows]
    last = np.iinfo(np.int64).max
    returned = np.where(call == NO_ROW, last, trace.end_ns[call])
    began = np.where(call == NO_ROW, last, trace.start_ns[call])
    group = np.searchsorted(start, start, side="left")
    order = np.lexsort((call, began, returned, group))
    first = order[np.searchsorted(group[order], group[places], side="left")]
    calls: Array = call[first]
    return calls


_CAUSE_NAMES: tuple[tuple[Idle, re.Pattern[str]], ...] = (
    (Idle.SYNC, re.compile(r"Synchronize|StreamWaitValue|aten::(item|_local_scalar_dense|nonzero|is_nonzero)$")),
    (
        Idle.ALLOC,
        re.compile(r"^(cuda|hip|cu)(Malloc|Free|MemAlloc|MemFree|MemCreate|MemMap|MemUnmap|MemRelease|HostAlloc)"),
    ),
    (Idle.COPY_CALL, re.compile(r"^(cuda|hip|cu)Mem(cpy|set)")),
    (Idle.INPUT, re.compile(r"DataLoader|dataloader|data_loader|_next_data|\bprefetch|read_batch|load_batch")),
    (Idle.LAUNCH, re.compile(r".")),
    (Idle.FRAMEWORK, re.compile(r".")),
)


def host_causes(trace: Trace) -> Array:
    """Return which cause of waiting for the host each event is, as a place in `HOST_CAUSES`; the last is none."""
    none = len(HOST_CAUSES) - 1
    places = np.full(len(trace), none, np.int8)
    api, work = trace.of_kind(EventKind.HOST_API), trace.of_kind(EventKind.HOST_OP, EventKind.HOST_RANGE)
    frames = trace.of_kind(EventKind.HOST_FRAME)
    for place in reversed(range(len(_CAUSE_NAMES))):
        cause, pattern = _CAUSE_NAMES[place]
        if cause is Idle.FRAMEWORK:
            places[trace.of_kind(EventKind.HOST_OP)] = place
        elif cause is Idle.LAUNCH:
            places[api] = place
        else:
            where = api | work | frames if cause is Idle.INPUT else api | trace.of_kind(EventKind.HOST_OP)
            places[where & _named(trace, where, pattern)] = place
    return places


def _named(trace: Trace, where: Array, pattern: re.Pattern[str]) -> Array:
    """Return which events have a name that matches; only names that occur in `where` are looked at."""
    table = np.zeros(len(trace.texts), np.bool_)
    for index in np.unique(trace.name[where]):
        table[index] = bool(pattern.search(trace.texts[int(index)]))
    return table[trace.name] if len(trace) else np.zeros(0, np.bool_)


def _host_causes(trace: Trace, call: Array, begin: Array, stop: Array) -> dict[Idle, int]:
    """Return the time of waits for the host by what the calling thread did then."""
    none = len(HOST_CAUSES) - 1
    waits = stop > begin
    call, begin, stop = call[waits], begin[waits], stop[waits]
    if not len(call):
        return {}
    cause, total = host_causes(trace), np.zeros(none + 1, np.int64)
    busy = np.flatnonzero(cause < none)
    lanes = np.unique(np.stack([trace.process[call], trace.thread[call]]), axis=1)
    for process, thread in lanes.T:
        mine = (trace.process[call] == process) & (trace.thread[call] == thread)
        here = busy[(trace.process[busy] == process) & (trace.thread[busy] == thread)]
        total += inside(begin[mine], stop[mine], trace.start_ns[here], trace.end_ns[here], cause[here], none)
    return {HOST_CAUSES[place]: int(time) for place, time in enumerate(total) if time}
