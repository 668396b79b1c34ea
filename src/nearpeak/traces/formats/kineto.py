"""Kineto: Chrome JSON of the PyTorch profiler for CUDA and ROCm, compressed or not, all schema versions."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from nearpeak.core.traces.trace import EventKind, TraceDevice, TraceHeader
from nearpeak.traces.reading.chrome_events import EventTable, Rules
from nearpeak.traces.reading.flow_arrows import FlowKind
from nearpeak.traces.reading.json_events import EventFile
from nearpeak.traces.timeline.trace_columns import Trace
from nearpeak.traces.trace_format import TraceFormat

_CATEGORIES = {
    "cpu_op": EventKind.HOST_OP, "operator": EventKind.HOST_OP, "user_annotation": EventKind.HOST_RANGE,
    "python_function": EventKind.HOST_FRAME, "cuda_runtime": EventKind.HOST_API, "cuda_driver": EventKind.HOST_API,
    "runtime": EventKind.HOST_API, "hip_runtime": EventKind.HOST_API, "hip_driver": EventKind.HOST_API,
    "xpu_runtime": EventKind.HOST_API, "xpu_driver": EventKind.HOST_API, "privateuse1_runtime": EventKind.HOST_API,
    "privateuse1_driver": EventKind.HOST_API, "mtia_runtime": EventKind.HOST_API, "kernel": EventKind.KERNEL,
    "gpu_memcpy": EventKind.MEMCPY, "memcpy": EventKind.MEMCPY, "gpu_memset": EventKind.MEMSET,
    "memset": EventKind.MEMSET, "gpu_user_annotation": EventKind.DEVICE_RANGE, "cuda_sync": EventKind.SYNC,
    "xpu_sync": EventKind.SYNC, "cuda_profiler_range": EventKind.DEVICE_RANGE, "overhead": EventKind.OVERHEAD,
    "cpu_instant_event": EventKind.INSTANT,
}  # fmt: skip
_MARK = re.compile(r"ProfilerStep#\d+$|Optimizer\.(step|zero_grad)#|enumerate\(DataLoader\)#")
"""Ranges that PyTorch marks itself. Source: torch/profiler/profiler.py, torch/optim, torch/utils/data/dataloader.py."""
_TO_DEVICE = "flow ac2g (taken where a correlation is missing)"
_TO_BACKWARD = "flow fwdbwd (taken where sequence numbers are missing)"
_SKIPPED = {
    "ac2g": _TO_DEVICE, "async_cpu_to_gpu": _TO_DEVICE, "async": _TO_DEVICE, "fwdbwd": _TO_BACKWARD,
    "trace": "span of the profiler itself",
}  # fmt: skip
_FLAGS = ("record_shapes", "with_stack", "with_modules", "with_flops", "profile_memory")
_VERSIONS = ("cupti_version", "cuda_runtime_version", "cuda_driver_version", "roctracer_version",
             "hip_runtime_version", "hip_driver_version")  # fmt: skip


def _kind(phase: str, category: str) -> EventKind | str:
    """Return the kind of an event, or what is said of it where it is left out."""
    category = category.lower()
    if phase == "M":
        return "label of a process or thread"
    if category in _SKIPPED:
        return _SKIPPED[category]
    if phase == "X":
        return _CATEGORIES.get(category, f"?category {repr(category) if category else 'not stated'}")
    if phase in ("i", "I"):
        return EventKind.INSTANT
    if phase == "C":
        return EventKind.COUNTER
    return f"?phase {phase!r} of category {category or 'none'!r}"


_RULES = Rules(
    kind_of=_kind, record="traceEvents", flows={_TO_DEVICE: FlowKind.LAUNCH, _TO_BACKWARD: FlowKind.BACKWARD}
)


def _read(path: Path) -> Trace:
    """Return the trace of a file of the PyTorch profiler."""
    table, file = EventTable.of_file(path, _RULES)
    return _with_marks(table.trace(_header(path, file)))


def _with_marks(trace: Trace) -> Trace:
    """Return the trace with the marks of steps, loaders and optimizers as ranges: older files call them operators."""
    marks = trace.of_kind(EventKind.HOST_OP) & trace.where(lambda name: bool(_MARK.match(name)))
    if not marks.any():
        return trace
    kind = trace.kind.copy()
    kind[marks] = EventKind.HOST_RANGE
    return replace(trace, kind=kind)


def _header(path: Path, file: EventFile) -> TraceHeader:
    data = dict(file.metadata)
    spread = data.get("distributedInfo")
    spread = spread if isinstance(spread, dict) else {}
    base = data.pop("baseTimeNanoseconds", 0)
    schema = data.pop("schemaVersion", "")
    devices = data.pop("deviceProperties", [])
    devices = devices if isinstance(devices, list) else []
    return TraceHeader(
        format="kineto", version=str(schema), source=path.name, base_ns=base if _is_int(base) else 0,
        clock="wall" if _is_int(base) and base else "unknown", method="profiler (Kineto)",
        devices=tuple(_device(entry) for entry in devices if isinstance(entry, dict)),
        flags={name: bool(data.pop(name)) for name in _FLAGS if name in data},
        versions={name: str(data.pop(name)) for name in _VERSIONS if name in data},
        rank=_int(spread.get("rank")), world_size=_int(spread.get("world_size")), record_count=file.record_count,
        metadata=data,
    )  # fmt: skip


def _device(entry: dict[str, Any]) -> TraceDevice:
    major, minor, number = entry.get("computeMajor"), entry.get("computeMinor"), _int(entry.get("id"))
    return TraceDevice(
        index=-1 if number is None else number, name=str(entry.get("name", "")), sm_count=_int(entry.get("numSms")),
        memory_bytes=_int(entry.get("totalGlobalMem")),
        compute_capability=f"{major}.{minor}" if major is not None and minor is not None else "",
    )  # fmt: skip


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _int(value: object) -> int | None:
    """Return a whole number, which other writers put down as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return value if isinstance(value, int) and _is_int(value) else None


def _recognises(head: bytes) -> bool:
    """A file of events whose head has a mark of the PyTorch profiler."""
    if not re.match(rb"(\xef\xbb\xbf)?\s*[\[{]", head):
        return False
    marks = (b'"schemaVersion"', b'"deviceProperties"', b'"baseTimeNanoseconds"', b'"cat": "cpu_op"', b'"cat":"cpu_op"',
             b'"torch_profiler_kwargs"', b'"External id"', b'"user_annotation"')  # fmt: skip
    return any(mark in head for mark in marks) and not any(
        foreign_mark in head for foreign_mark in (b"rocprofiler-sdk-tool", b'"nearpeak": 1')
    )


FORMAT = TraceFormat(name="kineto", title="PyTorch profiler (Kineto), Chrome JSON", recognises=_recognises, read=_read)
