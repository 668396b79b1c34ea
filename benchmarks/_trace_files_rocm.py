"""Small trace files of ROCm's profilers."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from benchmarks._trace_work import HEX, Work


def rocpd_sqlite(path: Path, work: list[Work]) -> None:
    """Write a file of rocpd; kernels and copies only, fills are kernels there."""
    tables = {
        "string": "id, string",
        "info_process": "id, pid",
        "info_thread": "id, tid",
        "info_agent": "id, type, type_index, name",
        "info_node": "id, hostname",
        "info_kernel_symbol": "id, kernel_name, display_name",
        "event": "id, stack_id, correlation_id",
        "metadata": "id, tag, value",
        "kernel_dispatch": "start, end, pid, tid, agent_id, kernel_id, queue_id, stream_id, event_id, dispatch_id, workgroup_size_x, workgroup_size_y, "
        "workgroup_size_z, grid_size_x, grid_size_y, grid_size_z, group_segment_size",
        "memory_copy": "start, end, pid, tid, src_agent_id, dst_agent_id, queue_id, stream_id, event_id, name_id, size",
        "region": "start, end, pid, tid, name_id, event_id",
    }
    with sqlite3.connect(path) as base:
        for name, columns in tables.items():
            base.execute(f"create table rocpd_{name}_{HEX} ({columns})")

        def put(name: str, *cells: Any) -> None:
            base.execute(f"insert into rocpd_{name}_{HEX} values ({', '.join('?' * len(cells))})", cells)

        put("metadata", 1, "schema_version", "3")
        put("info_process", 1, 4711)
        put("info_thread", 1, 4712)
        put("info_agent", 1, "CPU", 0, "EPYC")
        put("info_agent", 2, "GPU", 0, "gfx942")
        put("string", 1, "hipLaunchKernel")
        put("string", 2, "MEMORY_COPY_HOST_TO_DEVICE")
        for one in work:
            put("event", one.correlation, one.correlation, 0)
            put("region", one.call_start_ns, one.call_end_ns, 1, 1, 1, one.correlation)
            if one.kind == "memcpy":
                put("memory_copy", one.start_ns, one.end_ns, 1, 1, 1, 2, 1, one.stream, one.correlation, 2, one.bytes)
            else:
                items = [grid * block for grid, block in zip(one.grid, one.block, strict=True)]
                put("info_kernel_symbol", one.correlation, one.name + ".kd", one.name)
                put(
                    "kernel_dispatch",
                    one.start_ns,
                    one.end_ns,
                    1,
                    1,
                    2,
                    one.correlation,
                    1,
                    one.stream,
                    one.correlation,
                    one.correlation,
                    *one.block,
                    *items,
                    0,
                )
    base.close()


def rocprofv3_csv(path: Path, work: list[Work]) -> None:
    """Write the table of kernels as newer versions do; all work is kernels."""
    rows = [
        '"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp",'
        '"End_Timestamp","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count","Workgroup_Size_X","Workgroup_Size_Y",'
        '"Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"'
    ]
    for one in work:
        items = ",".join(str(grid * block) for grid, block in zip(one.grid, one.block, strict=True))
        rows.append(
            f'"KERNEL_DISPATCH","Agent 4",1,{one.stream},9,{one.correlation},10,"{one.name}",{one.correlation},{one.start_ns},{one.end_ns},'
            f"0,0,8,0,16,{','.join(map(str, one.block))},{items}"
        )
    path.write_text("\n".join(rows) + "\n")


def rocprofv3_json(path: Path, work: list[Work]) -> None:
    """Write the JSON of dispatches; all work is kernels."""

    def size(values: tuple[int, ...]) -> dict[str, int]:
        return dict(zip("xyz", values, strict=True))

    records = [
        {
            "kind": 11,
            "operation": 2,
            "thread_id": 9,
            "correlation_id": {"internal": one.correlation, "external": 0},
            "start_timestamp": one.start_ns,
            "end_timestamp": one.end_ns,
            "stream_id": {"handle": one.stream},
            "dispatch_info": {
                "agent_id": {"handle": 90},
                "queue_id": {"handle": 1},
                "kernel_id": 3,
                "dispatch_id": one.correlation,
                "workgroup_size": size(one.block),
                "grid_size": size(tuple(a * b for a, b in zip(one.grid, one.block, strict=True))),
            },
        }
        for one in work
    ]
    tool = {
        "metadata": {"pid": 908, "node": {"hostname": "h"}},
        "agents": [{"id": {"handle": 90}, "type": 2, "node_id": 4, "name": "gfx950", "cu_count": 256}],
        "kernel_symbols": [{"kernel_id": 3, "formatted_kernel_name": "k<float>", "kernel_name": "k.kd"}],
        "buffer_records": {"kernel_dispatch": records, "hip_api": [], "memory_copy": []},
    }
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [tool]}))
