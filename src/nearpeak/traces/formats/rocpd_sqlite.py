"""rocpd: SQLite files of ROCm's profiler, whose tables carry a UUID suffix and whose grids are in work-items."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.base.input_files import json_value
from nearpeak.core.traces.trace import EventKind, TraceDevice, TraceHeader
from nearpeak.errors import SpecError
from nearpeak.traces.reading.rocm_units import blocks_of, copy_fields
from nearpeak.traces.reading.sqlite_tables import MAGIC, Database, opened
from nearpeak.traces.reading.table_rows import EventRows, integers, whole
from nearpeak.traces.timeline.trace_columns import MISSING, Trace
from nearpeak.traces.trace_format import TraceFormat

Array = npt.NDArray[Any]
_INTERFACES = ("hip", "hsa_", "__hip", "nccl", "rccl", "roc")
"""How names of calls begin."""
_WORK = ("rocpd_kernel_dispatch", "rocpd_region", "rocpd_memory_copy")
_LEFT_OUT = ("rocpd_memory_allocate", "rocpd_pmc_event", "rocpd_sample")
_DISPATCH = (
    "start", "end", "pid", "tid", "agent_id", "kernel_id", "queue_id", "stream_id", "event_id", "dispatch_id",
    "private_segment_size", "group_segment_size",
)  # fmt: skip
_SIZES = tuple(f"{what}{infix}_{axis}" for what in ("workgroup", "grid") for infix in ("_size", "") for axis in "xyz")
_COPY = (
    "start", "end", "pid", "tid", "src_agent_id", "dst_agent_id", "queue_id", "stream_id", "event_id", "name_id",
    "size",
)  # fmt: skip


def _read(path: Path) -> Trace:
    """Return the trace of a file."""
    rows = EventRows()
    with opened(path, rows) as base:
        suffixes = base.suffixes(*_WORK)
        if not any(stem + suffix in base.tables for stem in _WORK for suffix in suffixes):
            raise SpecError(f"{path.name}: is a SQLite file without tables of rocpd; wanted rocpd_kernel_dispatch_…")
        sets = [_Names(base, suffix) for suffix in suffixes]
        for names in sets:
            _kernels(base, rows, names)
            _copies(base, rows, names)
            _regions(base, rows, names)
            for table in filter(None, map(names.table, _LEFT_OUT)):
                if count := base.count(table):
                    rows.lose("skipped", f"record of table {table}", count)
        return rows.trace(_header(base, sets))


class _Names:
    """Lookup tables for ids, by table suffix; files of several processes have several suffixes."""

    def __init__(self, base: Database, suffix: str) -> None:
        self._tables, self._suffix = base.tables, suffix
        self.strings = self._pairs(base, "rocpd_string", "string")
        self.kernels = self._pairs(base, "rocpd_info_kernel_symbol", "display_name")
        self.kernels = self.kernels or self._pairs(base, "rocpd_info_kernel_symbol", "kernel_name")
        self.processes, self.threads = (
            self._pairs(base, "rocpd_info_process", "pid"),
            self._pairs(base, "rocpd_info_thread", "tid"),
        )
        self.correlations = self._pairs(base, "rocpd_event", "stack_id") or self._pairs(
            base, "rocpd_event", "correlation_id"
        )
        self.categories = self._pairs(base, "rocpd_event", "category_id")
        marks = any("MARKER" in text.upper() or "roctx" in text for text in map(str, self.strings.values()))
        self.details = self._pairs(base, "rocpd_event", "extdata") if marks else {}
        self.agents = self._pairs(base, "rocpd_info_agent", "name")
        self.products = self._pairs(base, "rocpd_info_agent", "product_name")
        self.kinds = self._pairs(base, "rocpd_info_agent", "type")
        self.indices = self._pairs(base, "rocpd_info_agent", "type_index")
        self.hosts = self._pairs(base, "rocpd_info_node", "hostname")

    def table(self, stem: str) -> str | None:
        """Return the table with this stem."""
        return stem + self._suffix if stem + self._suffix in self._tables else None

    def _pairs(self, base: Database, stem: str, value: str) -> dict[object, object]:
        table = self.table(stem)
        if table is None or value not in base.columns(table):
            return {}
        return base.pairs(table, "id", value)

    def is_call(self, name: str, event: object) -> bool:
        """Say whether a region is a call of an interface, by its category or else its name; others are marked."""
        category = self.strings.get(self.categories.get(event))
        if isinstance(category, str) and category:
            return "MARKER" not in category.upper()
        return name.startswith(_INTERFACES) and not name.startswith("roctx")

    def message(self, event: object) -> str:
        """Return what a marker says; nothing where its event keeps no message."""
        try:
            data = json_value(str(self.details.get(event) or "{}"))
        except ValueError:
            return ""
        return str(data.get("message") or "") if isinstance(data, dict) else ""

    def device(self, agents: Sequence[object]) -> Array:
        """Return the number of each agent among those of its type, its id where the file does not say."""
        return integers([self.indices.get(agent, agent) for agent in agents])


def _through(cells: Sequence[object], table: Mapping[object, object]) -> Array:
    return integers([table.get(cell, None if table else cell) for cell in cells])


def _kernels(base: Database, rows: EventRows, names: _Names) -> None:
    table = names.table("rocpd_kernel_dispatch")
    for cells in base.read(table, (*_DISPATCH, *_SIZES), needed=_DISPATCH[:2]) if table else ():
        start, end, process, _, agent, kernel, queue, stream, event, dispatch, scratch, lds = cells[: len(_DISPATCH)]
        sizes = [integers(cell) for cell in cells[len(_DISPATCH) :]]
        triples = [np.stack(sizes[place : place + 3], axis=1) for place in (0, 3, 6, 9)]
        block, items = (np.where(triples[i] == MISSING, triples[i + 1], triples[i]) for i in (0, 2))
        rare = {
            "grid": blocks_of(items, block),
            "block": block,
            "queue": integers(queue),
            "dispatch": integers(dispatch),
            "scratch_bytes": integers(scratch),
            "shared_bytes": integers(lds),
        }
        rows.add(
            EventKind.KERNEL,
            [names.kernels.get(cell, f"kernel {cell}") for cell in kernel],
            integers(start),
            integers(end),
            process=_through(process, names.processes),
            device=names.device(agent),
            stream=integers(stream),
            correlation=_correlation(event, names),
            rare=rare,
        )


def _correlation(events: Sequence[object], names: _Names) -> Array:
    """Return correlations; 0 is what the profiler writes for none."""
    correlations = _through(events, names.correlations)
    return np.where(correlations == 0, MISSING, correlations)


def _copies(base: Database, rows: EventRows, names: _Names) -> None:
    table = names.table("rocpd_memory_copy")
    for cells in base.read(table, _COPY, needed=_COPY[:2]) if table else ():
        start, end, process, _, source, target, queue, stream, event, name, size = cells
        words = [str(names.strings.get(cell, "MEMORY_COPY")) for cell in name]
        on_device = [
            target[place] if names.kinds.get(target[place]) == "GPU" else source[place] for place in range(len(start))
        ]
        rows.add(
            EventKind.MEMCPY,
            words,
            integers(start),
            integers(end),
            process=_through(process, names.processes),
            device=names.device(on_device),
            stream=integers(stream),
            correlation=_correlation(event, names),
            rare={"bytes": integers(size), "queue": integers(queue), **copy_fields(words)},
        )


def _regions(base: Database, rows: EventRows, names: _Names) -> None:
    """Take calls and marked ranges, which are called by their message."""
    table = names.table("rocpd_region")
    wanted = ("start", "end", "pid", "tid", "name_id", "event_id")
    for start, end, process, thread, name, event in base.read(table, wanted, needed=wanted[:2]) if table else ():
        words = [str(names.strings.get(cell, "")) for cell in name]
        api = np.array([names.is_call(word, cell) for word, cell in zip(words, event, strict=True)], np.bool_)
        rows.add(
            np.where(api, EventKind.HOST_API, EventKind.HOST_RANGE),
            [word if call else names.message(cell) or word for word, cell, call in zip(words, event, api, strict=True)],
            integers(start),
            integers(end),
            process=_through(process, names.processes),
            thread=_through(thread, names.threads),
            correlation=_correlation(event, names),
        )


def _header(base: Database, sets: Sequence[_Names]) -> TraceHeader:
    metadata: dict[str, object] = {}
    devices: dict[int, TraceDevice] = {}
    for names in sets:
        table = names.table("rocpd_metadata") or "rocpd_metadata"
        metadata |= {str(key): value for key, value in base.pairs(table, "tag", "value").items()}
        for key, name in names.agents.items():
            index = max(whole(names.indices.get(key, key)), -1)
            if names.kinds.get(key) == "GPU" and index not in devices:
                # The name is the architecture where the file states a product.
                text, product = str(name or ""), str(names.products.get(key) or "")
                architecture = text if product and text.startswith("gfx") else ""
                devices[index] = TraceDevice(index=index, name=product or text, compute_capability=architecture)
    return TraceHeader(
        format="rocpd_sqlite",
        version=str(metadata.get("schema_version", "")),
        source=base.path.name,
        clock="monotonic",
        method="profiler (rocprofv3)",
        devices=tuple(devices.values()),
        host=str(next((host for names in sets for host in names.hosts.values()), "")),
        metadata=metadata,
    )


def _recognises(head: bytes) -> bool:
    return head.startswith(MAGIC) and b"rocpd_" in head


FORMAT = TraceFormat(name="rocpd_sqlite", title="ROCm (rocprofv3), rocpd SQLite", recognises=_recognises, read=_read)
