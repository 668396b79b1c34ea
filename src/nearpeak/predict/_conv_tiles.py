"""Products of matrices in tiles, waves and split sums, as kernels of convolutions run them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak.core.target import Target

Costs = tuple[Any, Any, Any, Any, Any]
"""Seconds of products at full rate, of what the reached share adds, of padding, waves and starts, of split sums, of
rewriting images and filters for another algorithm.
"""


def applicable(applies: Any, extents: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
    """Return the extents where an algorithm applies, the quickest to search elsewhere."""
    m, n, k, batch = (np.where(applies, column, 1.0) for column in extents)
    return (m, n, k, batch)


def tiled(
    target: Target, extents: tuple[Any, Any, Any, Any], rate: float, ratio: Any, split_s: float,
    scalar: Mapping[str, float],
) -> Costs:  # fmt: skip
    """Return the costs of `batch` products [m,k] x [k,n] by the tile and split that take least time.

    Args:
        extents: m, n, k, batch as columns.
        rate: FLOP/s of the unit that forms the products.
        ratio: reached share of it, as a column.
        split_s: what adding up the parts of a split sum takes beside its bytes.
    """
    from nearpeak.predict._conv_kernel import fill

    m, n, k, batch = (np.ascontiguousarray(column) for column in extents)
    total, split = np.empty(len(m)), np.empty(len(m))
    device = np.array([rate / target.sm_count, target.sm_count, target.dram.bandwidth_bytes_per_s or 1.0])
    names = ("tail_ratio", "depth_elements", "edge_elements", "tile_start_s")
    fitted = np.array([*(scalar[name] for name in names), split_s])
    fill(m, n, k, batch, np.ascontiguousarray(ratio), device, fitted, total, split)
    products = 2 * m * n * k * batch / rate
    ceiling = products * (1 / ratio - 1)
    return (products, ceiling, total - split - products - ceiling, split, np.zeros_like(products))
