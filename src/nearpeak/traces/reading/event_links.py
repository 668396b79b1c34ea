"""Links between events: the call that enqueued device work, and the host event that encloses another."""

from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.base.compilation import compiled_exactly
from nearpeak.core.traces.trace import DEVICE_KINDS, HOST_KINDS, EventKind, Loss
from nearpeak.traces.timeline.trace_columns import MISSING, NO_ROW

Array = npt.NDArray[Any]


def launches(kind: Array, process: Array, correlation: Array) -> tuple[Array, list[Loss]]:
    """Return the row of the call that enqueued each device event, and how many have none.

    A call and its work share process and correlation; of several calls of one correlation the first counts. Where a
    file names no process of device events, the correlation decides, unless calls of several processes have it: whose
    work it is cannot be told then, and it stays without a call.
    """
    call_rows = np.full(len(kind), NO_ROW, np.int32)
    on_device = np.flatnonzero(np.isin(kind, np.array([*DEVICE_KINDS, EventKind.SYNC], np.int8)))
    calls = np.flatnonzero((kind == EventKind.HOST_API) & (correlation != MISSING))
    correlated = on_device[correlation[on_device] != MISSING]
    if len(calls) and len(correlated):
        theirs, ours = process[correlated], process[calls]
        if (theirs == MISSING).all():
            calls = calls[~in_several_processes(ours, correlation[calls])]
            ours = np.full(len(calls), MISSING, np.int64)
        call_rows[correlated] = _first_call(calls, ours, correlation[calls], theirs, correlation[correlated])
    work = np.isin(kind, np.array(DEVICE_KINDS, np.int8))
    lone = int((call_rows[work] == NO_ROW).sum())
    losses = [Loss(what="unlinked", kind="device event without a recorded call, kept", record_count=lone)]
    return call_rows, losses if lone else []


def in_several_processes(process: Array, correlation: Array) -> Array:
    """Return which of some entries have a number that entries of another process have too."""
    if not len(process) or (process == process[0]).all():
        return np.zeros(len(process), np.bool_)
    pairs = np.unique(np.stack([process, correlation]), axis=1)
    distinct, count = np.unique(pairs[1], return_counts=True)
    is_shared: Array = np.isin(correlation, distinct[count > 1])
    return is_shared


def _first_call(calls: Array, ours: Array, correlations: Array, theirs: Array, wanted: Array) -> Array:
    """Return for each wanted (process, correlation) the first call that has it; rows are in order of start."""
    order = np.lexsort((calls, correlations, ours))
    pairs = np.stack([ours[order], correlations[order]])
    fresh = np.concatenate([[True], (np.diff(pairs) != 0).any(0)])
    pairs, rows = pairs[:, fresh], calls[order][fresh]
    keys = np.concatenate([pairs, np.stack([theirs, wanted])], axis=1)
    _, code = np.unique(keys[0], return_inverse=True)
    rank = np.lexsort((keys[1], code))
    same = np.concatenate([[0], np.cumsum((np.diff(code[rank]) != 0) | (np.diff(keys[1][rank]) != 0))])
    number = np.empty(len(rank), np.int64)
    number[rank] = same
    table = np.full(int(same[-1]) + 1, NO_ROW, np.int32)
    table[number[: len(rows)]] = rows
    first_calls: Array = table[number[len(rows) :]]
    return first_calls


def enclosing(kind: Array, process: Array, thread: Array, start: Array, end: Array) -> Array:
    """Return for each host event the row of the innermost one of its thread that encloses it."""
    parents = np.full(len(kind), NO_ROW, np.int32)
    rows = np.flatnonzero(np.isin(kind, np.array(HOST_KINDS, np.int8)))
    if not len(rows):
        return parents
    lane = _lanes(process[rows], thread[rows])
    order = np.argsort(lane, kind="stable")
    _nest(rows[order], lane[order], start, end, parents)
    return parents


def _lanes(process: Array, thread: Array) -> Array:
    """Return a small number for each (process, thread)."""
    _, first = np.unique(process, return_inverse=True)
    second_values, second = np.unique(thread, return_inverse=True)
    _, lane = np.unique(first * len(second_values) + second, return_inverse=True)
    numbers: Array = lane.astype(np.int32)
    return numbers


@compiled_exactly()
def _nest(rows: Any, lane: Any, start: Any, end: Any, parents: Any) -> Any:
    """Fill `parents` with a stack of open events per lane; rows of one lane follow each other in order of start."""
    stack = np.empty(len(rows), np.int64)
    depth = 0
    for i in range(len(rows)):
        row = rows[i]
        if i and lane[i] != lane[i - 1]:
            depth = 0
        while depth and end[stack[depth - 1]] <= start[row]:
            depth -= 1
        at = depth - 1
        while at >= 0 and end[stack[at]] < end[row] and depth - at < 64:
            at -= 1
        if at >= 0 and end[stack[at]] >= end[row]:
            parents[row] = stack[at]
        stack[depth] = row
        depth += 1
