"""Timeline picture of a trace: slices per thread and stream during the first steps."""

from collections.abc import Sequence

import numpy as np

from nearpeak.core.traces.executed_run import Slice
from nearpeak.core.traces.trace import DEVICE_KINDS, EventKind, Family
from nearpeak.traces import MISSING, Trace
from nearpeak.traces.timeline.lanes import Lanes, lanes_of

MOST_SLICES = 12_000
"""Slices of a picture: what a page draws at once."""
_HOST = {EventKind.HOST_API: "call", EventKind.HOST_OP: "operator", EventKind.HOST_RANGE: "range"}


def picture_of(
    trace: Trace, device: int, windows: Sequence[tuple[int, int]]
) -> tuple[tuple[str, ...], tuple[Slice, ...]]:
    """Return the lanes, host before device, and their slices; of operators only the outermost are drawn.

    Args:
        windows: begin and end of what is drawn, ascending; they are laid end to end.
    """
    host = trace.rows(*_HOST)
    outer = (trace.kind[host] != EventKind.HOST_OP) | trace.outermost(host)
    work = trace.device_rows()
    every = np.sort(np.concatenate([host[outer], work[trace.device[work] == device]]))
    parts, shifts, before_ns = [], [], 0
    for start_ns, end_ns in windows:
        inside = every[(trace.end_ns[every] > start_ns) & (trace.start_ns[every] < end_ns)]
        parts.append(inside)
        shifts.append(np.full(len(inside), start_ns - before_ns))
        before_ns += end_ns - start_ns
    rows, shift = np.concatenate(parts)[:MOST_SLICES], np.concatenate(shifts)[:MOST_SLICES]
    streams = lanes_of(trace, np.unique(rows[np.isin(trace.kind[rows], np.array(DEVICE_KINDS))]))
    keys = [_lane(trace, streams, row) for row in map(int, rows)]
    lanes = {key: place for place, key in enumerate(sorted(set(keys)))}
    slices = tuple(
        Slice(lanes[key], int(trace.start_ns[row]) - begin, int(trace.end_ns[row]) - begin,
              trace.name_of(row), _kind(trace, row), row)
        for key, row, begin in zip(keys, map(int, rows), shift.tolist(), strict=True)
    )  # fmt: skip
    return tuple(key[-1] for key in lanes), slices


def _lane(trace: Trace, streams: Lanes, row: int) -> tuple[int, int, str]:
    """Return the group, the place in it, and the label of the lane of an event."""
    kind = EventKind(trace.kind[row])
    if kind in DEVICE_KINDS:
        lane = streams.of(row)
        return 3, lane, streams.labels[lane]
    thread = int(trace.thread[row])
    name = {EventKind.HOST_RANGE: "ranges", EventKind.HOST_OP: "operators", EventKind.HOST_API: "calls"}[kind]
    group = {"ranges": 0, "operators": 1, "calls": 2}[name]
    return group, 0, f"{name}, thread {'?' if thread == MISSING else thread}"


def _kind(trace: Trace, row: int) -> str:
    kind = EventKind(trace.kind[row])
    if kind in _HOST:
        return _HOST[kind]
    if kind == EventKind.KERNEL:
        return Family(int(trace.family[row])).name.lower()
    return "copy" if kind == EventKind.MEMCPY else "set"
