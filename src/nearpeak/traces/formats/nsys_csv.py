"""Nsight Systems: CSV of `nsys stats --report cuda_gpu_trace` (kernels and copies) and `cuda_api_trace` (calls)."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.core.traces.trace import EventKind, Loss, TraceDevice, TraceHeader
from nearpeak.traces.reading.csv_tables import Table, tables_of
from nearpeak.traces.reading.rocm_units import copy_fields, triple
from nearpeak.traces.reading.table_rows import EventRows, integers
from nearpeak.traces.timeline.trace_columns import MISSING, Trace
from nearpeak.traces.trace_format import TraceFormat

Array = npt.NDArray[Any]
_HEADER = re.compile(r'^"?Start ?\((ns|us|μs|ms|s|sec)\)"?,"?Duration ?\(')
_UNITS_NS = {"ns": 1, "us": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "sec": 10**9}
_BYTES = {"B": 1, "KB": 10**3, "KiB": 2**10, "MB": 10**6, "MiB": 2**20, "GB": 10**9}
_WANTED = "its header has no start and duration; write it with 'nsys stats --report cuda_gpu_trace --format csv FILE'"
_DEVICE = re.compile(r"^(.*) \((\d+)\)$")
_LACKS = {
    True: "no calls: they are in the report cuda_api_trace; the .sqlite export has both",
    False: "calls only: kernels are in the report cuda_gpu_trace; the .sqlite export has both",
}


def _read(path: Path) -> Trace:
    """Return the trace of a table; its rows are kernels, copies and fills, or calls."""
    rows, losses = EventRows(), list[Loss]()
    devices: dict[int, str] = {}
    has_work = True
    try:
        for table in tables_of(path, rows, losses, lambda line: bool(_HEADER.match(line)), _is_header, _WANTED):
            has_work = "Device" in table
            if has_work:
                _work(table, rows, devices)
            else:
                rows.add(
                    EventKind.HOST_API, table["Name"], *_times(table), process=integers(table["Pid"]),
                    thread=integers(table["Tid"]), correlation=integers(table["CorrID"]),
                )  # fmt: skip
    except csv.Error as error:
        rows.lose("dropped", "rest of the file", example=str(error))
    header = TraceHeader(
        format="nsys_csv", source=path.name, clock="monotonic", method="profiler (nsys)", losses=tuple(losses),
        devices=tuple(TraceDevice(index=index, name=name) for index, name in sorted(devices.items())),
        lacks=(_LACKS[has_work],),
    )  # fmt: skip
    return rows.trace(header)


def _is_header(header: Sequence[str]) -> bool:
    return bool(header) and len(set(header)) == len(header) and "Name" in header


def _column(table: Table, name: str) -> tuple[Sequence[object], str]:
    """Return the cells and the unit of the column that begins with a name, as in `Start (ns)`."""
    full = next((column for column in table.header if column.startswith(f"{name} (")), "")
    return table[full], full.partition("(")[2].rstrip(")")


def _times(table: Table) -> tuple[Array, Array]:
    """Return begin and end of each row in nanoseconds."""
    (starts, unit), (lengths, _) = _column(table, "Start"), _column(table, "Duration")
    start, length = (integers(cells, _UNITS_NS.get(unit, 1)) for cells in (starts, lengths))
    bad = (start == MISSING) | (length == MISSING)
    return start, np.where(bad, MISSING, start + np.where(bad, 0, length))


def _work(table: Table, rows: EventRows, devices: dict[int, str]) -> None:
    places = [_DEVICE.match(str(cell)) for cell in table["Device"]]
    devices |= {int(match[2]): match[1] for match in places if match}
    names = [str(cell) for cell in table["Name"]]
    plain = [re.sub(r"^\[CUDA mem(cpy|set)(.*)\]$", r"Mem\1\2", name) for name in names]
    kinds = np.array([_kind(name) for name in plain], np.int64)
    sizes, unit = _column(table, "Bytes")
    grid, block = (triple([table[f"{what}{axis}"] for axis in "XYZ"]) for what in ("Grd", "Blk"))
    copies = copy_fields([name.replace("-", "") for name in plain])
    is_copy = kinds == EventKind.MEMCPY
    rare = {
        "grid": np.where(grid > 0, grid, MISSING), "block": np.where(block > 0, block, MISSING),
        "registers": integers(table["Reg/Trd"]), "bytes": integers(sizes, _BYTES.get(unit, 1)),
        **{name: np.where(is_copy, values, MISSING) for name, values in copies.items()},
    }  # fmt: skip
    for name, column in (("source_memory", "SrcMemKd"), ("target_memory", "DstMemKd")):
        stated = copy_fields([f"Memcpy HtoD ({cell} -> Device)" for cell in table[column]])["source_memory"]
        rare[name] = np.where(is_copy & (stated > 0), stated, rare[name])
    device = np.array([int(match[2]) if match else MISSING for match in places], np.int64)
    rows.add(
        kinds, plain, *_times(table), device=device,
        stream=integers(table["Strm"]), correlation=integers(table["CorrId"]), rare=rare,
    )  # fmt: skip


def _kind(name: str) -> EventKind:
    if name.startswith("Memcpy"):
        return EventKind.MEMCPY
    return EventKind.MEMSET if name.startswith("Memset") else EventKind.KERNEL


def _recognises(head: bytes) -> bool:
    """A file with a header line that begins with start and duration."""
    text = head.decode("utf-8", "replace").removeprefix("\ufeff")
    return any(_HEADER.match(line) for line in text.splitlines()[:40])


FORMAT = TraceFormat(
    name="nsys_csv",
    title="Nsight Systems, CSV of cuda_gpu_trace and cuda_api_trace",
    recognises=_recognises,
    read=_read,
)
