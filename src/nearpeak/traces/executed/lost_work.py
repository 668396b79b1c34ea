"""Launches whose kernels are not in a trace: idle time after them may be work that the profiler lost."""

import re
from collections.abc import Iterable

import numpy as np

from nearpeak.core.traces.trace import EventKind
from nearpeak.traces import MISSING, Trace

_LAUNCH = re.compile(r"^(cuda|cu|hip)(Ext|Module)*Launch(Cooperative)?Kernel|^(cuda|cu|hip)GraphLaunch")
_CAPTURE = re.compile(r"StreamBeginCapture")
MOST_LOST = 0.01
"""Part of the launches without a kernel beyond which idle time is not known to be idle."""


def lost_launches(trace: Trace, spans: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return how many launches within spans of the host have no kernel in the file, and how many launches there are.

    Launches after the last one of their thread that has a kernel are left out: the profiler may have stopped before
    the device came to them. Launches that a graph captures enqueue nothing; where a capture begins, none is counted.
    """
    rows = trace.named_rows(_LAUNCH, EventKind.HOST_API)
    rows = rows[trace.correlation[rows] != MISSING]
    parent = trace.parent[rows]
    rows = rows[(parent < 0) | (trace.kind[parent] != EventKind.HOST_API)]
    inside, start = np.zeros(len(rows), np.bool_), trace.start_ns[rows]
    captures = trace.start_ns[trace.named_rows(_CAPTURE, EventKind.HOST_API)]
    for begin, end in spans:
        if not ((captures >= begin) & (captures < end)).any():
            inside |= (start >= begin) & (start < end)
    rows = rows[inside]
    is_lost = ~np.isin(trace.correlation[rows], trace.correlation[trace.device_rows()])
    is_followed = np.zeros(len(rows), np.bool_)
    for process, thread in {(int(trace.process[row]), int(trace.thread[row])) for row in rows}:
        here = np.flatnonzero((trace.process[rows] == process) & (trace.thread[rows] == thread))
        complete = here[~is_lost[here]]
        is_followed[here] = len(complete) > 0 and here <= complete[-1]
    return int((is_lost & is_followed).sum()), int(is_followed.sum())
