"""The compiled part of the convolution form: search over tiles and splits of the sum."""

import math
from typing import Any

import numpy as np

from nearpeak.compiled import compiled

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
    m: Any, n: Any, k: Any, batch: Any, ratio: Any, device: Any, scalars: Any, total_s: Any, split_s: Any
) -> None:  # fmt: skip
    """Write the least time of each product, and the share of it that adds up split sums.

    Args:
        device: FLOP/s of one multiprocessor, multiprocessors, bytes per second of memory.
        scalars: tail_ratio, depth_elements, edge_elements, tile_start_s, split_s.
    """
    rate, sm_count, bandwidth = device
    tail, deep, edge, start_s, sum_s = scalars
    for row in range(len(m)):
        best, best_split = math.inf, 0.0
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
                    best, best_split = time_s, extra
        total_s[row], split_s[row] = best, best_split
