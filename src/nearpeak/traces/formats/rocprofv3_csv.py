"""rocprofv3: CSV tables of kernels, copies, calls, statistics and counters, in old and new columns."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.core.traces.trace import EventKind, Loss, TraceHeader
from nearpeak.traces.reading.csv_tables import Table, tables_of
from nearpeak.traces.reading.rocm_units import agents_of, blocks_of, copy_fields, triple
from nearpeak.traces.reading.table_rows import EventRows, integers, real_numbers
from nearpeak.traces.timeline.trace_columns import MISSING, Trace
from nearpeak.traces.trace_format import TraceFormat

Array = npt.NDArray[Any]
_SPAN = ("Start_Timestamp", "End_Timestamp")
_WANTED = f"its first line has no columns of rocprofv3; wanted {', '.join(_SPAN)} or TotalDurationNs or Counter_Name"
_LIFTED = frozenset((
    *_SPAN, "Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Process_Id", "Kernel_Name", "Correlation_Id",
    "Domain", "Function", "Direction", "Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z", "Workgroup_Size_X",
    "Workgroup_Size_Y", "Workgroup_Size_Z", "LDS_Block_Size", "Group_Segment_Size", "VGPR_Count", "Source_Agent_Id",
    "Destination_Agent_Id",
))  # fmt: skip


def _read(path: Path) -> Trace:
    """Return the trace of a table; statistics and counters without times become events that are not on a timeline."""
    rows, losses = EventRows(), list[Loss]()
    lacks: list[str] = []
    try:
        for table in tables_of(path, rows, losses, lambda line: "," in line, _is_header, _WANTED):
            _add(table, rows, lacks)
    except csv.Error as error:
        rows.lose("dropped", "rest of the file", example=str(error))
    header = TraceHeader(
        format="rocprofv3_csv",
        source=path.name,
        clock="monotonic",
        method="profiler (rocprofv3)",
        losses=tuple(losses),
        lacks=tuple(dict.fromkeys(lacks)),
    )
    return rows.trace(header)


def _is_header(header: Sequence[str]) -> bool:
    return len(set(header)) == len(header) and (
        all(name in header for name in _SPAN) or "TotalDurationNs" in header or "Counter_Name" in header
    )


def _add(table: Table, rows: EventRows, lacks: list[str]) -> None:
    if "Counter_Name" in table:
        _counters(table, rows, lacks)
    elif "TotalDurationNs" in table:
        _statistics(table, rows, lacks)
    elif "Kernel_Name" in table:
        _kernels(table, rows)
    elif "Direction" in table:
        _copies(table, rows)
        lacks.append("copies only: kernels of the same run are in another table")
    else:
        _calls(table, rows)


def _rest(table: Table) -> dict[str, Any]:
    """Return columns that no rule lifts, under their own names."""
    rest = [name for name in table.header if name and name not in _LIFTED]
    numbers = {name: integers(table[name]) for name in rest}
    return {
        "rare": {name: values for name, values in numbers.items() if (values != MISSING).all()},
        "texts": {name: table[name] for name, values in numbers.items() if not (values != MISSING).all()},
    }


def _times(table: Table) -> dict[str, Array]:
    return {"start": integers(table[_SPAN[0]]), "end": integers(table[_SPAN[1]])}


def _kernels(table: Table, rows: EventRows) -> None:
    block = triple([table[f"Workgroup_Size_{axis}"] for axis in "XYZ"])
    items = triple([table[f"Grid_Size_{axis}"] for axis in "XYZ"])
    rest = _rest(table)
    lds = table["LDS_Block_Size" if "LDS_Block_Size" in table else "Group_Segment_Size"]
    rare = {
        **rest["rare"],
        "grid": blocks_of(items, block),
        "block": np.where(block > 0, block, MISSING),
        "shared_bytes": integers(lds),
        "registers": integers(table["VGPR_Count"]),
        "queue": integers(table["Queue_Id"]),
    }
    rows.add(
        EventKind.KERNEL,
        table["Kernel_Name"],
        **_times(table),
        device=agents_of(table["Agent_Id"]),
        stream=integers(table["Stream_Id"]),
        correlation=integers(table["Correlation_Id"]),
        process=integers(table["Process_Id"]),
        rare=rare,
        texts=rest["texts"],
    )


def _copies(table: Table, rows: EventRows) -> None:
    names = [str(cell) for cell in table["Direction"]]
    rest, fields = _rest(table), copy_fields(names)
    to_device = fields["copy_kind"] != 2
    source, target = agents_of(table["Source_Agent_Id"]), agents_of(table["Destination_Agent_Id"])
    rows.add(
        EventKind.MEMCPY,
        names,
        **_times(table),
        device=np.where(to_device, target, source),
        stream=integers(table["Stream_Id"]),
        correlation=integers(table["Correlation_Id"]),
        process=integers(table["Process_Id"]),
        rare={**rest["rare"], **fields},
        texts=rest["texts"],
    )


def _calls(table: Table, rows: EventRows) -> None:
    """Take calls and markers; tables of allocations and of scratch memory call theirs an operation."""
    rest = _rest(table)
    named = next((name for name in ("Function", "Operation", "Kind") if name in table), "Function")
    marked = [
        EventKind.HOST_RANGE if "MARKER" in str(domain).upper() else EventKind.HOST_API for domain in table["Domain"]
    ]
    call_kinds = np.array(marked, np.int64)
    rows.add(
        call_kinds,
        [cell or "" for cell in table[named]],
        **_times(table),
        process=integers(table["Process_Id"]),
        thread=integers(table["Thread_Id"]),
        correlation=integers(table["Correlation_Id"]),
        rare=rest["rare"],
        texts={**rest["texts"], "domain": table["Domain" if "Domain" in table else "Kind"]},
    )


def _statistics(table: Table, rows: EventRows, lacks: list[str]) -> None:
    """Take one counter per name: sums have no place in time."""
    lacks.append("statistics only: sums by name, no single events and no times")
    start = np.zeros(table.count, np.int64)
    rare = {
        ours: integers(table[name])
        for name, ours in (
            ("Calls", "calls"),
            ("TotalDurationNs", "total_ns"),
            ("MinNs", "min_ns"),
            ("MaxNs", "max_ns"),
        )
    }
    floats = {name: real_numbers(table[name]) for name in ("AverageNs", "Percentage", "StdDev")}
    rows.add(EventKind.COUNTER, table["Name"], start, start, rare={**rare, **floats})


def _counters(table: Table, rows: EventRows, lacks: list[str]) -> None:
    """Take one counter per dispatch; older files state no times of the dispatches."""
    timed = all(name in table for name in _SPAN)
    if not timed:
        lacks.append("no times of the dispatches whose counters were read")
    start = integers(table[_SPAN[0]]) if timed else np.zeros(table.count, np.int64)
    rest = _rest(table)
    floats = {"value": real_numbers(table["Counter_Value"])}
    skip = ("Counter_Name", "Counter_Value")
    rare = {name: values for name, values in rest["rare"].items() if name not in skip}
    texts = {name: cells for name, cells in rest["texts"].items() if name not in skip}
    rows.add(
        EventKind.COUNTER,
        table["Counter_Name"],
        start,
        start,
        device=agents_of(table["Agent_Id"]),
        correlation=integers(table["Correlation_Id"]),
        process=integers(table["Process_Id"]),
        rare={**rare, **floats},
        texts={**texts, "kernel": table["Kernel_Name"]},
    )


def _recognises(head: bytes) -> bool:
    first = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].decode("utf-8", "replace")
    header = [name.strip().strip('"') for name in first.split(",")]
    return _is_header(header)


FORMAT = TraceFormat(name="rocprofv3_csv", title="ROCm (rocprofv3), CSV tables", recognises=_recognises, read=_read)
