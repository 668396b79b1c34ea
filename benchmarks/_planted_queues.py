"""A small host and a small device with two queues between them: programs of calls, and how they run.

The truth is known by construction: every call knows what it would be without the cause, and the same two queues are run
again with that. Nothing here is shared with the rules that look for causes.
"""

# names of kernels are as long as they are

import random
from dataclasses import dataclass, field, replace

FLOP_PER_S, FP32_FLOP_PER_S, TF32_FLOP_PER_S, BYTES_PER_S = 989e12, 67e12, 494e12, 3.35e12
"""H100 SXM, as its data sheet says."""
SMS = 132


@dataclass(frozen=True)
class Op:
    """One call of the host: operator, host time, call and device work; `cure` is what it would be without the cause."""

    name: str
    python_ns: int = 0
    api: str = ""
    api_ns: int = 0
    kernel: str = ""
    device_ns: int = 0
    stream: int = 7
    waits: str = ""  # own, device
    after: tuple[str, ...] = ()  # labels of works that must have ended
    label: str = ""
    gap_ns: int = 0
    delay_ns: int = 0  # from the last of what it needs to its start
    shapes: tuple = ()
    kinds: tuple = ()
    concrete: tuple = ()
    grid: int = 2048
    size: int = 0
    annotation: str = ""  # a range around the Python time before the call
    region: str = ""  # compiled region that it belongs to
    inner: str = ""  # operator below, whose call it is
    step: int = 0
    node: bool = False  # of the graph that the last call with work launched
    held: bool = False  # starts only when its call has returned
    phase: str = ""  # range of the host that it stands in
    cure: "Op | str | None" = "same"


@dataclass
class Program:
    """All steps, and what each trace has for itself."""

    ops: list[Op]
    latency_ns: int
    step_count: int
    rng: random.Random
    clocks: list[tuple[float, float, float]] = field(default_factory=list)  # (part of the trace, MHz, W)
    device: str = "NVIDIA H100 80GB HBM3"
    ranks: int = 0
    unprofiled_s: float | None = None  # what a step takes without the profiler


def cured(program: Program) -> Program:
    """Return the program without its cause."""
    ops = [op if op.cure == "same" else op.cure for op in program.ops]
    return replace(program, ops=[op for op in ops if op is not None])


@dataclass
class Ran:
    """One call as it ran."""

    op: Op
    begin: int
    call: int
    done: int
    start: int = 0
    end: int = 0


def run(program: Program) -> tuple[list[Ran], list[int], int]:
    """Return the calls as they ran, when each step began on the host, and the end of all work."""
    host, ready, ends, ran, begins = 1_000_000, {}, {}, [], []
    noise = random.Random(17)
    for op in program.ops:
        while len(begins) <= op.step:
            begins.append(host)
        begin = host
        call = begin + op.python_ns
        done = call + op.api_ns
        one = Ran(op, begin, call, done)
        if op.device_ns:
            issued = done if op.held else call
            earliest = issued + program.latency_ns + int(noise.random() * 400) if op.api_ns else 0
            needed = max(ready.get(op.stream, 0) + op.gap_ns, *(ends.get(name, 0) for name in op.after), 0)
            one.start = max(needed + op.delay_ns, earliest)
            one.end = ready[op.stream] = one.start + op.device_ns
            if op.label:
                ends[op.label] = one.end
        if op.waits == "own":
            one.done = max(done, one.end + 1_000)
        elif op.waits == "device":
            one.done = max(done, max(ready.values(), default=0) + 1_500)
        host = one.done
        ran.append(one)
    return ran, begins, max(host, max(ready.values(), default=0))


def step_ns(program: Program) -> float:
    """Return the mean time of the steady steps: the first one is warm-up."""
    _, begins, end = run(program)
    return (end - begins[1]) / (program.step_count - 1)
