"""Planted programs as files of PyTorch's profiler, with some kinds of evidence left out."""

# ruff: noqa: E501  # names of kernels are as long as they are

import json
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from benchmarks._planted_queues import SMS, Op, Program, Ran, run


def kineto(program: Program, without: tuple[str, ...] = ()) -> dict:
    """Return the trace as PyTorch's profiler writes it, with some kinds of evidence left out."""
    ran, begins, end = run(program)
    events = list(_events(program, ran, without))
    edges = [*begins, max(end, ran[-1].done)]
    for number, (begin, stop) in enumerate(pairwise(edges)):
        events.append(
            _event("user_annotation", f"ProfilerStep#{number + 3}", begin, min(stop, ran_end(ran, number)), tid=1)
        )
    program.rng.shuffle(events)
    properties = {
        "id": 0,
        "name": program.device,
        "numSms": SMS,
        "totalGlobalMem": 85_000_000_000,
        "computeMajor": 9,
        "computeMinor": 0,
    }
    whole = {"schemaVersion": 1, "deviceProperties": [properties], "displayTimeUnit": "ms", "baseTimeNanoseconds": 0,
             "record_shapes": 1, "traceEvents": events}  # fmt: skip
    if program.ranks:
        whole["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": program.ranks}
    return whole


def ran_end(ran: list[Ran], number: int) -> int:
    return max(one.done for one in ran if one.op.step == number)


def _event(cat: str, name: str, begin: int, end: int, tid: int = 1, pid: int = 4242, **args) -> dict:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": begin / 1000,
        "dur": (end - begin) / 1000,
        "args": args,
    }


def _events(program: Program, ran: list[Ran], without: tuple[str, ...]) -> Iterator[dict]:
    regions: dict[tuple[int, str], list[int]] = {}
    launch = 0
    for number, one in enumerate(ran):
        op = one.op
        launch = launch if op.node else number
        corr = launch + 100
        for name in filter(None, (op.region, op.phase if "phase" not in without else "")):
            regions.setdefault((op.step, name), []).extend((one.begin, one.done))
        if op.annotation and op.annotation != "op" and "ranges" not in without:
            yield _event("user_annotation", op.annotation, one.begin, one.call)
        if op.name and not op.node:
            yield _operator(op, op.name, one.begin, one.done + 300 if op.api else one.done, number, without)
            if op.inner:
                yield _operator(
                    op,
                    op.inner,
                    one.call - 200 if op.python_ns > 400 else one.call,
                    one.done + 100,
                    number,
                    ("shapes",),
                )
        if op.api and "calls" not in without:
            args = {} if "correlations" in without else {"correlation": corr}
            yield _event("cuda_runtime", op.api, one.call, one.done, **args)
        if op.device_ns:
            yield _work(one, corr, without)
        if op.api == "cudaStreamWaitEvent" and "calls" not in without:
            yield _event("cuda_sync", "Stream Wait Event", one.call, one.call, pid=0, tid=op.stream, device=0, stream=op.stream,
                         correlation=corr, wait_on_stream=int(op.inner or 0))  # fmt: skip
    if "ranges" not in without:
        for (_, name), times in regions.items():
            yield _event("user_annotation", name, min(times), max(times))
    if "clocks" not in without:
        yield from _clocks(program, ran)


def _operator(op: Op, name: str, begin: int, end: int, number: int, without: tuple[str, ...]) -> dict:
    args: dict = {"External id": number}
    if "shapes" not in without and op.kinds:
        args |= {"Input Dims": [list(shape) for shape in op.shapes], "Input type": list(op.kinds)}
        args |= {"Concrete Inputs": list(op.concrete or ("",) * len(op.kinds))}
    return _event("cpu_op", name, begin, end, **args)


def _work(one: Ran, corr: int, without: tuple[str, ...]) -> dict:
    op, name = one.op, one.op.kernel
    args: dict = {"device": 0, "stream": op.stream, "correlation": corr}
    if "names" in without and not name.startswith("Mem"):
        name = "kernel"
    if "memory" in without:
        name = name.split(" (")[0]
    if name.startswith("Memcpy"):
        args |= {} if "bytes" in without else {"bytes": op.size}
        return _event("gpu_memcpy", name, one.start, one.end, pid=0, tid=op.stream, **args)
    if name.startswith("Memset"):
        args |= {} if "bytes" in without else {"bytes": op.size}
        return _event("gpu_memset", name, one.start, one.end, pid=0, tid=op.stream, **args)
    args |= {} if "grids" in without else {"grid": [op.grid, 1, 1], "block": [256, 1, 1]}
    return _event("kernel", name, one.start, one.end, pid=0, tid=op.stream, **args)


def _clocks(program: Program, ran: list[Ran]) -> Iterator[dict]:
    levels = program.clocks or [(0, 1980.0, 600.0)]
    noise = random.Random(5)
    steps = sorted({one.op.step for one in ran})
    for step in steps:
        works = [one for one in ran if one.op.step == step and one.op.device_ns]
        begin, end = min(one.start for one in works), max(one.end for one in works)
        _, clock, power = next(level for level in reversed(levels) if level[0] <= step)
        for part in range(8):
            at = begin + (end - begin) * part // 8
            args = {
                "SM clock (MHz)": round(clock * noise.uniform(0.997, 1.0), 1),
                "power (W)": round(power * noise.uniform(0.98, 1.0), 1),
            }
            yield {"ph": "C", "name": "GPU 0", "pid": 0, "tid": 0, "ts": at / 1000, "args": args}


def write(program: Program, path: Path, without: tuple[str, ...] = ()) -> Path:
    """Write the trace to a file and return its path."""
    path.write_text(json.dumps(kineto(program, without)), encoding="utf-8")
    return path
