"""rocprofv3: JSON of dispatches, copies and calls, with agents and kernel symbols."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.core.traces.trace import READ_AS_WORK, EventKind, TraceDevice, TraceHeader
from nearpeak.errors import SpecError
from nearpeak.traces.reading.json_document import document_of
from nearpeak.traces.reading.rocm_units import blocks_of, copy_fields, handle
from nearpeak.traces.reading.table_rows import EventRows, integers, whole
from nearpeak.traces.timeline.kernel_names import work_kind_of
from nearpeak.traces.timeline.trace_columns import MISSING, Trace
from nearpeak.traces.trace_format import TraceFormat

Array = npt.NDArray[Any]
_ROOT = "rocprofiler-sdk-tool"
_MARKERS = "marker_api"
_CALLS = ("hip_api", "hsa_api", "rccl_api", "marker_api", "rocdecode_api", "rocjpeg_api")


def _read(path: Path) -> Trace:
    """Return the trace of a file, all of its processes."""
    data, losses = document_of(path)
    tools = data.get(_ROOT) if isinstance(data, dict) else None
    tools = [tools] if isinstance(tools, dict) else tools
    if not isinstance(tools, list) or not any(isinstance(entry, dict) for entry in tools):
        raise SpecError(f"{path.name}: has no list {_ROOT!r} of objects, as the JSON of rocprofv3 has")
    rows, devices, lacks = EventRows(), dict[int, TraceDevice](), list[str]()
    for tool in tools:
        if isinstance(tool, dict):
            _tool(tool, rows, devices, lacks)
    first = next(entry for entry in tools if isinstance(entry, dict))
    metadata = _mapping(first.get("metadata"))
    header = TraceHeader(
        format="rocprofv3_json",
        source=path.name,
        clock="monotonic",
        method="profiler (rocprofv3)",
        losses=tuple(losses),
        devices=tuple(devices.values()),
        host=str(_mapping(metadata.get("node")).get("hostname", "")),
        lacks=tuple(lacks),
        metadata=metadata,
    )
    return rows.trace(header)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _tool(tool: Mapping[str, Any], rows: EventRows, devices: dict[int, TraceDevice], lacks: list[str]) -> None:
    """Take what one process recorded."""
    numbers = {}
    for agent in _objects(tool.get("agents")):
        number = whole(agent.get("node_id"))
        index = number if number != MISSING else handle(agent.get("id"))
        numbers[handle(agent.get("id"))] = index
        if agent.get("type") == 2:
            devices[index] = _device(agent, index)
    symbols = {
        symbol.get("kernel_id"): symbol.get("formatted_kernel_name") or symbol.get("kernel_name")
        for symbol in _objects(tool.get("kernel_symbols"))
        if _hashable(symbol.get("kernel_id"))
    }
    pid = whole(_mapping(tool.get("metadata")).get("pid"))
    records = _mapping(tool.get("buffer_records"))
    _kernels(_objects(records.get("kernel_dispatch")), rows, numbers, symbols, pid)
    _copies(_objects(records.get("memory_copy")), rows, numbers, pid)
    strings = _mapping(tool.get("strings"))
    kinds = enumerate(_objects(strings.get("buffer_records")))
    operations = {place: kind.get("operations") or () for place, kind in kinds}
    # What markers say, by the correlation of their record; a record itself names only the call.
    markers = [marker for marker in _objects(strings.get(_MARKERS)) if marker.get("value")]
    messages = {whole(marker.get("key")): str(marker["value"]) for marker in markers}
    for name in _CALLS:
        if calls := _objects(records.get(name)):
            _calls(name, calls, rows, operations, pid, messages if name == _MARKERS else {})
    lacks += [f"no records of {name}" for name in ("hip_api", "memory_copy") if not records.get(name)]
    for name, values in records.items():
        if name not in ("kernel_dispatch", "memory_copy", *_CALLS) and (left := _objects(values)):
            work = [record for record in left if {"agent_id", "stream_id"} <= record.keys()]
            _unknown_work(name, work, rows, numbers, pid)
            if len(left) > len(work):
                rows.lose("unknown", f"record {name}", len(left) - len(work))


def _hashable(value: object) -> bool:
    return isinstance(value, (int, str))


def _device(agent: Mapping[str, Any], index: int) -> TraceDevice:
    clock, units = whole(agent.get("max_engine_clk_fcompute")), whole(agent.get("cu_count"))
    return TraceDevice(
        index=index,
        name=str(agent.get("product_name") or agent.get("name") or ""),
        sm_count=None if units == MISSING else units,
        clock_hz=None if clock == MISSING else clock * 1e6,
        compute_capability=str(agent.get("name", "")),
    )


def _shared(records: Sequence[Mapping[str, Any]], pid: int) -> dict[str, Any]:
    correlations = integers(
        [_mapping(record.get("correlation_id")).get("internal", record.get("correlation_id")) for record in records]
    )
    return {
        "start": integers([record.get("start_timestamp") for record in records]),
        "end": integers([record.get("end_timestamp") for record in records]),
        "correlation": np.where(correlations == 0, MISSING, correlations),
        "process": np.full(len(records), pid, np.int64),
    }


def _numbers(values: Sequence[int]) -> Array:
    return np.array(values, np.int64)


def _sizes(infos: Sequence[Mapping[str, Any]], name: str) -> Array:
    cells = [[whole(_mapping(info.get(name)).get(axis)) for axis in "xyz"] for info in infos]
    return np.array(cells, np.int64).reshape(-1, 3)


def _kernels(
    records: list[dict[str, Any]], rows: EventRows, agents: Mapping[int, int], symbols: Mapping[Any, Any], pid: int
) -> None:
    infos = [_mapping(value.get("dispatch_info")) for value in records]
    ids = [info.get("kernel_id") for info in infos]
    block, items = _sizes(infos, "workgroup_size"), _sizes(infos, "grid_size")
    agent = [handle(info.get("agent_id")) for info in infos]
    rare = {
        "grid": blocks_of(items, block),
        "block": np.where(block > 0, block, MISSING),
        "kernel_id": integers(ids),
        "queue": _numbers([handle(info.get("queue_id")) for info in infos]),
        "dispatch": integers([info.get("dispatch_id") for info in infos]),
        "shared_bytes": integers([info.get("group_segment_size") for info in infos]),
    }
    names = [symbols.get(value) if _hashable(value) else None for value in ids]
    rows.add(
        EventKind.KERNEL,
        [name or f"kernel {value}" for name, value in zip(names, ids, strict=True)],
        device=_numbers([agents.get(value, value) for value in agent]),
        stream=_numbers([handle(value.get("stream_id")) for value in records]),
        rare=rare,
        **_shared(records, pid),
    )


_DIRECTIONS = (
    "MEMORY_COPY_NONE",
    "MEMORY_COPY_HOST_TO_HOST",
    "MEMORY_COPY_HOST_TO_DEVICE",
    "MEMORY_COPY_DEVICE_TO_HOST",
    "MEMORY_COPY_DEVICE_TO_DEVICE",
)


def _copies(records: list[dict[str, Any]], rows: EventRows, agents: Mapping[int, int], pid: int) -> None:
    kinds = [whole(value.get("operation")) for value in records]
    names = [_DIRECTIONS[kind] if 0 <= kind < len(_DIRECTIONS) else "MEMORY_COPY" for kind in kinds]
    ends = ["src_agent_id" if kind == 3 else "dst_agent_id" for kind in kinds]
    agent = [handle(value.get(end)) for value, end in zip(records, ends, strict=True)]
    rows.add(
        EventKind.MEMCPY,
        names,
        device=_numbers([agents.get(value, value) for value in agent]),
        stream=_numbers([handle(value.get("stream_id")) for value in records]),
        rare={"bytes": integers([value.get("bytes") for value in records]), **copy_fields(names)},
        **_shared(records, pid),
    )


def _unknown_work(
    name: str, records: list[dict[str, Any]], rows: EventRows, agents: Mapping[int, int], pid: int
) -> None:
    """Take records of a kind that no rule knows, which name an agent and a stream."""
    if not records:
        return
    agent = [handle(record["agent_id"]) for record in records]
    rows.add(
        work_kind_of(name), [name] * len(records),
        device=_numbers([agents.get(value, value) for value in agent]),
        stream=_numbers([handle(record["stream_id"]) for record in records]), **_shared(records, pid),
    )  # fmt: skip
    rows.lose("unknown", f"record {name}, {READ_AS_WORK}", len(records))


def _calls(
    name: str, records: list[dict[str, Any]], rows: EventRows, operations: Mapping[int, Sequence[Any]], pid: int,
    messages: Mapping[int, str],
) -> None:  # fmt: skip
    names, shared = [], _shared(records, pid)
    for record, correlation in zip(records, shared["correlation"].tolist(), strict=True):
        if message := messages.get(correlation):
            names.append(message)
            continue
        kind, number = whole(record.get("kind")), whole(record.get("operation"))
        known = operations.get(kind, ())
        names.append(str(known[number]) if isinstance(known, list) and 0 <= number < len(known) else f"{name} {number}")
    ours = EventKind.HOST_RANGE if name == _MARKERS else EventKind.HOST_API
    rows.add(ours, names, thread=integers([record.get("thread_id") for record in records]), **shared)


def _recognises(head: bytes) -> bool:
    return head.lstrip()[:1] == b"{" and _ROOT.encode() in head[:4096]


FORMAT = TraceFormat(name="rocprofv3_json", title="ROCm (rocprofv3), JSON", recognises=_recognises, read=_read)
