"""Nsight Systems: SQLite export; tables and columns that a capture lacks are reported as missing."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.core.traces.trace import READ_AS_WORK, CopyKind, EventKind, Memory, SyncKind, TraceDevice, TraceHeader
from nearpeak.errors import SpecError
from nearpeak.traces.reading.sqlite_tables import MAGIC, Database, opened
from nearpeak.traces.reading.table_rows import EventRows, integers, whole
from nearpeak.traces.timeline.kernel_names import work_kind_of
from nearpeak.traces.timeline.trace_columns import MISSING, Trace
from nearpeak.traces.trace_format import TraceFormat

Array = npt.NDArray[Any]
_PREFIX = "CUPTI_ACTIVITY_KIND_"
_SHARED = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "graphNodeId", "graphId")
_KERNEL = (
    "demangledName", "shortName", "mangledName", "registersPerThread", "staticSharedMemory", "dynamicSharedMemory",
    "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "clusterX", "clusterY", "clusterZ",
)  # fmt: skip
_COPIES = (
    ("Unknown", CopyKind.UNKNOWN), ("HtoD", CopyKind.H2D), ("DtoH", CopyKind.D2H), ("HtoA", CopyKind.H2D),
    ("AtoH", CopyKind.D2H), ("AtoA", CopyKind.D2D), ("AtoD", CopyKind.D2D), ("DtoA", CopyKind.D2D),
    ("DtoD", CopyKind.D2D), ("HtoH", CopyKind.H2H), ("PtoP", CopyKind.P2P), ("UVM HtoD", CopyKind.UVM),
    ("UVM DtoH", CopyKind.UVM), ("UVM DtoD", CopyKind.UVM),
)  # fmt: skip
"""Names and directions of copies by CUPTI's number."""
_MEMORIES = (
    Memory.PAGEABLE, Memory.PINNED, Memory.DEVICE, Memory.DEVICE, Memory.MANAGED, Memory.DEVICE, Memory.MANAGED,
    Memory.UNKNOWN,
)  # fmt: skip
"""Memories by CUPTI's number; the last one is every other number."""
_SYNCS = (SyncKind.UNKNOWN, SyncKind.EVENT, SyncKind.STREAM_WAIT, SyncKind.STREAM, SyncKind.CONTEXT)
_WAITS = (
    (re.compile("StreamWaitEvent"), SyncKind.STREAM_WAIT),
    (re.compile("(Stream|Thread)Synchronize"), SyncKind.STREAM),
    (re.compile("EventSynchronize"), SyncKind.EVENT),
    (re.compile("(Device|Ctx)Synchronize"), SyncKind.CONTEXT),
)
_RANGES = (59, 60, 70, 71)
_MARK, _SILENT = 34, (33, 39, 75)
_THREADS = 0x1000000


def _read(path: Path) -> Trace:
    """Return the trace of an export."""
    rows = EventRows()
    with opened(path, rows) as base:
        if not any(name.startswith((_PREFIX, "NVTX_EVENTS", "META_DATA_EXPORT", "StringIds")) for name in base.tables):
            raise SpecError(f"{path.name}: is a SQLite file without tables of Nsight Systems; wanted {_PREFIX}…")
        strings = base.pairs("StringIds", "id", "value")
        calls = _calls(base, rows, strings)
        _kernels(base, rows, strings)
        _copies(base, rows)
        for cells in base.read(f"{_PREFIX}MEMSET", (*_SHARED, "bytes", "memKind"), needed=_SHARED[:2]):
            rare = {**_rare(cells), "bytes": integers(cells[-2]), "target_memory": _memory(cells[-1])}
            rows.add(EventKind.MEMSET, ["Memset"] * len(cells[0]), rare=rare, **_device(cells))
        _unknown_work(base, rows)
        graphs = _graphs(base, rows)
        _waits(base, rows, calls)
        _ranges(base, rows, strings)
        return rows.trace(_header(base, rows, graphs))


def _named(cells: Sequence[object], strings: Mapping[object, object]) -> list[object]:
    return [strings.get(cell, cell if isinstance(cell, str) else "") for cell in cells]


