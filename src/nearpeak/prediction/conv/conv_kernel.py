"""Compiled convolution model: search over tiles and split sums."""

import math
from typing import Any

from nearpeak.base.compilation import ceiling, compiled

_TILE_EXTENTS = ((256, 128), (128, 128), (128, 64), (64, 128), (256, 32), (64, 64), (64, 32), (32, 64), (32, 32))
_TILES = tuple((float(m), float(n)) for m, n in _TILE_EXTENTS)
_SPLITS = (1.0, 4.0, 16.0, 64.0)
_LEAST_DEPTH = 128.0
"""Depth that each part of a split sum has at least."""
_PLAIN_PRODUCTS = 5000
"""Products that plain Python searches in less time than compiling takes."""
_STEP = 16.0
"""Depth that one step of a tile takes."""


@compiled(_PLAIN_PRODUCTS)
def fill(
    m: Any, n: Any, k: Any, batch: Any, ratio: Any, device: Any, coefficients: Any, parts_s: Any
) -> None:  # fmt: skip
    """Write the overheads of each product with its fastest tile and split.

    Args:
        parts_s: rows by parts: products that tiles add at their borders and steps; tiles' loads and depths of their
            own; multiprocessors without a tile in the last wave; starts of tiles; adding up split sums.
        device: FLOP/s of one multiprocessor, multiprocessors, bytes per second of memory.
        coefficients: tail_ratio, depth_elements, edge_elements, tile_start_s, split_s.
    """
    rate, sm_count, bandwidth = device
    tail, deep, edge, start_s, sum_s = coefficients
    for row in range(len(m)):
        best, best_tile, best_splits, best_waves = math.inf, 0, 1.0, 1.0
        for splits in _SPLITS:
            if splits > 1 and k[row] / splits < _LEAST_DEPTH:
                break
            depth = ceiling(k[row] / splits / _STEP) * _STEP + deep
            extra = sum_s + (splits + 1) * m[row] * n[row] * batch[row] * 4 / bandwidth if splits > 1 else 0.0
            for tile in range(len(_TILES)):
                wide, high = _TILES[tile]
                waves = ceiling(m[row] / wide) * ceiling(n[row] / high) * batch[row] * splits / sm_count
                waves = max(waves, 1.0) + tail * max(ceiling(waves) - max(waves, 1.0), 0.0)
                area = wide * high + edge * (wide + high)
                time_s = waves * (2 * area * depth / (rate * ratio[row]) + start_s) + extra
                if time_s < best:
                    best, best_tile, best_splits, best_waves = time_s, tile, splits, waves
        wide, high = _TILES[best_tile]
        pace, steps = rate * ratio[row], ceiling(k[row] / best_splits / _STEP) * _STEP
        load = ceiling(m[row] / wide) * ceiling(n[row] / high) * batch[row] * best_splits / sm_count
        tile_s = 2 * wide * high * steps / pace
        whole = 2 * (wide * high + edge * (wide + high)) * (steps + deep) / pace
        part_s = parts_s[row]
        part_s[0] = load * tile_s - 2 * m[row] * n[row] * k[row] * batch[row] / (pace * sm_count)
        part_s[1] = load * (whole - tile_s)
        part_s[2] = (best_waves - load) * whole
        part_s[3] = best_waves * start_s
        added = (best_splits + 1) * m[row] * n[row] * batch[row] * 4 / bandwidth
        part_s[4] = sum_s + added if best_splits > 1 else 0.0
