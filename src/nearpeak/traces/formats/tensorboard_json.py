"""Profiles of JAX and TensorFlow for TensorBoard and Perfetto: `*.trace.json.gz`, whose processes are planes of XLA."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from nearpeak.core.traces.trace import TraceHeader
from nearpeak.errors import SpecError
from nearpeak.traces.reading.json_document import document_of
from nearpeak.traces.reading.table_rows import EventRows, whole
from nearpeak.traces.reading.xla_planes import Plane, PlaneEvent, PlaneLine, add_planes
from nearpeak.traces.timeline.trace_columns import MISSING, Trace
from nearpeak.traces.trace_format import TraceFormat

MOST_EVENTS = 1_000_000
"""Events that the writer keeps of a profile. Source: openxla/xprof, trace_viewer's converter."""


def _read(path: Path) -> Trace:
    """Return the trace of a profile."""
    document, losses = document_of(path)
    events = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(events, list):
        raise SpecError(f"{path.name}: holds no list 'traceEvents'")
    rows = EventRows()
    planes: dict[object, str] = {}
    lines: dict[tuple[object, object], str] = {}
    members: dict[tuple[object, object], list[PlaneEvent]] = defaultdict(list)
    for place, event in enumerate(events):
        if not isinstance(event, dict) or not event:
            continue
        rows.record_count += 1
        key = (_key(event.get("pid")), _key(event.get("tid")))
        stated = event.get("args")
        arguments = stated if isinstance(stated, dict) else {}
        if event.get("ph") == "M":
            name = str(arguments.get("name", ""))
            if event.get("name") == "process_name":
                planes[key[0]] = name
            elif event.get("name") == "thread_name":
                lines[key] = name
        elif event.get("ph") == "X":
            members[key].append(_event(event, arguments))
        else:
            rows.lose("skipped", f"phase {str(event.get('ph'))[:20]!r}", example=f"traceEvents[{place}]")
    by_plane: dict[object, list[PlaneLine]] = defaultdict(list)
    for (process, thread), line_events in members.items():
        number = thread if isinstance(thread, int) else 0
        by_plane[process].append(PlaneLine(number=number, name=lines.get((process, thread), ""), events=line_events))
    devices = add_planes([Plane(planes.get(key, ""), entries, {}) for key, entries in by_plane.items()], rows)
    lacks = (
        ("the writer keeps the first million events: give the .xplane.pb beside it",)
        if len(events) >= MOST_EVENTS
        else ()
    )
    header = TraceHeader(
        format="tensorboard_json", source=path.name, method="profiler (XLA)", devices=devices, losses=tuple(losses),
        lacks=lacks,
    )  # fmt: skip
    return rows.trace(header)


def _key(value: object) -> object:
    return value if isinstance(value, (int, str)) else None


def _event(event: dict[str, Any], arguments: dict[str, Any]) -> PlaneEvent:
    start, length = whole(event.get("ts"), 1000), whole(event.get("dur"), 1000)
    end = MISSING if MISSING in (start, length) else start + length
    return PlaneEvent(name=str(event.get("name", "")), start_ns=start, end_ns=end, stats=arguments)


def _recognises(head: bytes) -> bool:
    """A file of events whose processes have the names of XLA's planes."""
    return b'"traceEvents"' in head and b'"process_name"' in head and (b'"/host:CPU"' in head or b'"/device:' in head)


FORMAT = TraceFormat(
    name="tensorboard_json", title="JAX and TensorFlow, trace.json.gz", recognises=_recognises, read=_read
)
