"""Planes of XLA's profiler as trace rows: lines of a device's streams are work, its other lines are ranges over it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nearpeak.core.traces.trace import EventKind, TraceDevice
from nearpeak.traces.reading.rocm_units import copy_fields
from nearpeak.traces.reading.table_rows import EventRows, integers, whole
from nearpeak.traces.timeline.trace_columns import MISSING

_DEVICE = re.compile(r"^/device:(\w+):(\d+)")
_STREAM = re.compile(r"^Stream #?(\d+)")
_API = ("/host:CUPTI", "/host:ROCTRACER")
"""Planes of calls of the runtime. Source: openxla/xla, tsl/profiler/utils/xplane_schema.cc."""
_WORK = "XLA Ops"
"""Line of what a device without streams ran: a TPU's."""
_CALL = re.compile(r"^(cuda|cu|hip)[A-Z]\w+")
_COPY = re.compile(r"^Mem(?:cpy|Cpy) ?([HDP])(?:2|to)([HDP])", re.IGNORECASE)
_FILL = re.compile(r"^Mem(set|Set)", re.IGNORECASE)
_LAUNCH = re.compile(r"(grid|block):(\d+),(\d+),(\d+)")
_SIZE = re.compile(r"size:(\d+)")
_MEMORY = re.compile(r"kind_src:(?:host_)?(\w+)")
_KEPT = ("hlo_op", "hlo_module", "tf_op", "hlo_category", "kernel_details", "memcpy_details")


class PlaneEvent(NamedTuple):
    """One event of a line."""

    name: str
    start_ns: int
    end_ns: int
    stats: Mapping[str, Any]


class PlaneLine(NamedTuple):
    """A line of a plane: a stream or a thread, or ranges that were derived from them."""

    number: int
    name: str
    events: Sequence[PlaneEvent]


class Plane(NamedTuple):
    """What one device or the host did."""

    name: str
    lines: Sequence[PlaneLine]
    stats: Mapping[str, Any]


def add_planes(planes: Iterable[Plane], rows: EventRows) -> tuple[TraceDevice, ...]:
    """Take the events of all planes, and return the devices that they describe."""
    devices = []
    for number, plane in enumerate(planes):
        if match := _DEVICE.match(plane.name):
            devices.append(_device(plane, int(match[2])))
            _add_device(plane, int(match[2]), rows)
        else:
            for line in plane.lines:
                _add_host(plane.name, line, number, rows)
    return tuple(devices)


def _device(plane: Plane, index: int) -> TraceDevice:
    stats = plane.stats
    major, minor = stats.get("compute_cap_major"), stats.get("compute_cap_minor")
    bandwidth = stats.get("memory_bandwidth")
    return TraceDevice(
        index=index, name=str(stats.get("device_type_string", "")), sm_count=_positive(stats.get("core_count")),
        memory_bytes=_positive(stats.get("memory_size")),
        bandwidth_bytes_per_s=float(bandwidth) if isinstance(bandwidth, (int, float)) and bandwidth > 0 else None,
        compute_capability=f"{major}.{minor}" if major is not None and minor is not None else "",
    )  # fmt: skip


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _add_device(plane: Plane, index: int, rows: EventRows) -> None:
    has_streams = any(_STREAM.match(line.name) for line in plane.lines)
    for line in plane.lines:
        match = _STREAM.match(line.name)
        is_work = match is not None or (not has_streams and line.name == _WORK)
        stream = int(match[1]) if match else 0 if is_work else MISSING
        _add(rows, line.events, [_kind(event.name) if is_work else EventKind.DEVICE_RANGE for event in line.events],
             device=index, stream=stream)  # fmt: skip


def _add_host(plane: str, line: PlaneLine, process: int, rows: EventRows) -> None:
    """Take the events of a thread: frames of Python begin with $, steps say their number."""
    kinds, events = [], []
    for event in line.events:
        step = event.stats.get("step_num")
        if plane in _API or _CALL.match(event.name):
            kinds.append(EventKind.HOST_API)
        else:
            kinds.append(EventKind.HOST_FRAME if event.name.startswith("$") else EventKind.HOST_RANGE)
        events.append(event if step is None else event._replace(name=f"{event.name} step {step}"))
    _add(rows, events, kinds, process=process, thread=line.number)


def _kind(name: str) -> EventKind:
    if _COPY.match(name):
        return EventKind.MEMCPY
    return EventKind.MEMSET if _FILL.match(name) else EventKind.KERNEL


def _add(rows: EventRows, events: Sequence[PlaneEvent], kinds: Sequence[EventKind], **place: int) -> None:
    if not events:
        return
    count = len(events)
    details = [str(event.stats.get("kernel_details", "")) for event in events]
    copies = [str(event.stats.get("memcpy_details", event.stats.get("memset_details", ""))) for event in events]
    launches = [{what: (int(x), int(y), int(z)) for what, x, y, z in _LAUNCH.findall(text)} for text in details]
    unknown = (MISSING, MISSING, MISSING)
    sizes = [match[1] if (match := _SIZE.search(text)) else None for text in copies]
    named = [_described(event.name, text) for event, text in zip(events, copies, strict=True)]
    is_copy = np.array([kind == EventKind.MEMCPY for kind in kinds])
    rare = {
        "grid": np.array([launch.get("grid", unknown) for launch in launches], np.int64),
        "block": np.array([launch.get("block", unknown) for launch in launches], np.int64),
        "bytes": integers(sizes),
        **{name: np.where(is_copy, values, MISSING) for name, values in copy_fields(named).items()},
    }  # fmt: skip
    texts = {name: [event.stats.get(name) for event in events] for name in _KEPT}
    start, end = (np.array(times, np.int64) for times in zip(*(event[1:3] for event in events), strict=True))
    rows.add(
        np.array(kinds, np.int64), [event.name for event in events], start, end,
        rare=rare, texts={name: cells for name, cells in texts.items() if any(cell is not None for cell in cells)},
        correlation=integers([event.stats.get("correlation_id") for event in events]),
        **{name: np.full(count, whole(value), np.int64) for name, value in place.items()},
    )  # fmt: skip


def _described(name: str, details: str) -> str:
    """Return the name of a copy with its ends as other profilers print it: of MemcpyH2D `Memcpy HtoD (pinned -> …)`."""
    match, memory = _COPY.match(name), _MEMORY.search(details)
    if match is None:
        return ""
    ends = f" ({memory[1]} -> Device)" if memory and match[1].upper() == "H" else ""
    return f"Memcpy {match[1].upper()}to{match[2].upper()}{ends}"
