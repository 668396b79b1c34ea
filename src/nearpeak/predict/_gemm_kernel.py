"""The compiled part of the matrix-product form: search over tiles and splits of K, and the waterfall of the best."""

import math
from typing import Any

import numpy as np

from nearpeak.predict._compiled import compiled

_TILES = (
    (256, 128), (128, 256), (192, 128), (128, 192), (128, 128), (64, 256), (256, 64), (64, 128), (128, 64), (64, 64),
    (128, 32), (64, 32), (64, 16), (128, 16), (32, 64), (16, 64),
)  # fmt: skip
_VECTOR_TILES = (
    (128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (64, 32), (32, 64), (32, 32), (64, 16), (16, 64),
)  # fmt: skip
TENSOR_TILES = (np.array([float(m) for m, _ in _TILES]), np.array([float(n) for _, n in _TILES]))
"""Extents along m and along n that libraries build kernels for matrix units with."""
VECTOR_TILES = (np.array([float(m) for m, _ in _VECTOR_TILES]), np.array([float(n) for _, n in _VECTOR_TILES]))
"""Likewise for vector units, whose registers hold smaller tiles."""
_EXACT = 1.0 - 1e-12
"""Keeps a whole number of tiles from being rounded up to one more."""
_ROOM_BYTES = 16384.0
"""Input of a multiprocessor at which half of the ramp of quantising is reached."""
SPLITS = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0])


@compiled
def _traffic(m: float, n: float, k: float, b: float, hw: Any, p: Any) -> tuple[float, float]:
    """Return the times of reading and of writing what the cache does not keep."""
    a_bytes, b_bytes, c_bytes = b * m * k * hw[5], b * n * k * hw[6], b * m * n * hw[7]
    copies = min(max(math.ceil(hw[3] / max(b_bytes, 1.0)), 1.0), hw[9])
    kept = 1.0 / (p[9] * hw[3])
    miss_b = min(max((copies * b_bytes + a_bytes + c_bytes) * kept - 0.5, 0.0), 1.0)
    miss_a = min(max((b_bytes + a_bytes + c_bytes) * kept - 0.5, 0.0), 1.0)
    fresh = 0.0 if hw[8] > 0.0 and a_bytes < 0.5 * hw[3] else miss_a
    read_s = (a_bytes * fresh + b_bytes * miss_b) / (p[2] * hw[2])
    write_s = c_bytes * miss_a / (p[3] * hw[2])
    return read_s, write_s


@compiled
def _search(m: float, n: float, k: float, b: float, hw: Any, p: Any, library: Any, best: Any) -> None:
    """Write into `best` the parts of the fastest tile and split: see the names where it is read."""
    tile_m, tile_n, part_m, part_n, splits, depths = library
    sm, per_sm, reach = hw[1], 1.0 / hw[1], 1.0 / p[8]
    l2, deep = p[4] * hw[4] * hw[1], hw[10]
    per_tile = hw[1] / (p[1] * hw[0])
    read_s, write_s = _traffic(m, n, k, b, hw, p)
    c_bytes = b * m * n * hw[7]
    store_s = p[14] * (write_s + c_bytes / l2)
    step_s, width = p[13] / deep, 0.5 * (hw[5] + hw[6]) / l2
    memory_s, part_s = read_s + write_s, b * m * n * 4.0 / l2
    for j in range(splits.shape[0]):
        depths[j] = deep * math.ceil(k / (deep * splits[j]))
    best[0] = 1e300
    for i in range(tile_m.shape[0]):
        bm, bn = tile_m[i], tile_n[i]
        if tile_m.shape[0] > 1 and ((bm >= 2.0 * m and bm > 64.0) or (bn >= 2.0 * n and bn > 64.0)):
            continue  # half the tile covers as much
        tiles = b * math.ceil(m * part_m[i]) * math.ceil(n * part_n[i])
        flop_s = per_tile * (2.0 * bm * bn + 2.0 * (bm + bn) * p[6])
        edge_s = sm * (bm + bn) * width
        for j in range(splits.shape[0]):
            split, depth = splits[j], depths[j]
            if split > 1.0 and (tiles * split > 2.0 * sm or k < 4.0 * deep * split):
                break
            load = tiles * split * per_sm
            busy, waves = load, 1.0
            if load > 1.0:
                busy, waves = 1.0, load + (1.0 - p[10]) * (math.ceil(load) - load)
            tensor = waves * (depth * flop_s + p[5])
            cache = max(load, 1.0) * depth * edge_s
            known = best[0] - p[15] * busy
            if tensor >= known or cache >= known:
                continue
            filling = 1.0 / min(1.0, busy * reach)
            memory, chain = memory_s * filling, waves * depth * step_s
            x, y, z, v = tensor * tensor, cache * cache, memory * memory, chain * chain
            body = math.sqrt(math.sqrt(x * x + y * y + z * z + v * v))
            store = store_s * filling / waves
            reduce = p[7] + (split + 1.0) * part_s / busy if split > 1.0 else 0.0
            total = body + store + reduce + p[15] * busy
            if total < best[0]:
                best[0], best[1], best[2], best[3], best[4] = total, tensor, cache, memory, chain
                best[5], best[6], best[7], best[8], best[9] = body, store, reduce, busy, waves
                best[10], best[11], best[12], best[13], best[14] = bm, bn, split, depth, load
    best[15], best[16] = read_s, write_s


