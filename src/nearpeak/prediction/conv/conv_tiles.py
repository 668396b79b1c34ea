"""Times of matrix products in tiles, waves and split sums, as convolution kernels run them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from nearpeak.core.work.target import Target


class Costs(NamedTuple):
    """Seconds of one pass by what they go to, as columns."""

    products: Any
    """Products at full rate."""
    products_ceiling: Any
    """What the reached share of the rate adds."""
    tile_padding: Any
    """Products that tiles form beyond the borders of the matrices, and steps beyond the end of the sum."""
    tile_edges: Any
    """What tiles load at their edges, and the depth by which a sum takes longer to begin and to end."""
    wave_tail: Any
    """Multiprocessors without a tile in the last wave."""
    tile_start: Any
    """Starts of tiles."""
    split_k: Any
    """Adding up split sums."""
    transforms: Any
    """Rewriting images and filters for another algorithm."""

    @property
    def compute_s(self) -> Any:
        """Return the time of the products, without transforms."""
        return sum(self[: self._fields.index("split_k")])


_BEYOND_COUNT = 5
"""Parts that the search over tiles writes."""


def applicable(applies: Any, extents: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
    """Return the extents where an algorithm applies, the quickest to search elsewhere."""
    m, n, k, batch = (np.where(applies, column, 1.0) for column in extents)
    return (m, n, k, batch)


def tiled(
    target: Target, extents: tuple[Any, Any, Any, Any], rate: float, ratio: Any, split_s: float,
    fitted: Mapping[str, float],
) -> Costs:  # fmt: skip
    """Return the costs of `batch` products [m,k] x [k,n] by the tile and split that take least time.

    Args:
        extents: m, n, k, batch as columns.
        rate: FLOP/s of the unit that forms the products.
        ratio: reached share of it, as a column.
        split_s: time of reducing the parts of a split sum, besides its bytes.
    """
    from nearpeak.prediction.conv.conv_kernel import fill

    m, n, k, batch = (np.ascontiguousarray(column) for column in extents)
    parts = np.empty((len(m), _BEYOND_COUNT))
    device = np.array([rate / target.sm_count, target.sm_count, target.dram.bandwidth_bytes_per_s or 1.0])
    names = ("tail_ratio", "depth_elements", "edge_elements", "tile_start_s")
    searched = np.array([*(fitted[name] for name in names), split_s])
    fill(m, n, k, batch, np.ascontiguousarray(ratio), device, searched, parts)
    products = 2 * m * n * k * batch / rate
    padding, edges, tail, start, split_k = parts.T
    ceiling = products * (1 / ratio - 1)
    return Costs(products, ceiling, padding, edges, tail, start, split_k, np.zeros_like(products))
