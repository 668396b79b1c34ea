"""Owners of events: the module of device work, the forward operator of a backward operator."""

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.base.compilation import compiled_exactly
from nearpeak.core.traces.trace import EventKind
from nearpeak.traces.timeline.trace_columns import MISSING, NO_ROW, Trace

Array = npt.NDArray[Any]
_MODULE = re.compile(r"^nn\.Module: ")


def nearest(trace: Trace, mask: Array) -> Array:
    """Return for each event the innermost event of `mask` around it, or itself; `NO_ROW` where there is none."""
    return _nearest(trace.parent, mask)  # type: ignore[no-any-return]


@compiled_exactly()
def _nearest(parent: Any, mask: Any) -> Any:
    """Go down the rows: a parent always stands before its children."""
    rows = np.full(len(parent), -1, np.int32)
    for row in range(len(parent)):
        if mask[row]:
            rows[row] = row
        elif parent[row] >= 0:
            rows[row] = rows[parent[row]]
    return rows


def forward_of(trace: Trace) -> Array:
    """Return for each backward operator its forward one, `NO_ROW` for all others.

    Both have the same sequence number; the backward one names the thread that the forward one ran on, and comes later.
    Where numbers are missing, the arrows that the profiler draws between the two tell.
    """
    forward = np.full(len(trace), NO_ROW, np.int32)
    if trace.has("forward"):
        forward[trace.sparse["forward"].rows] = trace.sparse["forward"].values
    if not trace.has("sequence") or not trace.has("forward_thread"):
        return forward
    rows = trace.sparse["sequence"].rows
    number = trace.values("sequence", rows)
    behind = trace.values("forward_thread", rows)
    back = (behind != MISSING) & (behind > 0)
    first: dict[int, int] = {}
    for row, value in zip(rows[~back].tolist(), number[~back].tolist(), strict=True):
        first[value] = row  # the innermost operator that carries the number is what autograd recorded
    for row, value in zip(rows[back].tolist(), number[back].tolist(), strict=True):
        if value in first and first[value] < row:
            forward[row] = first[value]
    return forward


def modules_of(trace: Trace, rows: Array) -> Array:
    """Return the frame of the module behind each device event, that of its forward operator for backward work."""
    modules = trace.of_kind(EventKind.HOST_FRAME) & trace.where(lambda name: bool(_MODULE.match(name)))
    if not modules.any():
        return np.full(len(rows), NO_ROW, np.int32)
    around = nearest(trace, modules)
    call = trace.launch[rows]
    owners = np.where(call != NO_ROW, around[call], NO_ROW).astype(np.int32)
    forward = nearest_forward(trace)
    origin = np.where(call != NO_ROW, forward[call], NO_ROW)
    return np.where((owners == NO_ROW) & (origin != NO_ROW), around[origin], owners).astype(np.int32)


def nearest_forward(trace: Trace) -> Array:
    """Return for each event the forward operator of the innermost backward operator around it."""
    forward = forward_of(trace)
    around = nearest(trace, forward != NO_ROW)
    return np.where(around != NO_ROW, forward[around], NO_ROW).astype(np.int32)


def time_by(trace: Trace, rows: Array, owner: Array) -> dict[str, int]:
    """Return the sum of the lengths of device events by the name of what owns them, longest first; none under ''.

    Sums add up to the time of all events exactly.
    """
    length = trace.duration_ns[rows]
    names = np.where(owner == NO_ROW, -1, trace.name[owner])
    keys, places = np.unique(names, return_inverse=True)
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, places, length)
    times_ns = {"" if key < 0 else trace.texts[int(key)]: int(time_ns) for key, time_ns in zip(keys, sums, strict=True)}
    return dict(sorted(times_ns.items(), key=lambda pair: (-pair[1], pair[0])))
