"""Emulated formats: how much faster than a loop in Python sums are formed, and the published error of narrow sums."""

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks._figures import Figure
from nearpeak.ops.shared.number_formats import FORMATS
from nearpeak.simulation.emulation.accumulator import HOPPER_FP8, Accumulator, multiply

FIGURES = ("emulated_sums_speedup", "emulated_fp8_error_percent")
SEED = 7
SIZE, DEPTH = 256, 4096
"""Rows and columns of the product whose error is measured, and its depth."""


def measure() -> Iterator[Figure]:
    """Time both on the same product, then show the error over plausible settings."""
    ratio = _speedup()
    yield Figure(
        name="emulated_sums_speedup",
        value=ratio,
        unit="times a Python loop",
        bar=">= 50",
        passed=ratio >= 50,
        seed=SEED,
    )
    _table()
    value = 100 * _errors("normal", HOPPER_FP8)["largest / rms"]
    yield Figure(
        name="emulated_fp8_error_percent", value=value, unit="% of the typical element",
        bar="1 to 2 (published: nearly 2)", passed=1 <= value <= 2, seed=SEED,
    )  # fmt: skip


def _speedup() -> float:
    a, b = _drawn("normal", 16)
    multiply(a, b, HOPPER_FP8)  # compiles
    start = time.process_time()
    slow = looped(a[:4], b[:, :4], HOPPER_FP8)
    each_slow = (time.process_time() - start) / 16
    start = time.process_time()
    for _ in range(20):
        fast = multiply(a, b, HOPPER_FP8)
    each_fast = (time.process_time() - start) / (20 * 256)
    if not np.array_equal(fast[:4, :4], slow):
        raise AssertionError("loop and compiled sums differ")
    return each_slow / each_fast


def looped(a: Any, b: Any, kept: Accumulator) -> Any:
    """Return the same product by a loop over Python's floats: sums aligned to the largest term and cut off."""
    out = np.empty((len(a), b.shape[1]))
    for i, row in enumerate(a.tolist()):
        for j, column in enumerate(b.T.tolist()):
            total = 0.0
            for start in range(0, len(row), kept.group_count):
                terms = [x * y for x, y in zip(row[start : start + kept.group_count], column[start:], strict=False)]
                largest = max(abs(total), *(abs(term) for term in terms))
                if not largest:
                    continue
                step = 2.0 ** (math.frexp(largest)[1] - kept.significant_bits_count)
                total = sum(math.trunc(term / step) for term in (total, *terms)) * step
                if total:
                    step = 2.0 ** (math.frexp(total)[1] - kept.significant_bits_count)
                    total = math.trunc(total / step) * step
            out[i, j] = total
    return out


def _drawn(kind: str, size: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(SEED)
    draw = {
        "normal": rng.standard_normal, "uniform 0 to 1": rng.random,
        "uniform -1 to 1": lambda shape: rng.uniform(-1, 1, shape),
    }[kind]  # fmt: skip
    form = FORMATS["fp8_e4m3"]
    return form.rounded(draw((size, DEPTH))), form.rounded(draw((DEPTH, size)))


def _errors(kind: str, kept: Accumulator, size: int = SIZE) -> dict[str, float]:
    """Return the error of a product of random matrices by several measures."""
    a, b = _drawn(kind, size)
    exact = a @ b
    error = np.abs(multiply(a, b, kept) - exact)
    return {
        "largest / own element": float((error / np.abs(exact)).max()),
        "largest / rms": float(error.max() / np.sqrt((exact**2).mean())),
        "largest / mean": float(error.max() / np.abs(exact).mean()),
        "largest / largest": float(error.max() / np.abs(exact).max()),
        "Frobenius": float(np.linalg.norm(error) / np.linalg.norm(exact)),
    }


def _table() -> None:
    """Print errors in percent over matrices, bits and rounding, with the setting of hardware among them."""
    for kind in ("normal", "uniform -1 to 1", "uniform 0 to 1"):
        for bits in (13, 14, 15):
            for rounding in ("toward_zero", "nearest_even"):
                kept = Accumulator(significant_bits_count=bits, group_count=32, rounding=rounding)
                found = _errors(kind, kept, 128)
                shown = ", ".join(f"{name} {100 * value:.2f}" for name, value in found.items())
                print(f"  {kind}, {bits} bits, {rounding}: {shown}", flush=True)
