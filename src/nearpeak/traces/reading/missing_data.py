"""Evidence that a trace lacks, one sentence each."""

import numpy as np

from nearpeak.core.traces.trace import DEVICE_KINDS, EventKind
from nearpeak.traces.timeline.trace_columns import MISSING, NO_ROW, Trace

_NO_PROFILE = ("power_log", "mlperf_log")
"""Formats of which nobody expects kernels."""


def lacks_of(trace: Trace) -> tuple[str, ...]:
    """Return the evidence that a trace lacks, given what it holds."""
    lacks = list(trace.header.lacks)
    if trace.header.format in _NO_PROFILE:
        return tuple(lacks)
    how = trace.header.format == "kineto"
    work = trace.device_rows()
    if not len(work):
        lacks.append("no device events: neither busy nor idle time is known")
    if not trace.of_kind(EventKind.HOST_API).any():
        lacks.append("no calls of runtime or driver: why a device was idle is not known")
    elif len(work) and (lone := int((trace.launch[work] == NO_ROW).sum())):
        lacks.append(f"{lone} of {len(work)} device events have no recorded call")
    operators = trace.rows(EventKind.HOST_OP)
    if not len(operators):
        lacks.append("no operators of a framework: kernels cannot be joined to operators")
    elif "shapes" not in trace.sparse:
        lacks.append(
            "no shapes of operators: they cannot be joined to cases" + " (record_shapes=True records them)" * how
        )
    if not trace.of_kind(EventKind.HOST_FRAME).any():
        lacks.append("no stacks of Python" + " (with_stack=True records them)" * how)
    lacks += _of_device(trace)
    return tuple(lacks)


def _of_device(trace: Trace) -> list[str]:
    lacks = []
    for kind in DEVICE_KINDS:
        rows = trace.rows(kind)
        if not len(rows):
            continue
        what = {EventKind.KERNEL: "kernels", EventKind.MEMCPY: "copies", EventKind.MEMSET: "fills"}[kind]
        if lost := int((trace.stream[rows] == MISSING).sum()):
            lacks.append(f"{lost} of {len(rows)} {what} name no stream")
        rare = "grid" if kind == EventKind.KERNEL else "bytes"
        have = int(np.isin(rows, trace.sparse[rare].rows).sum()) if rare in trace.sparse else 0
        if have < len(rows):
            lacks.append(f"{len(rows) - have} of {len(rows)} {what} state no {'grid' if rare == 'grid' else 'bytes'}")
    return lacks
