"""Rows for the tests of gaps and rules."""

from nearpeak.core.answers.gap import TimedCase
from nearpeak.core.work.case import Case
from nearpeak.judgement.opportunities import gap_of


def product(m=4096, n=4096, k=4096, dtype="bf16", batch=1):
    axes = (("m", m), ("n", n), ("k", k), ("batch", batch))
    return Case(op="gemm", phase="forward", axes=axes, dtypes=(("dtype", dtype),))


def mover(op="copy", elements=1 << 20, dtype="bf16", to="bf16"):
    return Case(op=op, phase="forward", axes=(("elements", elements),), dtypes=(("dtype", dtype), ("out", to)))


def timed(case=None, **changes):
    case = case or product()
    row = {
        "case": case, "label": case.label(), "target": "h100_sxm", "runner": "torch", "call_count": 1,
        "measured_s": 200e-6, "bound_s": 128e-6, "limiter": "matrix", "sm_count": 132, "launch_floor_s": 2e-6,
        "matrix_flop": 1 if case.op == "gemm" else 0,
    }  # fmt: skip
    return TimedCase(**(row | changes))


def gap(case=None, **changes):
    return gap_of(timed(case, **changes))
