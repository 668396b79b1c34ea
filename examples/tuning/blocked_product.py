"""A matrix product in blocks, compiled by numba: extents of blocks and order of loops are its parameters."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, fastmath={"contract", "reassoc"})
def _block(a: Any, b: Any, y: Any, i: int, j: int, p: int, bm: int, bn: int, bk: int) -> None:
    for row in range(i, min(i + bm, a.shape[0])):
        for inner in range(p, min(p + bk, a.shape[1])):
            factor = a[row, inner]
            for column in range(j, min(j + bn, b.shape[1])):
                y[row, column] += factor * b[inner, column]


@njit(cache=True)
def _rows_first(a: Any, b: Any, y: Any, bm: int, bn: int, bk: int) -> None:
    for i in range(0, a.shape[0], bm):
        for p in range(0, a.shape[1], bk):
            for j in range(0, b.shape[1], bn):
                _block(a, b, y, i, j, p, bm, bn, bk)


@njit(cache=True)
def _columns_first(a: Any, b: Any, y: Any, bm: int, bn: int, bk: int) -> None:
    for j in range(0, b.shape[1], bn):
        for p in range(0, a.shape[1], bk):
            for i in range(0, a.shape[0], bm):
                _block(a, b, y, i, j, p, bm, bn, bk)


_LOOPS = {"rows": _rows_first, "columns": _columns_first}


def product(
    inputs: Mapping[str, Any], *, block_m: int = 32, block_n: int = 32, block_k: int = 32, order: str = "rows", **_: Any
) -> dict[str, Any]:
    """Return y = a b of the operator gemm, one batch after the other."""
    a, b = inputs["a"], inputs["b"]
    y = np.zeros((a.shape[0], a.shape[1], b.shape[2]), dtype=a.dtype)
    for batch in range(a.shape[0]):
        _LOOPS[order](a[batch], b[min(batch, b.shape[0] - 1)], y[batch], block_m, block_n, block_k)
    return {"y": y}


product.arrays = "numpy"  # type: ignore[attr-defined]  # nearpeak hands NumPy arrays, not tensors
