"""Several ranks that compute, meet in collectives and wait there for the last: one of them late, or none."""

import json
import random
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks._planted_queues import SMS

_KERNEL = "nvjet_tst_128x256_64x4_2x1_v_bz_TNT"
_TALK = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_CALL_NS, _LATENCY_NS, _AHEAD_NS = 4_000, 6_000, 60_000


@dataclass(frozen=True)
class Job:
    """What each rank computes before each collective, what the collectives take, and how clocks are off."""

    compute_ns: tuple[tuple[tuple[int, ...], ...], ...]  # by step, by segment, by rank
    transfer_ns: tuple[tuple[int, ...], ...]  # by step, by segment
    clock_ns: tuple[int, ...]  # by rank
    late: int | None
    delay_ns: int  # of the late rank in each segment


def job(seed: int, *, late: bool) -> Job:
    """Return a job; where one rank is late, it takes longer before each collective."""
    rng = random.Random(seed)
    ranks, segments, steps = rng.randint(2, 6), rng.randint(4, 10), rng.randint(5, 8)
    usual = rng.uniform(0.4, 2.0) * 1e6
    compute = tuple(
        tuple(tuple(int(usual * rng.lognormvariate(0, 0.02)) for _ in range(ranks)) for _ in range(segments))
        for _ in range(steps)
    )  # fmt: skip
    transfer = tuple(tuple(int(usual * rng.uniform(0.05, 0.15)) for _ in range(segments)) for _ in range(steps))
    clocks = tuple(int(rng.uniform(-5e6, 5e6)) for _ in range(ranks))
    delay = int(usual * rng.uniform(0.2, 0.7)) if late else 0
    return Job(compute, transfer, clocks, rng.randrange(ranks) if late else None, delay)


def cured(planted: Job) -> Job:
    """Return the job without the late rank."""
    return replace(planted, delay_ns=0)


def _run(planted: Job) -> list[list[list[tuple[int, int, int, int]]]]:
    """Return by rank, step and segment: begin and end of computing, arrival and end of the collective."""
    ranks = len(planted.clock_ns)
    ready, found = [10_000_000] * ranks, [[] for _ in range(ranks)]
    for segments, talks in zip(planted.compute_ns, planted.transfer_ns, strict=True):
        rows = [[] for _ in range(ranks)]
        for times, talk in zip(segments, talks, strict=True):
            work = [time + (planted.delay_ns if rank == planted.late else 0) for rank, time in enumerate(times)]
            arrived = [ready[rank] + work[rank] + 1_000 for rank in range(ranks)]
            end = max(arrived) + talk
            for rank in range(ranks):
                rows[rank].append((ready[rank], ready[rank] + work[rank], arrived[rank], end))
                ready[rank] = end + 1_000
        for rank in range(ranks):
            found[rank].append(rows[rank])
    return found


def step_ns(planted: Job) -> float:
    """Return the mean length of a step."""
    rows = _run(planted)[0]
    return (rows[-1][-1][3] - rows[0][0][0]) / len(rows)


def write(planted: Job, folder: Path) -> list[Path]:
    """Write the trace of each rank by its own clock, and return the files in order."""
    files = []
    for rank, steps in enumerate(_run(planted)):
        events, clock = [], planted.clock_ns[rank]
        for number, segments in enumerate(steps):
            begin, stop = segments[0][0] - _AHEAD_NS, segments[-1][3] - _AHEAD_NS
            events.append(_event("user_annotation", f"ProfilerStep#{number + 1}", begin, stop, clock, tid=1))
            for place, (start, end, arrived, done) in enumerate(segments):
                base = 100 + 20 * number * len(segments) + 2 * place
                events += _work(_KERNEL, start, end, clock, base, {})
                talk = {"Collective name": "allreduce", "Process Group Name": "0", "Group size": len(planted.clock_ns)}
                events += _work(_TALK, arrived, done, clock, base + 1, talk)
        file = folder / f"rank{rank}.json"
        whole = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": SMS}],
                 "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": len(planted.clock_ns)},
                 "baseTimeNanoseconds": 0, "traceEvents": events}  # fmt: skip
        file.write_text(json.dumps(whole), encoding="utf-8")
        files.append(file)
    return files


def _work(name: str, start: int, end: int, clock: int, correlation: int, more: dict) -> list[dict]:
    call = start - _AHEAD_NS + (correlation % 2) * _CALL_NS
    return [
        _event("cuda_runtime", "cudaLaunchKernel", call, call + _CALL_NS, clock, tid=1, correlation=correlation),
        _event("kernel", name, start, end, clock, tid=7, device=0, stream=7, correlation=correlation, grid=[24, 1, 1],
               block=[256, 1, 1], **more),
    ]  # fmt: skip


def _event(kind: str, name: str, begin: int, end: int, clock: int, *, tid: int, **args) -> dict:
    times = {"ts": (begin + clock) / 1000, "dur": (end - begin) / 1000}
    return {"ph": "X", "cat": kind, "name": name, "pid": 4242, "tid": tid, **times, "args": args}
