"""Triton kernels with their parameters in reach: softmax, layer normalisation and matrix product."""

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

Tensors = Mapping[str, torch.Tensor]


@triton.jit
def _softmax(x, y, rows, columns, BLOCK: tl.constexpr, ROWS: tl.constexpr):  # noqa: ANN001, ANN202, N803
    for offset in range(ROWS):
        row = tl.program_id(0) * ROWS + offset
        at = tl.arange(0, BLOCK)
        inside = (at < columns) & (row < rows)
        values = tl.load(x + row * columns + at, mask=inside, other=-float("inf")).to(tl.float32)
        grown = tl.exp(values - tl.max(values, axis=0))
        tl.store(y + row * columns + at, grown / tl.sum(grown, axis=0), mask=inside)


def softmax(tensors: Tensors, *, rows_per_block: int = 1, num_warps: int = 4, num_stages: int = 2, **_: Any) -> Tensors:
    """Return the softmax of each row, whole rows in registers."""
    x = tensors["x"]
    rows, columns = x.shape
    y = torch.empty_like(x)
    _softmax[(triton.cdiv(rows, rows_per_block),)](
        x, y, rows, columns, BLOCK=triton.next_power_of_2(columns), ROWS=rows_per_block, num_warps=num_warps,
        num_stages=num_stages,
    )  # fmt: skip
    return {"y": y}


@triton.jit
def _layer_norm(x, w, b, y, columns, eps, WEIGHT: tl.constexpr, BIAS: tl.constexpr, BLOCK: tl.constexpr):  # noqa: ANN001, ANN202, N803
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / columns
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        gap = tl.where(at < columns, values - mean, 0.0)
        total += gap * gap
    scale = 1 / tl.sqrt(tl.sum(total, axis=0) / columns + eps)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        result = (values - mean) * scale
        if WEIGHT:
            result = result * tl.load(w + at, mask=at < columns, other=0.0).to(tl.float32)
        if BIAS:
            result = result + tl.load(b + at, mask=at < columns, other=0.0).to(tl.float32)
        tl.store(y + row * columns + at, result, mask=at < columns)


def layer_norm(
    tensors: Tensors, *, block: int = 1024, num_warps: int = 4, num_stages: int = 2, eps: float = 1e-5, **_: Any
) -> Tensors:
    """Return each row centred, scaled, and with weight and bias where there are any."""
    x = tensors["input"]
    rows, columns = x.shape
    y, weight, bias = torch.empty_like(x), tensors.get("weight"), tensors.get("bias")
    _layer_norm[(rows,)](
        x, x if weight is None else weight, x if bias is None else bias, y, columns, eps, WEIGHT=weight is not None,
        BIAS=bias is not None, BLOCK=block, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return {"output": y}


@triton.jit
def _product(a, b, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, G: tl.constexpr):  # noqa: ANN001, ANN202, N803
    # Blocks in groups of G rows, so that blocks that run together share columns of b in the cache.
    across = tl.cdiv(N, BN)
    group = tl.program_id(0) // (G * across)
    first = group * G
    height = min(tl.cdiv(M, BM) - first, G)
    row = (first + tl.program_id(0) % (G * across) % height) * BM + tl.arange(0, BM)
    column = tl.program_id(0) % (G * across) // height * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(a + row[:, None] * K + inner[None, :], (row[:, None] < M) & (inner[None, :] < K), 0.0)
        right = tl.load(b + inner[:, None] * N + column[None, :], (inner[:, None] < K) & (column[None, :] < N), 0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
    inside = (row[:, None] < M) & (column[None, :] < N)
    tl.store(y + row[:, None] * N + column[None, :], total, inside)


def product(
    tensors: Tensors, *, block_m: int = 64, block_n: int = 64, block_k: int = 32, group: int = 8, num_warps: int = 4,
    num_stages: int = 3, **_: Any,
) -> Tensors:  # fmt: skip
    """Return y = a b of the operator gemm without a batch."""
    a, b = tensors["a"][0].contiguous(), tensors["b"][0].contiguous()
    (m, k), n = a.shape, b.shape[1]
    y = torch.empty((1, m, n), device=a.device, dtype=a.dtype)
    _product[(triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)](
        a, b, y, m, n, k, BM=block_m, BN=block_n, BK=block_k, G=group, num_warps=num_warps, num_stages=num_stages
    )
    return {"y": y}
