"""Critical path of a trace: from the end of the last work back through streams, calls and waits, without gaps."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.core.traces.timeline import CriticalPath, PathPart
from nearpeak.core.traces.trace import DEVICE_KINDS, EventKind, SyncKind
from nearpeak.traces.timeline.device_time import Communication, class_of
from nearpeak.traces.timeline.lanes import Lanes, lanes_of
from nearpeak.traces.timeline.trace_columns import MISSING, NO_ROW, Trace

Array = npt.NDArray[Any]
_WORDS = ("kernel", "communication", "copy", "fill")
_UNKNOWN = "not recorded"
"""What stands before work of which neither a call, nor work before it on its stream was recorded."""
MOST_PARTS = 1_000_000
_WAITS = ("Synchronize",)


def critical_path(
    trace: Trace, communication: Communication = Communication.ANY, window_ns: tuple[int, int] | None = None
) -> CriticalPath:
    """Return the chain of dependencies that determined the end of the last device work.

    Work starts when the last of these has happened: the work before it on its stream has ended, its call has returned,
    what its stream waits for has ended. The host goes on after a wait when the work that it waited for has ended. Time
    between a cause and its effect is `queue`; all parts together reach from the first start to the last end.

    Args:
        window_ns: begin and end between which work must lie whole; the whole trace unless given.
    """
    rows = trace.device_rows()
    if window_ns is not None:
        rows = rows[(trace.start_ns[rows] >= window_ns[0]) & (trace.end_ns[rows] <= window_ns[1])]
    if not len(rows):
        return CriticalPath(parts=(), time_by_what_ns={})
    parts = tuple(reversed(list(_back(trace, rows, communication))))
    times: dict[str, int] = {}
    for part in parts:
        times[part.what] = times.get(part.what, 0) + part.end_ns - part.start_ns
    return CriticalPath(parts=parts, time_by_what_ns=times)


class _Causes:
    """Possible causes of each event: earlier work, waits of its stream, waits of its thread."""

    def __init__(self, trace: Trace, rows: Array, communication: Communication) -> None:
        self.trace = trace
        waits = trace.sparse["sync"].rows if trace.has("sync") else rows[:0]
        self.lanes = lanes_of(trace, np.union1d(rows, waits))
        lane = self.lanes.numbers[np.searchsorted(self.lanes.rows, rows)]
        order = np.argsort(lane, kind="stable")
        sorted_rows, lane = rows[order], lane[order]
        same = lane[1:] == lane[:-1]
        self.before = dict(zip(sorted_rows[1:][same].tolist(), sorted_rows[:-1][same].tolist(), strict=True))
        self.what = {
            int(row): _WORDS[code] for row, code in zip(rows, class_of(trace, rows, communication), strict=True)
        }
        self.by_end = rows[np.argsort(trace.end_ns[rows], kind="stable")]
        self.ends = trace.end_ns[self.by_end]
        self.waits = _thread_waits(trace)
        self.gates = _gates(trace, self.by_end, self.ends, self.lanes)

    def last_work(self, end: int, start: int) -> int | None:
        """Return the work that ended last, at `end` at the latest and after `start`."""
        place = int(np.searchsorted(self.ends, end, side="right")) - 1
        return int(self.by_end[place]) if place >= 0 and self.ends[place] > start else None

    def wait_before(self, call: int) -> int | None:
        """Return the last wait of the thread of a call that ended before the call did."""
        lane = (int(self.trace.process[call]), int(self.trace.thread[call]))
        rows, ends = self.waits.get(lane, (np.zeros(0, np.int64), np.zeros(0, np.int64)))
        place = int(np.searchsorted(ends, self.trace.start_ns[call], side="right")) - 1
        return int(rows[place]) if place >= 0 else None


def _thread_waits(trace: Trace) -> dict[tuple[int, int], tuple[Array, Array]]:
    """Return waits for the device by thread, in order of their ends."""
    calls = trace.of_kind(EventKind.HOST_API)
    copies = trace.rows(EventKind.MEMCPY)
    copies = copies[trace.launch[copies] != NO_ROW]
    blocking = copies[trace.end_ns[copies] <= trace.end_ns[trace.launch[copies]]]  # the call returned after its copy
    named = calls & trace.where(lambda name: any(word in name for word in _WAITS))
    named[trace.launch[blocking]] = True
    rows = np.flatnonzero(named)
    waits: dict[tuple[int, int], list[int]] = {}
    for row in rows[np.argsort(trace.end_ns[rows], kind="stable")].tolist():
        waits.setdefault((int(trace.process[row]), int(trace.thread[row])), []).append(row)
    return {lane: (np.array(mine), trace.end_ns[np.array(mine)]) for lane, mine in waits.items()}


def _gates(trace: Trace, by_end: Array, ends: Array, lanes: Lanes) -> dict[int, tuple[Array, Array]]:
    """Return by lane when a stream that waited for an event could go on, and after which work."""
    gates: dict[int, list[tuple[int, int]]] = {}
    if not trace.has("sync"):
        return {}
    column, lane_of = trace.sparse["sync"], lanes.numbers[np.searchsorted(lanes.rows, by_end)]
    for row in column.rows[column.values == SyncKind.STREAM_WAIT].tolist():
        stream = trace.at("wait_stream", row)
        awaited = None if stream is None else lanes.beside(row, int(stream))
        stop = int(trace.end_ns[row])
        place = int(np.searchsorted(ends, stop, side="right")) - 1
        while place >= 0 and awaited is not None and int(lane_of[place]) != awaited:
            place -= 1
        if place >= 0 and trace.stream[row] != MISSING:
            gates.setdefault(lanes.of(row), []).append((stop, int(by_end[place])))
    return {
        key: (np.array([stop_ns for stop_ns, _ in sorted(pairs)]), np.array([work for _, work in sorted(pairs)]))
        for key, pairs in gates.items()
    }


def _back(trace: Trace, rows: Array, communication: Communication) -> Iterator[PathPart]:
    """Yield the parts of the path from its end to its start; each begins where the next one ends."""
    causes = _Causes(trace, rows, communication)
    begin = int(trace.start_ns[rows].min())
    row = int(rows[np.argmax(trace.end_ns[rows])])
    cursor = int(trace.end_ns[row])
    for _ in range(MOST_PARTS):
        start = min(int(trace.start_ns[row]), cursor)
        yield PathPart(row=row, what=causes.what[row], start_ns=start, end_ns=cursor)
        cursor = start
        if cursor <= begin:
            return
        cause, moment = _cause(causes, row, cursor)
        if cause is None:
            yield PathPart(row=None, what=_UNKNOWN, start_ns=begin, end_ns=cursor)
            return
        if moment < cursor:
            what = "queue" if trace.launch[row] != NO_ROW else _UNKNOWN
            yield PathPart(row=None, what=what, start_ns=max(moment, begin), end_ns=cursor)
            cursor = max(moment, begin)
        if trace.kind[cause] in DEVICE_KINDS:
            row = cause
            continue
        host = _host(causes, cause, cursor, begin)
        yield from host[0]
        cursor = host[1]
        if host[2] is None or cursor <= begin:
            return
        row = host[2]


def _cause(causes: _Causes, row: int, cursor: int) -> tuple[int | None, int]:
    """Return the last dependency of a piece of work to complete, and its end."""
    trace = causes.trace
    candidates: list[tuple[int, int]] = []
    if (before := causes.before.get(row)) is not None and trace.end_ns[before] <= cursor:
        candidates.append((int(trace.end_ns[before]), before))
    if (call := int(trace.launch[row])) != NO_ROW:
        candidates.append((min(int(trace.end_ns[call]), cursor), call))
    gates, works = causes.gates.get(causes.lanes.of(row), (np.zeros(0), np.zeros(0)))
    place = int(np.searchsorted(gates, cursor, side="right")) - 1
    if place >= 0 and int(works[place]) != row:
        candidates.append((min(int(trace.end_ns[int(works[place])]), cursor), int(works[place])))
    if not candidates:
        return None, cursor
    moment, cause = max(candidates)
    return cause, moment


def _host(causes: _Causes, call: int, cursor: int, begin: int) -> tuple[list[PathPart], int, int | None]:
    """Return the parts on the host before a call returned, where they begin, and the work that the host waited for."""
    trace = causes.trace
    wait, work = _wait_for_work(causes, call)
    floor = begin if wait is None else max(begin, int(trace.end_ns[wait]))
    parts = [PathPart(row=call, what="host", start_ns=min(floor, cursor), end_ns=cursor)] if floor < cursor else []
    cursor = min(floor, cursor)
    if wait is None or work is None or cursor <= begin:
        return parts, cursor, None
    end = max(int(trace.end_ns[work]), begin)
    if end < cursor:
        parts.append(PathPart(row=wait, what="sync", start_ns=end, end_ns=cursor))
    return parts, end, work


def _wait_for_work(causes: _Causes, call: int) -> tuple[int | None, int | None]:
    """Return the last wait before a call at which the host waited for work, and that work."""
    wait = causes.wait_before(call)
    while wait is not None:
        if (work := causes.last_work(int(causes.trace.end_ns[wait]), int(causes.trace.start_ns[wait]))) is not None:
            return wait, work
        earlier = causes.wait_before(wait)
        wait = earlier if earlier != wait else None
    return None, None