def _process(cells: Sequence[object]) -> Array:
    """Return process ids of global ids."""
    ids = integers(cells)
    return np.where(ids == MISSING, MISSING, ids // _THREADS % _THREADS)


def _thread(cells: Sequence[object]) -> Array:
    ids = integers(cells)
    return np.where(ids == MISSING, MISSING, ids % _THREADS)


def _calls(base: Database, rows: EventRows, strings: Mapping[object, object]) -> dict[tuple[int, int], str]:
    """Take calls of runtime and driver; return their names by process and correlation."""
    names_by_call: dict[tuple[int, int], str] = {}
    wanted = ("start", "end", "globalTid", "correlationId", "nameId")
    for table in (f"{_PREFIX}RUNTIME", f"{_PREFIX}DRIVER"):
        for start, end, owner, correlation, name in base.read(table, wanted, needed=wanted[:2]):
            names, process, correlations = _named(name, strings), _process(owner), integers(correlation)
            rows.add(
                EventKind.HOST_API,
                names,
                integers(start),
                integers(end),
                process=process,
                thread=_thread(owner),
                correlation=correlations,
            )
            names_by_call.update(
                zip(zip(process.tolist(), correlations.tolist(), strict=True), map(str, names), strict=True)
            )
    return names_by_call


def _device(cells: Sequence[Sequence[object]]) -> dict[str, Any]:
    """Return the columns that all device tables share."""
    start, end, device, _, stream, correlation, owner = cells[:7]
    return {
        "start": integers(start),
        "end": integers(end),
        "device": integers(device),
        "stream": integers(stream),
        "correlation": integers(correlation),
        "process": _process(owner),
    }


def _rare(cells: Sequence[Sequence[object]]) -> dict[str, Array]:
    return {"context": integers(cells[3]), "graph_node": integers(cells[7]), "graph": integers(cells[8])}


def _triple(cells: Sequence[Sequence[object]]) -> Array:
    sizes: Array = np.stack([integers(column) for column in cells], axis=1)
    return np.where(
        (sizes == MISSING).any(axis=1, keepdims=True) | (sizes <= 0).any(axis=1, keepdims=True), MISSING, sizes
    )


def _kernels(base: Database, rows: EventRows, strings: Mapping[object, object]) -> None:
    for cells in base.read(f"{_PREFIX}KERNEL", (*_SHARED, *_KERNEL), needed=_SHARED[:2]):
        rest = cells[len(_SHARED) :]
        long, short, mangled = (_named(rest[place], strings) for place in range(3))
        names = [
            long_name or short_name or mangled_name
            for long_name, short_name, mangled_name in zip(long, short, mangled, strict=True)
        ]
        static, dynamic = integers(rest[4]), integers(rest[5])
        both = np.where((static == MISSING) | (dynamic == MISSING), MISSING, static + dynamic)
        rare = {
            **_rare(cells),
            "registers": integers(rest[3]),
            "shared_bytes": both,
            "grid": _triple(rest[6:9]),
            "block": _triple(rest[9:12]),
            "cluster": _triple(rest[12:15]),
        }
        rows.add(EventKind.KERNEL, names, rare=rare, **_device(cells))


def _graphs(base: Database, rows: EventRows) -> int:
    """Take graphs that were recorded as a whole, one event per launch; return how many there are."""
    count = 0
    for cells in base.read(f"{_PREFIX}GRAPH_TRACE", _SHARED, needed=_SHARED[:2]):
        columns = _device(cells)
        has_nodes = _has_nodes(base, columns["process"], columns["correlation"])
        if has_nodes.any():
            rows.lose("skipped", "graph whose kernels are recorded one by one", int(has_nodes.sum()))
        whole_graphs = np.flatnonzero(~has_nodes)
        graph = integers(cells[8])[whole_graphs]
        names = [f"CUDA graph {value}" if value != MISSING else "CUDA graph" for value in graph.tolist()]
        rare = {"context": integers(cells[3])[whole_graphs], "graph": graph}
        rows.add(EventKind.KERNEL, names, rare=rare, **{name: value[whole_graphs] for name, value in columns.items()})
        count += len(whole_graphs)
    return count


def _has_nodes(base: Database, process: Array, correlation: Array) -> Array:
    """Return which graph launches have individually recorded kernels."""
    wanted = {pair: place for place, pair in enumerate(zip(process.tolist(), correlation.tolist(), strict=True))}
    has_nodes = np.zeros(len(process), np.bool_)
    for correlations, owner in base.read(f"{_PREFIX}KERNEL", ("correlationId", "globalPid"), needed=("correlationId",)):
        pairs = zip(_process(owner).tolist(), integers(correlations).tolist(), strict=True)
        has_nodes[[wanted[pair] for pair in pairs if pair in wanted]] = True
    return has_nodes


def _copies(base: Database, rows: EventRows) -> None:
    wanted = (*_SHARED, "bytes", "copyKind", "srcKind", "dstKind")
    for cells in base.read(f"{_PREFIX}MEMCPY", wanted, needed=_SHARED[:2]):
        size, kind, source, target = cells[len(_SHARED) :]
        kinds = integers(kind)
        known = np.where((kinds >= 0) & (kinds < len(_COPIES)), kinds, 0)
        names = [f"Memcpy {_COPIES[number][0]}" for number in known]
        rare = {
            **_rare(cells),
            "bytes": integers(size),
            "copy_kind": np.array([kind for _, kind in _COPIES], np.int64)[known],
            "source_memory": _memory(source),
            "target_memory": _memory(target),
        }
        rows.add(EventKind.MEMCPY, names, rare=rare, **_device(cells))


def _memory(cells: Sequence[object]) -> Array:
    kinds = integers(cells)
    return np.array(_MEMORIES, np.int64)[np.where((kinds >= 0) & (kinds < len(_MEMORIES)), kinds, len(_MEMORIES) - 1)]


def _waits(base: Database, rows: EventRows, calls: Mapping[tuple[int, int], str]) -> None:
    """Take synchronisations; the call that made one says what is waited for, its own type only where none is known."""
    for cells in base.read(f"{_PREFIX}SYNCHRONIZATION", (*_SHARED, "syncType", "eventId"), needed=_SHARED[:2]):
        columns = _device(cells)
        types = integers(cells[-2])
        kinds = []
        for process, correlation, kind in zip(
            columns["process"].tolist(), columns["correlation"].tolist(), types.tolist(), strict=True
        ):
            call = calls.get((process, correlation), "")
            by_type = _SYNCS[kind] if 0 <= kind < len(_SYNCS) else SyncKind.UNKNOWN
            kinds.append(next((sync for pattern, sync in _WAITS if call and pattern.search(call)), by_type))
        columns["stream"] = np.where(columns["stream"] == 2**32 - 1, MISSING, columns["stream"])
        names = [f"{sync.name.replace('_', ' ').capitalize()} synchronisation" for sync in kinds]
        event = integers(cells[-1])
        rare = {
            "context": integers(cells[3]),
            "sync": np.array(kinds, np.int64),
            "event": np.where(event == 2**32 - 1, MISSING, event),
        }
        rows.add(EventKind.SYNC, names, rare=rare, **columns)


def _ranges(base: Database, rows: EventRows, strings: Mapping[object, object]) -> None:
    """Take marked ranges and moments."""
    wanted = ("start", "end", "eventType", "globalTid", "text", "textId", "domainId")
    for start, end, kind, owner, text, number, domain in base.read("NVTX_EVENTS", wanted, needed=wanted[:1]):
        types, begin, stop = integers(kind), integers(start), integers(end)
        names = [
            value if value is not None else strings.get(text_number, "")
            for value, text_number in zip(text, number, strict=True)
        ]
        for ours, mask in ((EventKind.HOST_RANGE, np.isin(types, _RANGES)), (EventKind.INSTANT, types == _MARK)):
            picked = np.flatnonzero(mask)
            ends = begin if ours is EventKind.INSTANT else stop
            rows.add(
                ours,
                [names[value] for value in picked],
                begin[picked],
                ends[picked],
                process=_process(owner)[picked],
                thread=_thread(owner)[picked],
                rare={"nvtx_domain": integers(domain)[picked]},
            )
        for other in np.unique(types[~np.isin(types, (*_RANGES, _MARK))]):
            what = "skipped" if other in _SILENT else "unknown"
            rows.lose(what, f"NVTX event of type {other if other != MISSING else 'none'}", int((types == other).sum()))


def _header(base: Database, rows: EventRows, graph_count: int) -> TraceHeader:
    export = {str(key): value for key, value in base.pairs("META_DATA_EXPORT", "name", "value").items()}
    begin = next(iter(base.pairs("TARGET_INFO_SESSION_START_TIME", "utcEpochNs", "utcTime")), None)
    lacks = [
        f"no table {name}"
        for name in (f"{_PREFIX}KERNEL", f"{_PREFIX}RUNTIME", "TARGET_INFO_GPU")
        if name not in base.tables
    ]
    if graph_count:
        lacks.append(
            f"kernels inside of {graph_count} launches of graphs: each graph is one event here"
            " (nsys --cuda-graph-trace=node records them)"
        )
    for name in _others(base):
        if count := base.count(name):
            rows.lose("skipped", f"record of table {name}", count)
    return TraceHeader(
        format="nsys_sqlite",
        version=str(export.get("EXPORT_SCHEMA_VERSION", "")),
        source=base.path.name,
        base_ns=begin if isinstance(begin, int) else 0,
        clock="wall" if isinstance(begin, int) else "unknown",
        method="profiler (Nsight Systems)",
        devices=tuple(_devices(base)),
        host=str(export.get("EXPORT_HOST", "")),
        versions={"nsys": str(export["EXPORT_PRODUCT_VERSION"])} if "EXPORT_PRODUCT_VERSION" in export else {},
        lacks=tuple(lacks),
        metadata=export,
    )


def _others(base: Database, *, work: bool = False) -> list[str]:
    """Return the tables of events that no rule knows: those that are work of a device, or the others."""
    tables = []
    for name in sorted(base.tables):
        columns = set(base.columns(name))
        holds = name.startswith(_PREFIX) or _TIMES & columns
        if holds and name.removeprefix(_PREFIX) not in _TAKEN and work == columns.issuperset(_WORK):
            tables.append(name)
    return tables


def _unknown_work(base: Database, rows: EventRows) -> None:
    """Take the events of unknown tables that name a device and a stream."""
    for name in _others(base, work=True):
        for cells in base.read(name, _SHARED, needed=_SHARED[:2]):
            title = name.removeprefix(_PREFIX)
            rows.add(work_kind_of(title), [title] * len(cells[0]), rare=_rare(cells), **_device(cells))
            rows.lose("unknown", f"table {name}, {READ_AS_WORK}", len(cells[0]))


_TAKEN = frozenset(("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "DRIVER", "SYNCHRONIZATION", "GRAPH_TRACE", "NVTX_EVENTS"))
_TIMES = frozenset(("start", "timestamp", "rawTimestamp", "startNs", "eventTime"))
"""Columns of tables that hold events."""
_WORK = frozenset(("start", "end", "deviceId", "streamId"))
"""Columns of tables that hold work of a device."""
_DEVICE = (
    "id", "name", "smCount", "totalMemory", "memoryBandwidth", "clockRate", "l2CacheSize", "computeMajor",
    "computeMinor",
)  # fmt: skip


def _devices(base: Database) -> list[TraceDevice]:
    """Return the devices that the file describes."""
    if "TARGET_INFO_GPU" not in base.tables:
        return []
    devices = []
    for columns in base.read("TARGET_INFO_GPU", _DEVICE):
        for index, name, sms, memory, bandwidth, clock, cache, major, minor in zip(*columns, strict=True):
            sizes = [
                None if (size := whole(cell)) == MISSING else size for cell in (sms, memory, bandwidth, clock, cache)
            ]
            devices.append(
                TraceDevice(
                    index=max(whole(index), -1),
                    name=str(name or ""),
                    sm_count=sizes[0],
                    memory_bytes=sizes[1],
                    bandwidth_bytes_per_s=sizes[2],
                    clock_hz=sizes[3],
                    l2_bytes=sizes[4],
                    compute_capability=f"{major}.{minor}" if major is not None and minor is not None else "",
                )
            )
    return devices


def _recognises(head: bytes) -> bool:
    """A SQLite file that names tables of Nsight Systems, or at least none of ROCm."""
    return head.startswith(MAGIC) and b"rocpd_" not in head


FORMAT = TraceFormat(name="nsys_sqlite", title="Nsight Systems, SQLite export", recognises=_recognises, read=_read)
