"""ONNX Runtime sessions of whole models: random inputs, and the shortest of repeated runs."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_KINDS: Mapping[str, Any] = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16,
    "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(int8)": np.int8, "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}  # fmt: skip
"""NumPy types by ONNX Runtime's names of input formats."""
_LARGEST_INDEX = 2
"""Whole numbers are drawn below it: indices into any table."""


def random_feeds(session: Any, seed: int = 0) -> dict[str, Any] | None:
    """Return random inputs of a session, open extents as 1; none where a format has no NumPy type."""
    draw, feeds = np.random.default_rng(seed), {}
    for tensor in session.get_inputs():
        kind = _KINDS.get(tensor.type)
        if kind is None:
            return None
        shape = [extent if isinstance(extent, int) else 1 for extent in tensor.shape]
        is_real = np.issubdtype(kind, np.floating)
        values = draw.standard_normal(shape) if is_real else draw.integers(0, _LARGEST_INDEX, shape)
        feeds[tensor.name] = np.asarray(values).astype(kind)
    return feeds


def shortest_s(call: Callable[[], object], budget_s: float) -> float:
    """Return the shortest of the calls that fit into `budget_s`, of at least three."""
    times, stop = list[float](), time.perf_counter() + budget_s
    while len(times) < 3 or time.perf_counter() < stop:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
