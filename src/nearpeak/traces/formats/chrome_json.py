"""Chrome trace events of any tool and nearpeak's own export; begin and end events are counted, not read."""

import re
from pathlib import Path

from nearpeak.core.traces.trace import EventKind, TraceHeader
from nearpeak.traces.formats.kineto import _CATEGORIES as KINETO
from nearpeak.traces.reading.chrome_events import EventTable, Rules
from nearpeak.traces.timeline.trace_columns import Trace
from nearpeak.traces.trace_format import TraceFormat

_OWN = {kind.name.lower(): kind for kind in EventKind}


def _kind(phase: str, category: str) -> EventKind | str:
    """Return the kind of an event, or what is said of it where no rule knows its category."""
    if phase == "X":
        category = category.lower()
        return _OWN.get(category, KINETO.get(category, f"?category {category or 'none'!r}"))
    if phase in ("i", "I", "R"):
        return EventKind.INSTANT
    if phase == "C":
        return EventKind.COUNTER
    if phase in ("s", "t", "f"):
        return "flow"
    return "label of a process or thread" if phase == "M" else f"?phase {phase!r}"


def _read(path: Path) -> Trace:
    """Return the trace of a file of Chrome's trace events."""
    rules = Rules(kind_of=_kind, record="traceEvents", lifted=("process", "thread"), otherwise=EventKind.HOST_RANGE)
    table, file = EventTable.of_file(path, rules)
    base = file.metadata.get("baseTimeNanoseconds", 0)
    header = TraceHeader(
        format="chrome_json", source=path.name, record_count=file.record_count, metadata=dict(file.metadata),
        base_ns=base if isinstance(base, int) and abs(base) < 2**63 else 0, method=str(file.metadata.get("method", "")),
    )  # fmt: skip
    return table.trace(header)


_EVENT = re.compile(rb'"ph"\s*:\s*"[A-Za-z]"')
_OTHERS = (b'"schemaVersion"', b'"deviceProperties"', b'"baseTimeNanoseconds"', b'"cat": "cpu_op"', b'"cat":"cpu_op"',
           b'"torch_profiler_kwargs"', b'"External id"', b'"user_annotation"', b'"Session"', b'"Node"',
           b'"/host:CPU"', b'"/device:')  # fmt: skip


def _recognises(head: bytes) -> bool:
    """A file of events without the marks of a tool that has a format of its own."""
    return bool(_EVENT.search(head)) and (b'"nearpeak": 1' in head or not any(mark in head for mark in _OTHERS))


FORMAT = TraceFormat(name="chrome_json", title="Chrome trace events, of any tool", recognises=_recognises, read=_read)
