"""Small profiles of XLA, and tables of nsys, from one plan of events."""

import json
from collections.abc import Iterable
from pathlib import Path

from benchmarks._trace_work import Work

_COPY, _FILL = "MemcpyH2D", "Memset"


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _name_of(one: Work) -> str:
    return {"memcpy": _COPY, "memset": _FILL}.get(one.kind, one.name)


def _named(field: int, names: Iterable[str]) -> bytes:
    """Return a map of numbers to names."""
    return b"".join(
        _message(field, _number(1, key) + _message(2, _number(1, key) + _message(2, name.encode())))
        for key, name in enumerate(names, 1)
    )


def xplane_pb(path: Path, work: list[Work]) -> None:
    """Write a profile with a plane for the host and one for a GPU, a line for each stream."""
    names = list(dict.fromkeys(_name_of(one) for one in work))
    stats = ["correlation_id", "kernel_details", "memcpy_details"]
    begin = min(one.start_ns for one in work)
    lines = []
    for stream in sorted({one.stream for one in work}):
        events = b""
        for one in work:
            if one.stream == stream:
                detail = "grid:8,2,1 block:128,1,1" if one.kind == "kernel" else "kind_src:pinned size:4096 async:1"
                values = _message(4, _number(1, 1) + _number(3, one.correlation))
                values += _message(4, _number(1, 2 if one.kind == "kernel" else 3) + _message(5, detail.encode()))
                place = _number(2, (one.start_ns - begin) * 1000) + _number(3, (one.end_ns - one.start_ns) * 1000)
                events += _message(4, _number(1, names.index(_name_of(one)) + 1) + place + values)
        head = _number(1, stream) + _message(2, f"Stream #{stream}(Compute)".encode()) + _number(3, begin)
        lines.append(_message(3, head + events))
    ops = _message(3, _number(1, 99) + _message(2, b"XLA Modules") + _number(3, begin))
    gpu = _message(2, b"/device:GPU:0") + b"".join(lines) + ops + _named(4, names) + _named(5, stats)
    step = _number(1, 1) + _number(2, 0) + _number(3, 10**9) + _message(4, _number(1, 1) + _number(4, 3))
    thread = _message(3, _number(1, 7) + _message(2, b"python") + _number(3, begin) + _message(4, step))
    host = _message(2, b"/host:CPU") + thread + _named(4, ["train"]) + _named(5, ["step_num"])
    path.write_bytes(_message(1, host) + _message(1, gpu) + _message(4, b"host"))


def tensorboard_json(path: Path, work: list[Work]) -> None:
    """Write the same for TensorBoard."""
    events: list[dict[str, object]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
        {"ph": "M", "pid": 9, "name": "process_name", "args": {"name": "/host:CPU"}},
        {"ph": "X", "pid": 9, "tid": 7, "name": "train", "ts": 0.0, "dur": 1.0, "args": {"step_num": "3"}},
    ]
    for stream in sorted({one.stream for one in work}):
        events.append(
            {"ph": "M", "pid": 1, "tid": stream, "name": "thread_name", "args": {"name": f"Stream #{stream}"}}
        )
    for one in work:
        detail = (
            {"kernel_details": "grid:8,2,1 block:128,1,1"} if one.kind == "kernel" else {"memcpy_details": "size:4096"}
        )
        events.append({
            "ph": "X", "pid": 1, "tid": one.stream, "name": _name_of(one), "ts": one.start_ns / 1000,
            "dur": (one.end_ns - one.start_ns) / 1000, "args": detail | {"correlation_id": one.correlation},
        })  # fmt: skip
    path.write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": [*events, {}]}))


def nsys_csv(path: Path, work: list[Work]) -> None:
    """Write the table of nsys stats with the times of kernels and copies."""
    rows = [
        "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
        "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name"
    ]
    for one in work:
        begin = f"{one.start_ns},{one.end_ns - one.start_ns},{one.correlation}"
        place = f"NVIDIA H100 (0),1,,{one.stream}"
        if one.kind == "kernel":
            rows.append(f'{begin},8,2,1,128,1,1,32,0.000,0.000,,,,,{place},"{one.name}"')
        else:
            name = "[CUDA memcpy Host-to-Device]" if one.kind == "memcpy" else "[CUDA memset]"
            rows.append(f"{begin},,,,,,,,,,4.194,1000.0,Pageable,Device,{place},{name}")
    path.write_text("\n".join([*rows, ""]))
