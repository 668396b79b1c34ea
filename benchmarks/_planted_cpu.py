"""Steps of a CPU that runs its operators itself, as PyTorch's profiler records them: operators and the time between.

The truth is known by construction: without its cause, the time between operators is what compiled code takes there.
"""

import json
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

COMPILED_NS = 300
"""Time from one operator to the next in compiled code: a call of a function and its arguments."""
_ALONE = ("aten::addmm", "aten::native_layer_norm", "aten::_softmax")
"""Operators that are no element-wise passes."""


@dataclass(frozen=True)
class Op:
    """One operator: what it computes, and what lies before it."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    busy_ns: int
    gap_ns: int
    outer: str = ""  # operator that calls it; a part of the gap lies within


@dataclass(frozen=True)
class CpuSteps:
    """Steps in order, each a list of operators; the first gap of a step is the caller's."""

    steps: tuple[tuple[Op, ...], ...]
    unprofiled_s: float | None = None


def framework_bound(seed: int) -> CpuSteps:
    """Return steps of small operators, a fifth to three fifths of which is time between them."""
    dice = random.Random(seed)
    busy_ns = dice.randint(4_000, 20_000)
    return _steps(dice, busy_ns, gap_ns=int(busy_ns * dice.uniform(0.25, 1.5)), count=dice.randint(40, 120))


def healthy(seed: int) -> CpuSteps:
    """Return steps of large operators, at most a fiftieth of which is time between them."""
    dice = random.Random(seed)
    busy_ns = dice.randint(300_000, 3_000_000)
    return _steps(dice, busy_ns, gap_ns=int(busy_ns * dice.uniform(0.002, 0.02)), count=dice.randint(15, 40))


def step_ns(program: CpuSteps) -> float:
    """Return how long a step takes."""
    return sum(op.busy_ns + op.gap_ns for step in program.steps for op in step) / len(program.steps)


def cured(program: CpuSteps) -> CpuSteps:
    """Return the steps as compiled code: what the caller does before each stays."""
    return replace(
        program,
        steps=tuple(
            (step[0], *(replace(op, gap_ns=min(op.gap_ns, COMPILED_NS)) for op in step[1:])) for step in program.steps
        ),
    )


def write(program: CpuSteps, path: Path, without: tuple[str, ...] = ()) -> Path:
    """Write the trace; without `kernels`, every second operator is inside compiled code and not recorded."""
    events: list[dict[str, Any]] = []
    now = 1_000_000
    for number, step in enumerate(program.steps):
        begun = now
        for place, op in enumerate(step):
            inner = now + op.gap_ns
            if "kernels" in without and place % 2:
                events.append(_event("cpu_op", "Torch-Compiled Region: 0/0", now, inner + op.busy_ns))
            else:
                if op.outer:
                    events.append(_event("cpu_op", op.outer, now + op.gap_ns // 2, inner + op.busy_ns, op.shapes))
                events.append(_event("cpu_op", op.name, inner, inner + op.busy_ns, op.shapes))
            now = inner + op.busy_ns
        events.append(_event("user_annotation", f"ProfilerStep#{number}", begun, now))
    record = {"schemaVersion": 1, "deviceProperties": [], "record_shapes": 1, "traceEvents": events}
    path.write_text(json.dumps(record), encoding="utf-8")
    return path


def _event(
    category: str, name: str, start_ns: int, end_ns: int, shapes: tuple[tuple[int, ...], ...] = ()
) -> dict[str, Any]:
    args = {"Input Dims": [list(one) for one in shapes], "Input type": ["float"] * len(shapes)} if shapes else {}
    times = {"ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000}
    return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": 7, **times, "args": args}


def _steps(dice: random.Random, busy_ns: int, gap_ns: int, count: int) -> CpuSteps:
    rows, inner = dice.choice((8, 32, 128)), dice.choice((64, 256, 1024))
    kinds = (
        ("aten::addmm", ((inner,), (rows, inner), (inner, inner)), "aten::linear"),
        ("aten::relu", ((rows, inner),), ""),
        ("aten::add", ((rows, inner), (rows, inner)), ""),
        ("aten::native_layer_norm", ((rows, inner), (), (inner,), (inner,)), "aten::layer_norm"),
        ("aten::_softmax", ((rows, inner),), "aten::softmax"),
    )
    chosen = [kinds[0]]
    while len(chosen) < count:  # neighbours that could be one kernel would be a cause of their own
        chosen.append(dice.choice([kind for kind in kinds if kind[0] in _ALONE or chosen[-1][0] in _ALONE]))
    lengths = [int(busy_ns * dice.lognormvariate(0, 0.5)) for _ in range(count)]
    return CpuSteps(
        tuple(
            tuple(
                Op(
                    name,
                    shapes,
                    int(length * dice.uniform(0.97, 1.06)),
                    int(gap_ns * dice.lognormvariate(0, 0.4)),
                    outer,
                )
                for (name, shapes, outer), length in zip(chosen, lengths, strict=True)
            )
            for _ in range(dice.randint(4, 8))
        )
    )
