"""The tile and split of a product that end first, with the resource times that a simulation takes over."""

from typing import Any, NamedTuple

import numpy as np

from nearpeak.base.compilation import compiled, room
from nearpeak.prediction.gemm.gemm_kernel import (
    _B,
    _BLOCK,
    _K,
    _M,
    _N,
    _PARTS,
    _PLAIN_CASES,
    _SIZE,
    SPLITS,
    _describe,
    _kinds,
    _rates,
    _search,
)


class BestTile(NamedTuple):
    """Resource times of one product with its fastest tile and split, in seconds of all tiles."""

    least_s: float
    """All of it, launch aside."""
    tensor_s: float
    """Products, with what starting tiles costs."""
    cache_s: float
    memory_s: float
    chain_s: float
    """Latency of the steps along k."""
    body_s: float
    """The four together, as they overlap."""
    store_s: float
    """Stores that nothing hides."""
    reduce_s: float
    """Adding up the parts of split sums."""
    busy: float
    """Share of the multiprocessors that have a tile."""
    waves: float
    """Tiles that one multiprocessor works through."""
    tile_m: float
    tile_n: float
    split: float
    depth: float
    load: float
    """Tiles over multiprocessors."""
    read_s: float
    write_s: float


def best_tile(m: float, n: float, k: float, batch: float, hw: Any, p: Any, tiles: tuple[Any, Any]) -> BestTile:
    """Return the tile and split that end first, among those that libraries have kernels for.

    Args:
        hw: figures of the device, see `_product_formats.device_figures`.
        p: coefficients of the model, in its order.
        tiles: extents of tiles along m and along n.
    """
    results = np.zeros(len(BestTile._fields))
    _best(float(m), float(n), float(k), float(batch), hw, p, *tiles, SPLITS, results)
    return BestTile(*results.tolist())


@compiled(_PLAIN_CASES)
def _best(
    m: float, n: float, k: float, b: float, hw: Any, p: Any, tile_m: Any, tile_n: Any, splits: Any, results: Any
) -> None:
    """Write the figures of the fastest tile and split of one product."""
    w, some, rates = room(_SIZE), room(_PARTS), _rates(hw, p)
    w[_M], w[_N], w[_K], w[_B] = m, n, k, b
    kinds = _kinds(tile_m, tile_n, rates)
    _search(1, hw, p, rates, kinds, splits, w, some)
    _describe(1, hw, p, rates, kinds, w)
    for place in range(len(results)):
        results[place] = w[place * _BLOCK]
