"""Small trace files of profilers in Chrome's format: PyTorch, ONNX Runtime, anybody's."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks._trace_work import Work


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
