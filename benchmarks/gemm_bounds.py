"""How many GEMM bounds a second one core computes through the public call, and whether they equal the scalar ones."""

import time
from collections.abc import Iterator

import numpy as np

import nearpeak
from benchmarks._figures import Figure

FIGURES = ("gemm_bounds_rate", "gemm_bounds_unequal_rows")
ROWS = 2_000_000
SCALAR_ROWS = 20_000
SEED = 20261120


def columns(rows: int, seed: int) -> dict[str, object]:
    """Return random GEMM cases as columns, extents log-uniform from 1 to 160,000."""
    draw = np.random.default_rng(seed)
    extents = {axis: np.exp(draw.uniform(0, 12, rows)).astype(np.int64) for axis in "mnk"}
    dtypes = np.array(["bf16", "fp32", "fp8_e4m3"])[draw.integers(0, 3, rows)]
    return {"op": "gemm", "dtype": dtypes, **extents}


def measure() -> Iterator[Figure]:
    """Yield the rate in CPU time of one core, and the rows of a sample that differ from the scalar path."""
    given = columns(ROWS, SEED)
    best_s = min(_seconds(given) for _ in range(3))
    rate = ROWS / best_s
    yield Figure(
        name="gemm_bounds_rate", value=rate, unit="bounds/s", bar=">= 5,000,000", passed=rate >= 5e6, seed=SEED
    )
    unequal = _unequal(columns(SCALAR_ROWS, SEED + 1))
    yield Figure(
        name="gemm_bounds_unequal_rows",
        value=unequal,
        unit="rows",
        bar="0 of 20,000",
        passed=unequal == 0,
        seed=SEED + 1,
    )


def _seconds(given: dict[str, object]) -> float:
    """Return the CPU seconds of columns in, bounds with terms and limiter out."""
    start = time.process_time()
    table = nearpeak.bound(given, "h100_sxm")
    assert len(table.limiter) == ROWS
    assert set(table.terms_s) == {"dram", "matrix", "capacity"}
    return time.process_time() - start


def _unequal(given: dict[str, object]) -> int:
    cases = nearpeak.case_table(given)
    table = nearpeak.bound(cases, "h100_sxm")
    limiters = table.limiter
    found = 0
    for row, case in enumerate(cases.cases()):
        one = nearpeak.bound(case, "h100_sxm")
        terms = all(one.terms_s.get(name, 0.0) == column[row] for name, column in table.terms_s.items())
        found += not (one.time_s == table.bound_s[row] and one.limiter == limiters[row] and terms)
    return found
