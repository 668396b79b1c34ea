"""onnxruntime: the profile of `enable_profiling`; whole microseconds, so that short nodes read 0."""

import re
from dataclasses import replace
from pathlib import Path

from nearpeak.core.trace import EventKind, TraceHeader
from nearpeak.trace._chrome import EventTable, Rules
from nearpeak.trace._json import EventFile
from nearpeak.trace.columns import Trace
from nearpeak.trace.formats._format import TraceFormat

_LACK = "times are whole microseconds: a node of 0 is shorter than the clock can tell"
_KINDS = {
    "session": EventKind.HOST_RANGE,
    "node": EventKind.HOST_OP,
    "api": EventKind.HOST_API,
    "kernel": EventKind.KERNEL,
}


def _kind(phase: str, category: str) -> EventKind | str:
    if phase == "X":
        return _KINDS.get(category.lower(), f"?category {category or 'none'!r}")
    return "label of a process or thread" if phase == "M" else f"?phase {phase!r}"


def _read(path: Path) -> Trace:
    """Return the trace of a profile: runs and session as ranges, nodes as operators."""
    file = EventFile(path)
    table = EventTable(file, Rules(kind_of=_kind, record="event", device_is_process=False))
    for batch in file.batches():
        table.add(batch)
    header = TraceHeader(
        format="onnxruntime_profile",
        source=path.name,
        resolution_ns=1000,
        clock="monotonic",
        metadata=dict(file.metadata),
        method="profiler (onnxruntime)",
        record_count=file.record_count,
        lacks=(_LACK,),
        trimmed=any(loss.kind.startswith("end of") for loss in file.losses),
    )
    return _without_fences(table.trace(header))


def _without_fences(trace: Trace) -> Trace:
    """Return the trace with the events before and after nodes, which older files hold, as overhead."""
    fences = trace.where(lambda name: name.endswith(("_fence_before", "_fence_after")))
    if not fences.any():
        return trace
    kind = trace.kind.copy()
    kind[fences] = EventKind.OVERHEAD
    return replace(trace, kind=kind)


_MARKS = re.compile(rb'"cat"\s*:\s*"(Session|Node)"')


def _recognises(head: bytes) -> bool:
    return head.lstrip()[:1] == b"[" and bool(_MARKS.search(head))


FORMAT = TraceFormat(name="onnxruntime_profile", title="onnxruntime, profile", recognises=_recognises, read=_read)
