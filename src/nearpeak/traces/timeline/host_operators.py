"""CPU operators as device work, for traces in which the CPU is the only device."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.core.traces.trace import EventKind, Family, TraceDevice
from nearpeak.traces.timeline.kernel_names import is_bookkeeping
from nearpeak.traces.timeline.trace_columns import MISSING, NO_ROW, Trace

Array = npt.NDArray[Any]
HOST_DEVICE = 0
"""Number of the CPU among the devices of a trace that has no other."""


def with_host_work(trace: Trace, joinable: Callable[[str], bool]) -> Trace:
    """Return the trace with a kernel added for each operator that computes, on device 0, one stream per thread.

    An operator that `joinable` accepts is one piece of work with all that it calls; of everything else the innermost
    operators are work. Views, allocations and the steps of autograd compute nothing: their time, and what operators
    spend before and after those that they call, stays time of the host. A kernel is named by the operator within that
    took longest, and is launched by the operator that it stands for.

    Args:
        joinable: says of the name of an operator whether the catalogue knows it.
    """
    rows = _units(trace, joinable)
    if not len(rows):
        return trace
    names = _names(trace, rows)
    lanes = np.stack([trace.process[rows], trace.thread[rows]])
    lane_numbers: Array = np.unique(lanes, axis=1, return_inverse=True)[1].reshape(-1)
    streams = lane_numbers.astype(np.int64)
    table = np.zeros(len(trace.texts), np.int8)
    table[trace.name] = trace.family
    own_families = trace.family[rows]
    families = np.where(own_families != Family.UNKNOWN, own_families, table[names]).astype(np.int8)
    more = Trace(
        header=trace.header, texts=trace.texts, kind=np.full(len(rows), EventKind.KERNEL, np.int8), name=names,
        family=families, start_ns=trace.start_ns[rows], end_ns=trace.end_ns[rows],
        process=trace.process[rows], thread=np.full(len(rows), MISSING, np.int64),
        device=np.full(len(rows), HOST_DEVICE, np.int64), stream=streams,
        correlation=np.full(len(rows), MISSING, np.int64), launch=rows.astype(np.int32),
        parent=np.full(len(rows), NO_ROW, np.int32),
    )  # fmt: skip
    devices = (TraceDevice(index=HOST_DEVICE, name="CPU"),)
    return replace(_joined(trace, more), header=replace(trace.header, devices=devices))


def enclosing(trace: Trace) -> Array:
    """Return for each event the row of the innermost operator that it lies in; NO_ROW where there is none."""
    operator = trace.of_kind(EventKind.HOST_OP)
    operators = trace.parent.copy()
    while True:
        other = (operators != NO_ROW) & ~operator[operators]
        if not other.any():
            return operators
        operators[other] = trace.parent[operators[other]]


def _units(trace: Trace, joinable: Callable[[str], bool]) -> Array:
    """Return the operators that are work."""
    rows, outer = trace.rows(EventKind.HOST_OP), enclosing(trace)
    known = trace.name_table(joinable)[trace.name]
    solid = known | ~trace.name_table(is_bookkeeping)[trace.name]
    covered = np.zeros(len(trace), np.bool_)
    above = outer[rows]
    while (inside := above != NO_ROW).any():
        covered[rows[inside]] |= known[above[inside]]
        above = np.where(inside, outer[above], NO_ROW)
    holds = np.zeros(len(trace), np.bool_)
    above = np.unique(outer[rows[solid[rows]]])
    while len(above := above[above != NO_ROW]):
        holds[above] = True
        above = np.unique(outer[above])
    units: Array = rows[~covered[rows] & (known[rows] | (solid[rows] & ~holds[rows]))]
    return units[trace.end_ns[units] > trace.start_ns[units]]


def _names(trace: Trace, units: Array) -> Array:
    """Return the name of each kernel, by number: the operator that a node states, else the longest within."""
    longest: Array = trace.name[_longest(trace, units)]
    if (column := trace.sparse.get("op_name")) is None or not column.text:
        return longest
    stated = trace.values("op_name", units)
    return np.where(stated >= 0, stated, longest).astype(np.int32)


def _longest(trace: Trace, units: Array) -> Array:
    """Return for each unit the operator within, or itself, that took longest by itself."""
    rows, outer = trace.rows(EventKind.HOST_OP), enclosing(trace)
    exclusive_ns = trace.duration_ns.copy()
    inner = rows[outer[rows] != NO_ROW]
    np.subtract.at(exclusive_ns, outer[inner], trace.duration_ns[inner])
    unit = np.full(len(trace), NO_ROW, np.int64)
    unit[units] = units
    place = rows.copy()
    while (lost := (unit[place] == NO_ROW) & (outer[place] != NO_ROW)).any():
        place = np.where(lost, outer[place], place)
    rows, place = rows[unit[place] != NO_ROW], place[unit[place] != NO_ROW]
    order = np.lexsort((rows, -exclusive_ns[rows], place))
    first = np.unique(place[order], return_index=True)[1]
    longest: Array = rows[order][first]
    return longest


def _joined(trace: Trace, more: Trace) -> Trace:
    """Return a trace with more events, in the order that traces have, references to rows mended."""
    dense: dict[str, Any] = {
        name: np.concatenate([getattr(trace, name), getattr(more, name)])
        for name in ("kind", "name", "family", "start_ns", "end_ns", "process", "thread", "device", "stream",
                     "correlation", "launch", "parent")
    }  # fmt: skip
    order = np.lexsort((np.arange(len(dense["kind"])), -dense["end_ns"], dense["start_ns"]))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    dense = {name: values[order] for name, values in dense.items()}
    for name in ("launch", "parent"):
        known = dense[name] != NO_ROW
        dense[name] = np.where(known, place[dense[name]], NO_ROW).astype(np.int32)
    sparse = {name: replace(column, rows=place[column.rows].astype(np.int32)) for name, column in trace.sparse.items()}
    if "forward" in sparse:  # its values are rows too
        sparse["forward"] = replace(sparse["forward"], values=place[trace.sparse["forward"].values])
    return replace(trace, **dense, sparse=sparse)
