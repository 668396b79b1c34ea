"""Random traces of device work with their calls, and the laws that the timeline of any of them obeys."""

import random
from dataclasses import replace

import numpy as np

from nearpeak.core.traces.timeline import Timeline
from nearpeak.core.traces.trace import EventKind, TraceHeader
from nearpeak.traces.reading.table_rows import EventRows
from nearpeak.traces.timeline.device_time import timelines
from nearpeak.traces.timeline.trace_columns import NO_ROW, Trace

NAMES = ("gemm", "ncclDevKernel_AllReduce", "add", "rcclGenericKernel")
Row = tuple[int, str, int, int, int, int, int | None]
"""Kind, name, start, end, device, stream, correlation."""


def drawn(draw: random.Random) -> list[Row]:
    """Return some events; times collide often, lengths may be 0, some calls are missing."""
    step, count = draw.choice((1, 10, 1_000)), draw.randrange(1, 14)
    base = draw.choice((0, 7, 1_700_000_000_000_000_000, -50_000))
    found: list[Row] = []
    for number in range(count):
        kind = draw.choice((EventKind.KERNEL, EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET))
        start = base + step * draw.randrange(30)
        own = number if draw.random() < 0.8 else None
        found.append(
            (
                kind,
                draw.choice(NAMES),
                start,
                start + step * draw.randrange(12),
                draw.randrange(2),
                draw.choice((7, 13)),
                own,
            )
        )
        if own is not None and draw.random() < 0.9:
            call = start + step * draw.randrange(-8, 3)
            found.append((EventKind.HOST_API, "cudaLaunchKernel", call, call + step * draw.randrange(6), -1, -1, own))
    return found


def trace_of(rows: list[Row]) -> Trace:
    """Return the trace of some events."""
    table = EventRows()
    for kind, name, start, end, device, stream, own in rows:
        dense = {"correlation": own} if own is not None else {}
        dense |= {"process": 1, "thread": 1} if kind == EventKind.HOST_API else {"device": device, "stream": stream}
        table.add(
            EventKind(kind),
            [name],
            np.array([start]),
            np.array([end]),
            **{key: np.array([value]) for key, value in dense.items()},
        )
    return table.trace(TraceHeader(format="drawn"))


def broken_laws(rows: list[Row], draw: random.Random) -> list[str]:
    """Return the laws that the timelines of some events break; none is what is wanted."""
    before = timelines(trace_of(rows))
    found = [law for one in before for law in _own_laws(one)]
    found += [
        f"{law} changes the timeline"
        for law, other in _same(rows, draw)
        if not _alike(before, timelines(trace_of(other)), shift=law == "shift")
    ]
    more = timelines(trace_of([*rows, (EventKind.KERNEL, "more", *_somewhere(rows, draw), 0, 7, None)]))
    old = {one.device: one.busy_ns for one in before}
    found += [f"an event lowers busy of {one.device}" for one in more if one.busy_ns < old.get(one.device, 0)]
    return found + _brute_force(rows, before)


def _own_laws(one: Timeline) -> list[str]:
    laws = {
        "busy <= span": one.busy_ns <= one.span_ns,
        "busy <= sum of lengths": one.busy_ns <= one.kernel_sum_ns + one.comm_sum_ns + one.memcpy_ns + one.memset_ns,
        "parts sum to the span": one.compute_ns
        + one.exposed_comm_ns
        + one.exposed_memcpy_ns
        + one.exposed_memset_ns
        + one.idle_ns
        == one.span_ns,
        "causes sum to idle": sum(one.idle_by_cause_ns.values()) == one.idle_ns,
        "no part is negative": min(
            one.compute_ns,
            one.exposed_comm_ns,
            one.exposed_memcpy_ns,
            one.exposed_memset_ns,
            one.idle_ns,
            *one.idle_by_cause_ns.values(),
        )
        >= 0,
        "exposed <= whole": one.exposed_comm_ns <= one.comm_ns and one.exposed_memcpy_ns <= one.memcpy_ns,
        "streams cover busy": max(one.stream_busy_ns.values()) <= one.busy_ns <= sum(one.stream_busy_ns.values()),
    }
    return [law for law, holds in laws.items() if not holds]


def _same(rows: list[Row], draw: random.Random) -> list[tuple[str, list[Row]]]:
    """Return the same work told differently."""
    shuffled = draw.sample(rows, len(rows))
    shifted = [
        (kind, name, start + 977, end + 977, device, stream, own)
        for kind, name, start, end, device, stream, own in rows
    ]
    long = [place for place, row in enumerate(rows) if row[0] != EventKind.HOST_API and row[3] - row[2] > 1]
    split = list(rows)
    if long:
        place = draw.choice(long)
        kind, name, start, end, device, stream, own = rows[place]
        middle = draw.randrange(start + 1, end)
        split[place : place + 1] = [
            (kind, name, start, middle, device, stream, own),
            (kind, name, middle, end, device, stream, own),
        ]
    return [("permutation", shuffled), ("shift", shifted), ("split", split)]


def _alike(one: tuple[Timeline, ...], two: tuple[Timeline, ...], *, shift: bool) -> bool:
    """Say whether timelines are equal in every time; counts of split events differ, and so does the median delay."""

    def plain(each: Timeline) -> Timeline:
        still = {"start_ns": 0, "end_ns": each.span_ns} if shift else {}
        return replace(
            each,
            kernel_count=0,
            comm_count=0,
            memcpy_count=0,
            memset_count=0,
            unlinked_count=0,
            queue_delay_ns=None,
            **still,
        )

    return [plain(each) for each in one] == [plain(each) for each in two]


def _somewhere(rows: list[Row], draw: random.Random) -> tuple[int, int]:
    row = draw.choice(rows)
    return row[2], row[2] + draw.randrange(20)


def _brute_force(rows: list[Row], found: tuple[Timeline, ...]) -> list[str]:
    """Return where a count of every moment, for short traces, comes to another result."""
    faults = []
    for one in found:
        work = [row for row in rows if row[0] != EventKind.HOST_API and row[4] == one.device]
        if one.span_ns > 500:
            continue
        counted = [0, 0, 0, 0, 0]
        for moment in range(one.start_ns, one.end_ns):
            ranks = [_rank(row) for row in work if row[2] <= moment < row[3]]
            counted[min(ranks, default=4)] += 1
        if counted != [one.compute_ns, one.exposed_comm_ns, one.exposed_memcpy_ns, one.exposed_memset_ns, one.idle_ns]:
            faults.append("moment by moment it is another timeline")
    return faults


def _rank(row: Row) -> int:
    if row[0] == EventKind.KERNEL:
        return int("ccl" in row[1])
    return 2 if row[0] == EventKind.MEMCPY else 3


def linked_count(trace: Trace) -> int:
    """Return how many device events have their call."""
    return int((trace.launch != NO_ROW).sum())