@compiled
def _waterfall(m: float, n: float, k: float, b: float, hw: Any, p: Any, best: Any, out: Any) -> None:
    """Write the parts of the case whose fastest tile is in `best`; the norm's excess goes to the second largest."""
    for i in range(out.shape[0]):
        out[i] = 0.0
    tensor, cache, memory, chain, body = best[1], best[2], best[3], best[4], best[5]
    first, second = _two_largest(tensor, cache, memory, chain)
    excess = body - max(tensor, cache, memory, chain)
    share0 = tensor if first == 0 else (excess if second == 0 else 0.0)
    share2 = memory if first == 2 else (excess if second == 2 else 0.0)
    ratio = share0 / tensor if tensor > 0.0 else 0.0
    ideal = 2.0 * b * m * n * k / hw[0]
    depth_s = best[13] * hw[1] / (p[1] * hw[0]) * (2.0 * best[10] * best[11] + 2.0 * (best[10] + best[11]) * p[6])
    filled = max(best[14], 0.0) * depth_s
    out[0] = p[0]
    out[1] = p[15] * best[8]
    out[2] = ratio * ideal
    out[3] = ratio * (ideal / p[1] - ideal)
    out[4] = ratio * (filled - ideal / p[1])
    out[5] = ratio * (best[9] * depth_s - filled)
    out[6] = ratio * best[9] * p[5]
    out[7] = cache if first == 1 else (excess if second == 1 else 0.0)
    read, write = best[15] * p[2], best[16] * p[3]
    scale = share2 / memory if memory > 0.0 else 0.0
    out[8] = scale * (read + write)
    out[9] = scale * (best[15] + best[16] - read - write)
    out[10] = scale * (memory - best[15] - best[16])
    out[11] = chain if first == 3 else (excess if second == 3 else 0.0)
    out[12] = best[6]
    out[13] = best[7]
    out[14] = tensor * p[11] * (tensor / best[0]) * tensor / (tensor + p[12])
    if hw[8] > 0.0:
        moved = b * m * k * (hw[8] + hw[5])
        miss = min(max(moved / (p[9] * hw[3]) - 0.5, 0.0), 1.0)
        fullness = b * m * k * hw[8] / (hw[1] * _ROOM_BYTES)
        out[15] = (
            p[16]
            + p[17] * fullness / (1.0 + fullness)
            + moved * (miss / (p[2] * hw[2]) + p[18] / (p[4] * hw[4] * hw[1]))
        )


@compiled
def _two_largest(a: float, b: float, c: float, d: float) -> tuple[int, int]:
    """Return the positions of the largest and of the second largest of four numbers."""
    values = (a, b, c, d)
    first, second = 0, -1
    for i in range(1, 4):
        if values[i] > values[first]:
            first, second = i, first
        elif second < 0 or values[i] > values[second]:
            second = i
    return first, second


@compiled
def fill(
    m: Any, n: Any, k: Any, b: Any, hw: Any, p: Any, tile_m: Any, tile_n: Any, splits: Any, parts: Any, times: Any
) -> None:
    """Write for each row the parts of its time and their sum."""
    best, depths = np.empty(17), np.empty(splits.shape[0])
    library = (tile_m, tile_n, _EXACT / tile_m, _EXACT / tile_n, splits, depths)
    for row in range(m.shape[0]):
        _search(float(m[row]), float(n[row]), float(k[row]), float(b[row]), hw, p, library, best)
        _waterfall(float(m[row]), float(n[row]), float(k[row]), float(b[row]), hw, p, best, parts[row])
        total = 0.0
        for i in range(parts.shape[1]):
            total += parts[row, i]
        times[row] = total
