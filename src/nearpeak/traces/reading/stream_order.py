"""Detection of impossible device times: overlapping work on one stream, or work before the call that launched it."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.core.traces.trace import EventKind, Loss
from nearpeak.traces.timeline.lanes import lanes_of
from nearpeak.traces.timeline.trace_columns import MISSING, NO_ROW, Trace

Array = npt.NDArray[Any]
_CLOCK_NS, _SURE_NS = 10_000, 100_000
"""How far the times of one device may be wrong; what is wrong by the second one is wrong however long events are."""
_LONG_RATIO = 10
"""Length of an event over the usual one of its stream beyond which a smaller overlap is wrong too."""
_MOST_RATIO = 0.2
"""Part of a stream's events that run beside others from which on the stream keeps no order, if they are not long."""
_APART_NS = 100_000
"""How long before its call work may start by the clocks of host and device."""
_LATE_NS = 600 * 10**9
"""How long after its call work starts at most: no queue holds work for ten minutes."""
_WAIT = re.compile(r"^(cuda|hip)DeviceSynchronize|^cuCtxSynchronize|^cudaThreadSynchronize")
EARLY = "device event that starts before the call that launched it, or ten minutes after it"
"""Kind of loss where the clocks of host and device disagree."""


def with_possible_times(trace: Trace) -> Trace:
    """Return the trace with impossible ends of device work cut off and counted, and links against time removed.

    A stream works in order: an event that ends after a later one of its stream has ended was not timed, and is cut at
    the next start of its stream. Kernels of one graph share a stream and run side by side; they are left alone. Work
    that was launched before the host waited for the whole device had ended when the wait did.
    """
    rows = trace.device_rows()
    if not len(rows):
        return trace
    return _with_later_starts(_with_waited_ends(_with_cut_ends(trace, rows), rows), rows)


def _with_cut_ends(trace: Trace, rows: Array) -> Trace:
    lanes = lanes_of(trace, rows)
    end, losses = trace.end_ns.copy(), []
    for number, key in enumerate(lanes.keys):
        members = rows[lanes.numbers == number]
        if key[1] == MISSING or len(members) < 2:
            continue
        wrong = _overrunning(trace, members)
        if not len(wrong):
            continue
        label, length = lanes.labels[number], _named(trace, int(members[wrong[0]]))
        lengths = trace.end_ns[members] - trace.start_ns[members]
        is_usual = np.median(lengths[wrong]) < _LONG_RATIO * np.median(lengths)
        if is_usual and len(wrong) > _MOST_RATIO * len(members):
            kind = f"device event that runs beside others of {label}, which keeps no order"
            losses.append(Loss(what="unknown", kind=kind, record_count=len(wrong), example=length))
            continue
        start = trace.start_ns[members]
        following = np.minimum(np.searchsorted(start, start[wrong], side="right"), len(start) - 1)
        end[members[wrong]] = np.minimum(trace.end_ns[members[wrong]], np.maximum(start[following], start[wrong]))
        kind = f"device event that runs over later ones of {label}, cut at the next start there"
        losses.append(Loss(what="repaired", kind=kind, record_count=len(wrong), example=length))
    if not losses:
        return trace
    return replace(trace, end_ns=end, header=replace(trace.header, losses=(*trace.header.losses, *losses)))


def _with_waited_ends(trace: Trace, rows: Array) -> Trace:
    """Return the trace with device work cut at the end of the first wait for the device after its launch.

    A wait is for one device and one process: where there are several, it does not tell for which.
    """
    waits = trace.named_rows(_WAIT, EventKind.HOST_API)
    linked = rows[trace.launch[rows] != NO_ROW]
    processes = np.unique(np.concatenate([trace.process[waits], trace.process[trace.launch[linked]]]))
    if not len(waits) or not len(linked) or len(processes) > 1 or len(np.unique(trace.device[rows])) > 1:
        return trace
    place = np.searchsorted(trace.start_ns[waits], trace.end_ns[trace.launch[linked]])
    waited = linked[place < len(waits)]
    ended = trace.end_ns[waits[place[place < len(waits)]]]
    wrong = (trace.end_ns[waited] > ended + _SURE_NS) & (trace.start_ns[waited] <= ended)
    if not wrong.any() or wrong.sum() > _MOST_RATIO * len(linked):  # many: the clocks of host and device differ
        return trace
    end = trace.end_ns.copy()
    end[waited[wrong]] = ended[wrong]
    kind = "device event that runs on after the host has waited for its stream and all others, cut where the wait ended"
    loss = Loss(what="repaired", kind=kind, record_count=int(wrong.sum()), example=_named(trace, int(waited[wrong][0])))
    return replace(trace, end_ns=end, header=replace(trace.header, losses=(*trace.header.losses, loss)))


def _named(trace: Trace, row: int) -> str:
    """Return the name and the stated length of an event."""
    return f"{trace.name_of(row)}, {(trace.end_ns[row] - trace.start_ns[row]) * 1e-6:,.6g} ms"


def _overrunning(trace: Trace, members: Array) -> Array:
    """Return the places of the events of a stream that end after a later one of another launch has ended."""
    end = trace.end_ns[members]
    earliest = np.minimum.accumulate(end[::-1])[::-1]
    length = end - trace.start_ns[members]
    slack = np.where(length > _LONG_RATIO * np.median(length), _CLOCK_NS, _SURE_NS)
    suspects = np.flatnonzero(end[:-1] > earliest[1:] + slack[:-1])
    if not len(suspects):
        return suspects
    in_graph = (trace.values("graph_node", members) != MISSING) | (trace.values("graph", members) != MISSING)
    launch = trace.launch[members]
    wrong = []
    for place in suspects.tolist():
        later = slice(place + 1, int(np.searchsorted(trace.start_ns[members], end[place])))
        others = (launch[later] == NO_ROW) | (launch[later] != launch[place])
        others &= ~(in_graph[later] & in_graph[place])
        if (others & (end[later] + slack[place] < end[place])).any():
            wrong.append(place)
    return np.array(wrong, np.int64)


def _with_later_starts(trace: Trace, rows: Array) -> Trace:
    """Return the trace without links to calls that began after the work or long before it; they are counted."""
    linked = rows[trace.launch[rows] != NO_ROW]
    delay = trace.start_ns[linked] - trace.start_ns[trace.launch[linked]]
    early = linked[(delay < -_APART_NS) | (delay > _LATE_NS)]
    early = early[trace.kind[trace.launch[early]] == EventKind.HOST_API]
    if not len(early):
        return trace
    launch = trace.launch.copy()
    launch[early] = NO_ROW
    loss = Loss(what="unlinked", kind=f"{EARLY}, kept", record_count=len(early), example=trace.name_of(int(early[0])))
    return replace(trace, launch=launch, header=replace(trace.header, losses=(*trace.header.losses, loss)))
