"""Kineto's flow events: links from forward to backward operators and from calls to device work."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.core.traces.trace import DEVICE_KINDS, EventKind, Loss
from nearpeak.traces.reading.event_links import in_several_processes
from nearpeak.traces.timeline.trace_columns import MISSING, NO_ROW, Column, Trace

Array = npt.NDArray[Any]


class FlowKind(IntEnum):
    """Kind of link that a flow event draws."""

    BACKWARD = 0
    """From a forward operator to its backward one."""
    LAUNCH = 1
    """From a call to its work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flows:
    """Ends of the flow events of one batch."""

    what: Array
    """A `FlowKind`."""
    begins: Array
    """Whether an arrow begins here; else it ends."""
    number: Array
    """Number that both ends share."""
    process: Array
    """Process, or the device of device work."""
    thread: Array
    """Thread, or the stream of device work."""
    time_ns: Array
    """When."""


def with_flows(trace: Trace, parts: Sequence[Flows]) -> Trace:
    """Return the trace with what only arrows tell: calls of work without a correlation, and the column `forward`."""
    if not parts:
        return trace
    whole = {name: np.concatenate([getattr(column, name) for column in parts]) for name in Flows.__slots__}
    usable = (whole["number"] != MISSING) & (whole["time_ns"] != MISSING)
    linked = _linked(
        trace, {name: column[usable & (whole["what"] == FlowKind.LAUNCH)] for name, column in whole.items()}
    )
    return _turned(
        linked, {name: column[usable & (whole["what"] == FlowKind.BACKWARD)] for name, column in whole.items()}
    )


def _linked(trace: Trace, flows: dict[str, Array]) -> Trace:
    work = trace.rows(*DEVICE_KINDS)
    work = work[trace.launch[work] == NO_ROW]
    if not len(work) or not len(flows["what"]):
        return trace
    every = np.arange(len(flows["what"]))
    calls = _around(trace, flows, every, trace.rows(EventKind.HOST_API))
    targets = _starting(trace, flows, every, work)
    # The end at a call is not always marked as the begin: launches of graphs have ends only.
    begins, ends = _pairs({**flows, "begins": (targets == NO_ROW) & (calls != NO_ROW)})
    good = targets[ends] != NO_ROW
    launch = trace.launch.copy()
    launch[targets[ends[good]]] = calls[begins[good]]
    linked_count = int((launch != trace.launch).sum())
    if not linked_count:
        return trace
    losses = [loss for loss in trace.header.losses if loss.what != "unlinked"]
    device = trace.rows(*DEVICE_KINDS)
    if lone := int((launch[device] == NO_ROW).sum()):
        losses.append(Loss(what="unlinked", kind="device event without a recorded call, kept", record_count=lone))
    losses.append(Loss(what="repaired", kind="call of device work known from a flow alone", record_count=linked_count))
    return replace(trace, launch=launch, header=replace(trace.header, losses=tuple(losses)))


def _turned(trace: Trace, flows: dict[str, Array]) -> Trace:
    begins, ends = _pairs(flows)
    if not len(begins):
        return trace
    operators = trace.rows(EventKind.HOST_OP)
    ahead, back = (_around(trace, flows, places, operators) for places in (begins, ends))
    good = (ahead != NO_ROW) & (back != NO_ROW) & (ahead < back)
    rows, first = np.unique(back[good], return_index=True)
    if not len(rows):
        return trace
    column = Column(rows=rows.astype(np.int32), values=ahead[good][first].astype(np.int64))
    return replace(trace, sparse={**trace.sparse, "forward": column})


def _pairs(flows: dict[str, Array]) -> tuple[Array, Array]:
    """Return the places of begins and ends that share a number; one begin may have several ends.

    Where several processes begin an arrow of one number, none of them is told.
    """
    begins, ends = np.flatnonzero(flows["begins"]), np.flatnonzero(~flows["begins"])
    begins = begins[~in_several_processes(flows["process"][begins], flows["number"][begins])]
    if not len(begins) or not len(ends):
        return begins[:0], ends[:0]
    numbers, first = np.unique(flows["number"][begins], return_index=True)
    wanted = flows["number"][ends]
    place = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
    same = numbers[place] == wanted
    return begins[first][place[same]], ends[same]


def _around(trace: Trace, flows: dict[str, Array], places: Array, rows: Array) -> Array:
    """Return the innermost of `rows` around each end of an arrow on its thread."""
    innermost = np.full(len(places), NO_ROW, np.int64)
    process, thread, time = (flows[name][places] for name in ("process", "thread", "time_ns"))
    for lane in np.unique(np.stack([process, thread]), axis=1).T if len(places) else ():
        mine = rows[(trace.process[rows] == lane[0]) & (trace.thread[rows] == lane[1])]
        entries = np.flatnonzero((process == lane[0]) & (thread == lane[1]))
        at = np.searchsorted(trace.start_ns[mine], time[entries], side="right") - 1
        some = at >= 0
        innermost[entries[some]] = mine[at[some]]
    is_row = np.zeros(len(trace) + 1, np.bool_)
    is_row[rows] = True
    while len(late := np.flatnonzero((innermost != NO_ROW) & ((trace.end_ns[innermost] < time) | ~is_row[innermost]))):
        innermost[late] = trace.parent[innermost[late]]
    return innermost


def _starting(trace: Trace, flows: dict[str, Array], places: Array, work: Array) -> Array:
    """Return the device work that begins where an arrow ends, on its device and stream."""
    keys = np.stack([trace.device[work], trace.stream[work], trace.start_ns[work]])
    wanted = np.stack([flows[name][places] for name in ("process", "thread", "time_ns")])
    both, code = np.unique(np.concatenate([keys, wanted], axis=1), axis=1, return_inverse=True)
    table = np.full(both.shape[1], NO_ROW, np.int64)
    code = code.reshape(-1)
    table[code[: len(work)]] = work
    rows: Array = table[code[len(work) :]]
    return rows
