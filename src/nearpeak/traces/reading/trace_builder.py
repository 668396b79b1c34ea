"""Construction of a trace from file-order columns: unusable events dropped, events sorted and linked."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.core.traces.trace import DEVICE_KINDS, END, EventKind, Loss, TraceHeader
from nearpeak.traces.reading.event_links import enclosing, launches
from nearpeak.traces.reading.stream_order import with_possible_times
from nearpeak.traces.timeline.kernel_names import family_of
from nearpeak.traces.timeline.trace_columns import MISSING, NO_ROW, Column, Texts, Trace

Array = npt.NDArray[Any]
FARTHEST_NS = 30 * 86_400 * 10**9
"""Events that lie farther than 30 days from the others were never timed; nor were such that long."""
_APART_NS, _APART_RATIO, _APART_SHARE = 600 * 10**9, 100, 0.25
"""A few calls and device events at this distance from all others, and at so many times their span, were not timed.

A window of its own holds the calls of most of its work; events that lost their times do not lie beside theirs.
"""
_LATE_NS = 10**9
"""Within this time of 0, or of their own span, events begin whose clock was set to 0 for them."""
_MOMENTS = np.array([EventKind.INSTANT, EventKind.COUNTER], np.int8)
"""Kinds that have no length."""
_NAMED = np.array([*DEVICE_KINDS, EventKind.HOST_OP, EventKind.HOST_API], np.int8)


@dataclass(kw_only=True)
class _Raw:
    """Events in the order of the file, a column each; columns that a format has not stay empty."""

    kind: Array
    """Kinds."""
    name: Array
    """Numbers of the names."""
    start_ns: Array
    """Starts, `MISSING` where the file has no readable one."""
    end_ns: Array
    """Ends."""
    process: Array | None = None
    """Processes."""
    thread: Array | None = None
    """Threads."""
    device: Array | None = None
    """Devices."""
    stream: Array | None = None
    """Streams."""
    correlation: Array | None = None
    """Correlations."""
    sparse: dict[str, Column] = field(default_factory=dict)
    """Rare fields."""


def trace_of(raw: _Raw, texts: Texts, header: TraceHeader) -> Trace:
    """Return the trace of the events of a file."""
    keep, losses = _usable(raw)
    order = _order(raw, np.flatnonzero(keep))
    count = len(order)

    def column(values: Array | None) -> Array:
        return np.full(count, MISSING, np.int64) if values is None else values[order]

    kind, name = raw.kind[order].astype(np.int8), raw.name[order].astype(np.int32)
    start, end = raw.start_ns[order], raw.end_ns[order]
    process, thread, device = column(raw.process), column(raw.thread), column(raw.device)
    stream, correlation = column(raw.stream), column(raw.correlation)
    sparse = _moved(raw.sparse, order, len(keep))
    launch, unlinked = launches(kind, process, correlation)
    all_losses = (*header.losses, *losses, *unlinked)
    table = np.zeros(max(len(texts), 1), np.int8)
    named = np.isin(kind, _NAMED)
    for index in np.flatnonzero(np.bincount(name[named], minlength=1)):
        table[index] = family_of(texts[int(index)])
    families = np.where(named, table[name], 0).astype(np.int8) if len(name) else np.zeros(0, np.int8)
    trace = Trace(
        header=replace(header, losses=all_losses, trimmed=any(loss.kind.startswith(END) for loss in all_losses)),
        texts=texts,
        kind=kind,
        name=name,
        family=families,
        start_ns=start,
        end_ns=end,
        process=process,
        thread=thread,
        device=device,
        stream=stream,
        correlation=correlation,
        launch=launch,
        parent=enclosing(kind, process, thread, start, end),
        sparse=sparse,
    )
    return with_possible_times(trace)


def _usable(raw: _Raw) -> tuple[Array, list[Loss]]:
    """Return which events have times that can be, and what is wrong with the others."""
    known = (raw.start_ns != MISSING) & (raw.end_ns != MISSING)
    ordered = raw.end_ns >= raw.start_ns
    likely = known & ordered
    unset = likely & (raw.start_ns == 0) & (raw.end_ns == 0) & ~np.isin(raw.kind, _MOMENTS)
    unset &= not _begins_at_zero(raw.start_ns[likely & ~unset])
    likely &= ~unset
    near = likely & (raw.end_ns // 2 - raw.start_ns // 2 < FARTHEST_NS // 2)
    first, last = _range(raw.start_ns[near], raw.end_ns[near])
    near &= (raw.start_ns >= first) & (raw.start_ns <= last)
    rows = np.flatnonzero(near & np.isin(raw.kind, _NAMED))
    apart = np.zeros_like(near)
    apart[_apart(raw, rows)] = True
    twice = np.zeros_like(near)
    twice[_repeated(raw, np.flatnonzero(near & np.isin(raw.kind, np.array(DEVICE_KINDS, np.int8))))] = True
    faults = (
        ("event without a readable time", ~known),
        ("event whose end is before its start", known & ~ordered),
        ("event whose start and length are 0, as the profiler writes where it has no time", unset),
        ("event whose time is out of range", likely & ~near),
        ("event of a call or device that lies ten minutes or more from all others", apart),
        ("event of a device that stands in the file twice", twice & ~apart),
    )
    losses = [
        Loss(what="dropped", kind=kind, record_count=int(bad.sum()), example=f"event {int(bad.argmax())}")
        for kind, bad in faults
        if bad.any()
    ]
    return near & ~apart & ~twice, losses


def _apart(raw: _Raw, rows: Array) -> Array:
    """Return the few of these rows that lie far from all others, whose span is short, and are no window alone."""
    start = raw.start_ns[rows]
    order = np.argsort(start, kind="stable")
    group = np.concatenate([[0], np.cumsum(np.diff(start[order]) >= _APART_NS)])[: len(order)]
    if not len(order) or not group[-1]:
        return rows[:0]
    main = start[order[group == np.bincount(group).argmax()]]
    first, last = int(main.min()), int(main.max())
    least = max(_APART_NS, _APART_RATIO * (last - first))
    far = np.flatnonzero((start <= first - least) | (start >= last + least))
    if len(far) > _APART_SHARE * len(start):
        return rows[:0]
    window = group[np.argsort(order)][far]
    far = rows[far]
    process, correlation = (
        np.full(len(far), MISSING, np.int64) if values is None else values[far]
        for values in (raw.process, raw.correlation)
    )
    call, _ = launches(raw.kind[far], process, correlation)
    work = np.isin(raw.kind[far], np.array(DEVICE_KINDS, np.int8))
    beside = work & (call != NO_ROW) & (window[call] == window)
    work_count, beside_count = (np.bincount(window[some], minlength=group[-1] + 1) for some in (work, beside))
    lone: Array = 2 * beside_count[window] <= work_count[window]
    return far[np.flatnonzero(lone)]


def _repeated(raw: _Raw, rows: Array) -> Array:
    """Return the device events that an earlier one equals: name, times, device, stream and correlation."""
    rows = rows[raw.end_ns[rows] > raw.start_ns[rows]]
    rows = rows if raw.stream is None else rows[raw.stream[rows] != MISSING]
    keys = [raw.start_ns, raw.end_ns, raw.name, raw.device, raw.stream, raw.correlation]
    order = rows[np.lexsort([key[rows] for key in keys[::-1] if key is not None])]
    same = np.ones(max(len(order) - 1, 0), bool)
    for key in keys:
        same &= True if key is None else key[order[1:]] == key[order[:-1]]
    return order[1:][same]


def _begins_at_zero(start: Array) -> bool:
    """Say whether a clock that shows these times was set to 0 where they begin."""
    return not len(start) or int(start.min()) <= max(_LATE_NS, int(start.max()) - int(start.min()))


def _range(start: Array, end: Array) -> tuple[int, int]:
    """Return the first and the last start of the events that belong together: those at the most distinct times.

    Groups of events are 30 days or more apart: events whose clock was never read share one time, often 0.
    """
    if not len(start):
        return 0, 0
    first, last = int(start.min()), int(start.max())
    if last - first < FARTHEST_NS:
        return first, last
    order = np.argsort(start, kind="stable")
    steps = np.diff(start[order] // 2)
    group = np.concatenate([[0], np.cumsum(steps >= FARTHEST_NS // 2)])
    length = np.bincount(group, weights=(end - start)[order].astype(float))
    distinct = np.bincount(group[1:], weights=(steps > 0) & (np.diff(group) == 0), minlength=len(length))
    members = order[group == max(range(len(length)), key=lambda place: (distinct[place], length[place]))]
    return int(start[members].min()), int(start[members].max())


def _order(raw: _Raw, rows: Array) -> Array:
    """Return the rows in order of (start, longer first, place in the file)."""
    start = raw.start_ns[rows]
    if not len(rows) or (start[1:] > start[:-1]).all():
        return rows
    first = np.argsort(start, kind="stable")
    same = np.concatenate([[0], np.cumsum(np.diff(start[first]) > 0)])
    if same[-1] == len(rows) - 1:
        return rows[first]
    return rows[first[np.lexsort((-raw.end_ns[rows][first], same))]]


def _moved(sparse: Mapping[str, Column], order: Array, count: int) -> dict[str, Column]:
    """Return rare fields with the rows that their events have now."""
    place = np.full(count, -1, np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    columns = {}
    for name in list(sparse):
        column = sparse.pop(name) if isinstance(sparse, dict) else sparse[name]
        rows = place[column.rows]
        sort = np.argsort(rows, kind="stable")
        sort = sort[rows[sort] >= 0]
        if len(sort):
            columns[name] = Column(rows=rows[sort], values=column.values[sort], text=column.text)
    return columns
