"""Small trace files of every format from one plan of events, so that what is read back is known exactly."""

import gzip
import json
import random
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEX = "00005d8e_4c5e_7a10_9f00_8d1f2f3a4b5c"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One piece of device work and the call that enqueued it."""

    kind: str
    """`kernel`, `memcpy` or `memset`."""
    name: str
    """Name."""
    call_start_ns: int
    """Start of the call."""
    call_end_ns: int
    """End of the call."""
    start_ns: int
    """Start on the device."""
    end_ns: int
    """End on the device."""
    stream: int
    """Stream."""
    correlation: int
    """Joins call and work."""
    bytes: int
    """Bytes of copies and fills."""
    grid: tuple[int, int, int] = (8, 2, 1)
    """Blocks."""
    block: tuple[int, int, int] = (128, 1, 1)
    """Threads."""


NAMES = (
    "ampere_sgemm_128x64_tn",
    "void at::native::vectorized_elementwise_kernel<4>",
    "ncclDevKernel_AllReduce_Sum_bf16",
    "softmax_kernel",
)


def planned(seed: int, count: int = 20, base_ns: int = 1_428_625_731_896_179) -> list[Work]:
    """Return device work of a random program on three streams; some of it overlaps."""
    draw, found, host = random.Random(seed), [], base_ns
    for number in range(1, count + 1):
        kind = draw.choices(("kernel", "memcpy", "memset"), (6, 2, 1))[0]
        call_end = host + draw.randrange(2_000, 9_000)
        start = call_end + draw.randrange(-1_000, 30_000)
        name = {"kernel": draw.choice(NAMES), "memcpy": "Memcpy HtoD (Pinned -> Device)", "memset": "Memset (Device)"}[
            kind
        ]
        found.append(
            Work(
                kind=kind,
                name=name,
                call_start_ns=host,
                call_end_ns=call_end,
                start_ns=max(start, host),
                end_ns=max(start, host) + draw.randrange(0, 40_000),
                stream=draw.choice((7, 20, 24)),
                correlation=number,
                bytes=draw.randrange(1, 1 << 20),
            )
        )
        host = call_end + draw.randrange(100, 20_000)
    return found


def _us(time_ns: int) -> str:
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


def _kineto_event(category: str, name: str, pid: Any, tid: Any, start: int, end: int, args: Mapping[str, Any]) -> str:
    head = json.dumps({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid})[:-1]
    return f'{head}, "ts": {_us(start)}, "dur": {_us(end - start)}, "args": {json.dumps(args)}}}'


def kineto_events(work: list[Work]) -> list[str]:
    """Return the events of a plan as the PyTorch profiler writes them."""
    found = []
    for one in work:
        number = one.correlation
        shapes = {
            "External id": number,
            "Input Dims": [[64, 32], [32, 16], []],
            "Input type": ["float", "float", ""],
            "Sequence number": number,
        }
        found.append(_kineto_event("cpu_op", "aten::mm", 11, -7, one.call_start_ns - 500, one.call_end_ns + 50, shapes))
        call = {"kernel": "cudaLaunchKernel", "memcpy": "cudaMemcpyAsync", "memset": "cudaMemsetAsync"}[one.kind]
        found.append(
            _kineto_event(
                "cuda_runtime",
                call,
                11,
                -7,
                one.call_start_ns,
                one.call_end_ns,
                {"External id": number, "cbid": 211, "correlation": number},
            )
        )
        args: dict[str, Any] = {
            "External id": number,
            "device": 0,
            "context": 1,
            "stream": one.stream,
            "correlation": number,
        }
        if one.kind == "kernel":
            args |= {
                "registers per thread": 40,
                "shared memory": 0,
                "grid": list(one.grid),
                "block": list(one.block),
                "blocks per SM": 0.592593,
            }
        else:
            args |= {"bytes": one.bytes, "memory bandwidth (GB/s)": 1.28}
        category = one.kind if one.kind == "kernel" else f"gpu_{one.kind}"
        found.append(_kineto_event(category, one.name, 0, one.stream, one.start_ns, one.end_ns, args))
        found.append(
            json.dumps({"ph": "s", "id": number, "pid": 11, "tid": -7, "ts": 1.5, "cat": "ac2g", "name": "ac2g"})
        )
    return found


def kineto(path: Path, work: list[Work]) -> None:
    """Write a file of the PyTorch profiler."""
    head = {
        "schemaVersion": 1,
        "deviceProperties": [
            {
                "id": 0,
                "name": "NVIDIA H100",
                "numSms": 132,
                "totalGlobalMem": 84942979072,
                "computeMajor": 9,
                "computeMinor": 0,
            }
        ],
        "record_shapes": 1,
        "baseTimeNanoseconds": 1711964646000000000,
    }
    text = (
        json.dumps(head)[:-1]
        + ', "traceEvents": [\n'
        + ",\n".join(kineto_events(work))
        + '\n], "traceName": "t.json"}\n'
    )
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode())


def chrome_json(path: Path, work: list[Work]) -> None:
    """Write events of another tool: no marks of PyTorch, ranges of its own."""
    found = [
        {
            "ph": "X",
            "cat": "stage",
            "name": one.name,
            "pid": 1,
            "tid": one.stream,
            "ts": one.start_ns / 1000,
            "dur": 1.5,
            "args": {"n": one.bytes},
        }
        for one in work
    ]
    path.write_text(
        json.dumps(
            [
                *found,
                {"ph": "C", "name": "queue", "pid": 1, "ts": 3, "args": {"depth": 3}},
                {"ph": "i", "name": "mark", "pid": 1, "tid": 1, "ts": 9},
            ]
        )
    )


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


def onnxruntime_profile(path: Path, work: list[Work]) -> None:
    """Write a profile: times in whole microseconds, numbers as texts."""
    events: list[dict[str, Any]] = [
        {"cat": "Session", "pid": 1, "tid": 1, "dur": 10**6, "ts": 2, "ph": "X", "name": "model_run", "args": {}}
    ]
    events += [
        {
            "cat": "Node",
            "pid": 1,
            "tid": 1,
            "dur": (one.end_ns - one.start_ns) // 1000,
            "ts": 5 + place * 100,
            "ph": "X",
            "name": f"/n{place}/Conv_kernel_time",
            "args": {"op_name": "Conv", "provider": "CPUExecutionProvider", "node_index": str(place)},
        }
        for place, one in enumerate(work)
    ]
    path.write_text("[\n" + ",\n".join(json.dumps(one) for one in events) + "\n]\n")


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


def mlperf_log(path: Path, work: list[Work]) -> None:
    """Write a log of training."""

    def line(key: str, kind: str, time_ms: int, value: Any = None, metadata: Any = None) -> str:
        return "0: :::MLLOG " + json.dumps(
            {
                "namespace": "",
                "time_ms": time_ms,
                "event_type": kind,
                "key": key,
                "value": value,
                "metadata": metadata or {},
            }
        )

    lines = [
        "noise",
        line("submission_benchmark", "POINT_IN_TIME", 1000, "bert"),
        line("init_start", "INTERVAL_START", 1000),
        line("init_stop", "INTERVAL_END", 2500),
        line("run_start", "INTERVAL_START", 2600),
    ]
    lines += [line("eval_accuracy", "POINT_IN_TIME", 2600 + one.correlation, 0.5) for one in work]
    lines.append(line("run_stop", "INTERVAL_END", 9600, None, {"status": "success"}))
    path.write_text("\n".join(lines) + "\n")


def power_log(path: Path, work: list[Work]) -> None:
    """Write the log of a power analyser."""
    path.write_text(
        "".join(
            f"Time,02-23-2022 06:12:{place % 60:02d}.{one.correlation % 1000:03d},Watts,{3 + place / 10:.6f},Volts,121.39,Amps,0.08,PF,0.37,Mark,a\n"
            for place, one in enumerate(work[:50])
        )
    )


WRITERS: Mapping[str, tuple[str, Callable[[Path, list[Work]], None]]] = {
    "kineto": (".json", kineto),
    "nsys_sqlite": (".sqlite", nsys_sqlite),
    "ncu_csv": (".csv", ncu_csv),
    "rocprofv3_csv": (".csv", rocprofv3_csv),
    "rocprofv3_json": (".json", rocprofv3_json),
    "rocpd_sqlite": (".db", rocpd_sqlite),
    "onnxruntime_profile": (".json", onnxruntime_profile),
    "trtexec_json": (".json", trtexec_json),
    "mlperf_log": (".txt", mlperf_log),
    "power_log": (".txt", power_log),
    "chrome_json": (".json", chrome_json),
}
"""Suffix and writer of each format."""
