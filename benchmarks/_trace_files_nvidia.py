"""Small trace files of Nsight Systems, Nsight Compute and TensorRT."""

import json
import sqlite3
from pathlib import Path

from benchmarks._trace_work import Work

_NSYS = {
    "kernel": (
        "KERNEL",
        "demangledName, gridX, gridY, gridZ, blockX, blockY, blockZ, registersPerThread, staticSharedMemory, dynamicSharedMemory",
    ),
    "memcpy": ("MEMCPY", "bytes, copyKind, srcKind, dstKind"),
    "memset": ("MEMSET", "bytes, memKind"),
}


def nsys_sqlite(path: Path, work: list[Work], process: int = 111) -> None:
    """Write an export of Nsight Systems; its times are nanoseconds of the recording."""
    shared, owner = "start, end, deviceId, contextId, streamId, correlationId, globalPid", process << 24
    with sqlite3.connect(path) as base:
        base.execute("create table StringIds (id integer, value text)")
        base.execute("create table META_DATA_EXPORT (name text, value text)")
        base.execute("insert into META_DATA_EXPORT values ('EXPORT_SCHEMA_VERSION', '3.25.0')")
        names = sorted({one.name for one in work} | {"cudaLaunchKernel_v7000"})
        base.executemany("insert into StringIds values (?, ?)", enumerate(names))
        base.execute(
            "create table CUPTI_ACTIVITY_KIND_RUNTIME (start integer, end integer, globalTid integer, correlationId integer, nameId integer)"
        )
        base.execute(
            "create table NVTX_EVENTS (start integer, end integer, eventType integer, globalTid integer, text text, textId integer, domainId integer)"
        )
        base.execute(
            "insert into NVTX_EVENTS values (?, ?, 59, ?, 'step 1', null, 0)",
            (work[0].call_start_ns - 5, work[-1].call_end_ns + 5, owner | 9),
        )
        for table, columns in _NSYS.values():
            base.execute(f"create table CUPTI_ACTIVITY_KIND_{table} ({shared}, {columns})")
        for one in work:
            base.execute(
                "insert into CUPTI_ACTIVITY_KIND_RUNTIME values (?, ?, ?, ?, ?)",
                (one.call_start_ns, one.call_end_ns, owner | 9, one.correlation, names.index("cudaLaunchKernel_v7000")),
            )
            own = {
                "kernel": (names.index(one.name), *one.grid, *one.block, 40, 0, 0),
                "memcpy": (one.bytes, 1, 1, 2),
                "memset": (one.bytes, 2),
            }[one.kind]
            row = (one.start_ns, one.end_ns, 0, 1, one.stream, one.correlation, owner, *own)
            base.execute(
                f"insert into CUPTI_ACTIVITY_KIND_{_NSYS[one.kind][0]} values ({', '.join('?' * len(row))})", row
            )
    base.close()


def ncu_csv(path: Path, work: list[Work]) -> None:
    """Write a details page: lines of the profiler before the header, ragged rows, values with separators."""
    header = (
        "ID",
        "Process ID",
        "Process Name",
        "Host Name",
        "Kernel Name",
        "Context",
        "Stream",
        "Block Size",
        "Grid Size",
        "Device",
        "CC",
        "Section Name",
        "Metric Name",
        "Metric Unit",
        "Metric Value",
        "Rule Name",
        "Rule Type",
        "Rule Description",
        "Estimated Speedup Type",
        "Estimated Speedup",
    )
    lines = ["==PROF== Connected to process 4711", ",".join(f'"{name}"' for name in header)]
    for number, one in enumerate(work):
        first = [
            str(number),
            "4711",
            "python",
            "127.0.0.1",
            one.name,
            "1",
            str(one.stream),
            f"({', '.join(map(str, one.block))})",
            f"({', '.join(map(str, one.grid))})",
            "0",
            "9.0",
        ]
        metrics = (
            ("GPU Speed Of Light Throughput", "gpu__time_duration.sum", "ns", f"{one.end_ns - one.start_ns:,}"),
            ("Memory Workload Analysis", "dram__bytes.sum", "Kbyte", "n/a"),
            ("Launch", "launch__func_cache_config", "", "CachePreferNone"),
        )
        lines += [",".join(f'"{cell}"' for cell in (*first, *metric)) + "," for metric in metrics]
        rule = ("SpeedOfLight", "", "", "", "SOLBottleneck", "OPT", "Look at it", "global", "12.5")
        lines.append(",".join(f'"{cell}"' for cell in (*first, *rule)))
    path.write_text("\n".join(lines) + "\n")


def trtexec_json(path: Path, work: list[Work]) -> None:
    """Write a profile of layers."""
    layers = [
        {
            "name": f"layer {place}",
            "timeMs": (one.end_ns - one.start_ns) / 1e4,
            "averageMs": (one.end_ns - one.start_ns) / 1e6,
            "percentage": 1.0,
        }
        for place, one in enumerate(work)
    ]
    path.write_text(json.dumps([{"count": 100}, *layers]))
