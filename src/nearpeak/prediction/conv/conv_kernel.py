"""Compiled convolution model: search over tiles and split sums."""

import math
from typing import Any

import numpy as np

from nearpeak.base.compilation import compiled

_TILES = ((256, 128), (128, 128), (128, 64), (64, 128), (256, 32), (64, 64), (64, 32), (32, 64), (32, 32))
_TILE_M = np.array([float(m) for m, _ in _TILES])
_TILE_N = np.array([float(n) for _, n in _TILES])
_SPLITS = np.array([1.0, 4.0, 16.0, 64.0])
_LEAST_DEPTH = 128.0
"""Depth that each part of a split sum has at least."""
_STEP = 16.0
"""Depth that one step of a tile takes."""


@compiled
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
            depth = math.ceil(k[row] / splits / _STEP) * _STEP + deep
            extra = sum_s + (splits + 1) * m[row] * n[row] * batch[row] * 4 / bandwidth if splits > 1 else 0.0
            for tile in range(len(_TILE_M)):
                wide, high = _TILE_M[tile], _TILE_N[tile]
                waves = math.ceil(m[row] / wide) * math.ceil(n[row] / high) * batch[row] * splits / sm_count
                waves = max(waves, 1.0) + tail * max(math.ceil(waves) - max(waves, 1.0), 0.0)
                area = wide * high + edge * (wide + high)
                time_s = waves * (2 * area * depth / (rate * ratio[row]) + start_s) + extra
                if time_s < best:
                    best, best_tile, best_splits, best_waves = time_s, tile, splits, waves
        wide, high = _TILE_M[best_tile], _TILE_N[best_tile]
        pace, steps = rate * ratio[row], math.ceil(k[row] / best_splits / _STEP) * _STEP
        load = math.ceil(m[row] / wide) * math.ceil(n[row] / high) * batch[row] * best_splits / sm_count
        tile_s = 2 * wide * high * steps / pace
        whole = 2 * (wide * high + edge * (wide + high)) * (steps + deep) / pace
        parts_s[row, 0] = load * tile_s - 2 * m[row] * n[row] * k[row] * batch[row] / (pace * sm_count)
        parts_s[row, 1] = load * (whole - tile_s)
        parts_s[row, 2] = (best_waves - load) * whole
        parts_s[row, 3] = best_waves * start_s
        added = (best_splits + 1) * m[row] * n[row] * batch[row] * 4 / bandwidth
        parts_s[row, 4] = sum_s + added if best_splits > 1 else 0.0
