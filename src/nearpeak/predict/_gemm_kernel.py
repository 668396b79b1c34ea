"""The compiled part of the matrix-product form: search over tiles and splits of K, and the waterfall of the best."""

import math
from typing import Any

import numpy as np

from nearpeak.predict._compiled import compiled
from nearpeak.predict._interpolation import correction_at

_TILES = (
    (256, 128), (128, 256), (128, 192), (128, 128), (64, 128), (128, 64), (64, 64), (128, 32), (64, 16), (16, 64),
)  # fmt: skip
_VECTOR_TILES = (
    (128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (64, 32), (32, 64), (32, 32), (64, 16), (16, 64),
)  # fmt: skip
TENSOR_TILES = (np.array([float(m) for m, _ in _TILES]), np.array([float(n) for _, n in _TILES]))
"""Extents along m and along n that libraries build kernels for matrix units with."""
BLOCK_TILES = (np.repeat([256.0, 128.0, 64.0], 16), np.tile(np.arange(256.0, 15.0, -16.0), 3))
"""Likewise with block scales on Hopper, where kernels are compiled for the width that leaves the least tail."""
VECTOR_TILES = (np.array([float(m) for m, _ in _VECTOR_TILES]), np.array([float(n) for _, n in _VECTOR_TILES]))
"""Likewise for vector units, whose registers hold smaller tiles."""
_EXACT = 1.0 - 1e-12
"""Keeps a whole number of tiles from being rounded up to one more."""
_PADDED = 128.0
"""Multiple to which n and k are padded where operands of four bits need whole blocks."""
_FILL = 4.0
"""A quarter of the multiprocessors saturates memory."""
_PORT = 64.0
"""Bytes per clock between the cache and a multiprocessor."""
_REACH_BYTES = 1e6
"""Bytes whose addresses a multiprocessor keeps translated: where products of P4 and P100 slow down."""
_ALIGNED = 4.0
"""Elements of which rows are a multiple where vectors of them are loaded."""
_SHOWN = 0.4
"""Share of the last partial wave that persistent kernels do not hide."""
_CLOCK_S = 1e-4
"""Time after which the clock falls."""
_LARGEST = 0.25
"""Largest correction, as a logarithm."""
SPLITS = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0])

# Positions of the scalars, in the order of the form.
_LAUNCH, _TENSOR, _DRAM, _STORE, _BALANCED, _START, _SPLIT, _KEPT, _CLOCK, _STEP, _EXPOSED, _RAMP = range(12)
_QUANTISE, _QUANTISE_ROW, _QUANTISE_RAMP, _QUANTISE_PASSES, _PAD, _HOST, _FAR = range(12, 19)
SCALAR_COUNT = 19
"""Scalars of the form; what follows them in the array is the correction."""

# Positions of the figures of the device.
_PEAK, _SM, _BANDWIDTH, _CACHE, _CLOCK_HZ, _A, _B, _C, _QUANTISED, _COPIES, _DEEP, _BLOCKS, _HOSTED = range(13)


@compiled
def _rates(hw: Any, p: Any) -> tuple[float, ...]:
    """Return what all rows share: seconds per byte read, written and moved in cache, and so on."""
    return (
        1.0 / (p[_DRAM] * hw[_BANDWIDTH]), 1.0 / (p[_STORE] * hw[_BANDWIDTH]), 1.0 / (_PORT * hw[_CLOCK_HZ] * hw[_SM]),
        2.0 * hw[_SM] / (p[_TENSOR] * hw[_PEAK]), 1.0 / (p[_KEPT] * hw[_CACHE]), 1.0 / hw[_SM],
        p[_BALANCED] * hw[_SM] / hw[_PEAK] * 0.5 * (hw[_A] + hw[_B]) / max(hw[_A], hw[_B]), p[_STEP] / hw[_DEEP],
    )  # fmt: skip


@compiled
def _traffic(m: float, n: float, k: float, b: float, hw: Any, rates: Any) -> tuple[float, float]:
    """Return the times of reading and of writing what the cache does not keep."""
    a_bytes, b_bytes, c_bytes = b * m * k * hw[_A], b * n * k * hw[_B], b * m * n * hw[_C]
    copies = hw[_COPIES]
    if copies > 1.0 and copies * b_bytes > hw[_CACHE]:
        copies = min(max(np.ceil(hw[_CACHE] / b_bytes), 1.0), copies)
    kept = rates[4]
    miss_b = min(max((copies * b_bytes + a_bytes + c_bytes) * kept - 0.5, 0.0), 1.0)
    miss_a = min(max((b_bytes + a_bytes + c_bytes) * kept - 0.5, 0.0), 1.0)
    fresh = 0.0 if hw[_QUANTISED] > 0.0 and a_bytes < 0.5 * hw[_CACHE] else miss_a
    return (a_bytes * fresh + b_bytes * miss_b) * rates[0], c_bytes * miss_a * rates[1]


@compiled
def _far(m: float, n: float, k: float, hw: Any, p: Any) -> float:
    """Return by how much loads slow down whose rows start anywhere, beyond the reach of address translation."""
    if p[_FAR] == 0.0 or (k % _ALIGNED == 0.0 and n % _ALIGNED == 0.0):
        return 1.0
    pages = (m * k * hw[_A] + n * k * hw[_B]) / (_REACH_BYTES * hw[_SM])
    return float(1.0 + p[_FAR] * min(max(pages - 0.5, 0.0), 1.0))


@compiled
def _search(m: float, n: float, k: float, b: float, hw: Any, p: Any, rates: Any, library: Any, best: Any) -> None:
    """Write into `best` the parts of the fastest tile and split: see the names where it is read."""
    tile_m, tile_n, part_m, part_n, splits, part_k, depths = library
    _, _, l2_s, tile_s, _, per_sm, width, step_s = rates
    sm, deep = hw[_SM], hw[_DEEP]
    read_s, write_s = _traffic(m, n, k, b, hw, rates)
    slower = _far(m, n, k, hw, p)
    read_s, width = read_s * slower, width * slower
    c_bytes = b * m * n * hw[_C]
    store_s = p[_EXPOSED] * (write_s + c_bytes * l2_s)
    memory_s, part_s = read_s + write_s, b * m * n * 4.0 * l2_s
    for j in range(splits.shape[0]):
        depths[j] = deep * np.ceil(k * part_k[j])
    best[0] = 1e60
    for i in range(tile_m.shape[0]):
        bm, bn = tile_m[i], tile_n[i]
        if tile_m.shape[0] > 1 and ((bm >= 2.0 * m and bm > 64.0) or (bn >= 2.0 * n and bn > 64.0)):
            continue  # half the tile covers as much
        tiles = b * np.ceil(m * part_m[i]) * np.ceil(n * part_n[i])
        flop_s, edge_s = tile_s * bm * bn, (bm + bn) * width
        least_s = max(tiles * per_sm * k * max(flop_s, edge_s), memory_s)
        if least_s >= best[0]:
            continue  # no split of it does less in all
        for j in range(splits.shape[0]):
            split, depth = splits[j], depths[j]
            if split > 1.0 and (tiles * split > 2.0 * sm or k < 4.0 * deep * split or p[_SPLIT] + least_s >= best[0]):
                break
            load = tiles * split * per_sm
            busy, waves = load, 1.0
            if load > 1.0:
                busy, waves = 1.0, load + _SHOWN * (np.ceil(load) - load)
            tensor, chain = waves * (depth * flop_s + p[_START]), waves * depth * step_s
            cache = max(load, 1.0) * depth * edge_s
            added = p[_RAMP] * busy + (p[_SPLIT] if split > 1.0 else 0.0)
            if max(tensor, chain, cache, memory_s) + added >= best[0]:
                continue
            filling = max(1.0, 1.0 / (busy * _FILL))
            memory, store = memory_s * filling, store_s * filling / waves
            reduce = p[_SPLIT] + (split + 1.0) * part_s / busy if split > 1.0 else 0.0
            room = best[0] - store - reduce - p[_RAMP] * busy
            x, y, z, v = tensor * tensor, cache * cache, memory * memory, chain * chain
            norm = x * x + y * y + z * z + v * v
            if room <= 0.0 or norm >= (room * room) * (room * room):
                continue
            body = math.sqrt(math.sqrt(norm))
            total = body + store + reduce + p[_RAMP] * busy
            if total < best[0]:
                best[0], best[1], best[2], best[3], best[4] = total, tensor, cache, memory, chain
                best[5], best[6], best[7], best[8], best[9] = body, store, reduce, busy, waves
                best[10], best[11], best[12], best[13], best[14] = bm, bn, split, depth, load
    best[15], best[16] = read_s, write_s


@compiled
def _waterfall(m: float, n: float, k: float, b: float, hw: Any, p: Any, best: Any, out: Any) -> None:
    """Write the parts of the case whose fastest tile is in `best`; the norm's excess goes to the second largest."""
    tensor, cache, memory, chain, body = best[1], best[2], best[3], best[4], best[5]
    first, second = _two_largest(tensor, cache, memory, chain)
    excess = body - max(tensor, cache, memory, chain)
    share0 = tensor if first == 0 else (excess if second == 0 else 0.0)
    share2 = memory if first == 2 else (excess if second == 2 else 0.0)
    ratio = share0 / tensor if tensor > 0.0 else 0.0
    ideal = 2.0 * b * m * n * k / hw[_PEAK]
    depth_s = best[13] * hw[_SM] / (p[_TENSOR] * hw[_PEAK]) * 2.0 * best[10] * best[11]
    filled = max(best[14], 0.0) * depth_s
    out[0] = p[_LAUNCH]
    out[1] = p[_RAMP] * best[8]
    out[2] = ratio * ideal
    out[3] = ratio * (ideal / p[_TENSOR] - ideal)
    out[4] = ratio * (filled - ideal / p[_TENSOR])
    out[5] = ratio * (best[9] * depth_s - filled)
    out[6] = ratio * best[9] * p[_START]
    out[7] = cache if first == 1 else (excess if second == 1 else 0.0)
    read, write = best[15] * p[_DRAM], best[16] * p[_STORE]
    scale = share2 / memory if memory > 0.0 else 0.0
    out[8] = scale * (read + write)
    out[9] = scale * (best[15] + best[16] - read - write)
    out[10] = scale * (memory - best[15] - best[16])
    out[11] = chain if first == 3 else (excess if second == 3 else 0.0)
    out[12] = best[6]
    out[13] = best[7]
    out[14] = tensor * p[_CLOCK] * (tensor / best[0]) * tensor / (tensor + _CLOCK_S)
    out[15] = _quantise(m, k, b, hw, p) if hw[_QUANTISED] > 0.0 else 0.0
    padded = hw[_QUANTISED] > 0.0 and hw[_BLOCKS] > 0.0 and (n % _PADDED > 0.0 or k % _PADDED > 0.0)
    out[16] = p[_PAD] if padded else 0.0
    out[17] = p[_HOST] if hw[_HOSTED] > 0.0 else 0.0


@compiled
def _quantise(m: float, k: float, b: float, hw: Any, p: Any) -> float:
    """Return the time of quantising A from bf16: start, rows that wait for a multiprocessor, and bytes."""
    moved, rows = b * m * k * (hw[_QUANTISED] + hw[_A]), b * m / hw[_SM]
    miss = min(max(moved / (p[_KEPT] * hw[_CACHE]) - 0.5, 0.0), 1.0)
    row_s = p[_QUANTISE_ROW] * rows + p[_QUANTISE_RAMP] * rows / (1.0 + rows)
    port = _PORT * hw[_CLOCK_HZ] * hw[_SM]
    byte_s = moved * (miss / (p[_DRAM] * hw[_BANDWIDTH]) + p[_QUANTISE_PASSES] / port)
    return float(p[_QUANTISE]) + math.sqrt(row_s * row_s + byte_s * byte_s)


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
    best, part_k = np.empty(17), _EXACT / (hw[_DEEP] * splits)
    library = (tile_m, tile_n, _EXACT / tile_m, _EXACT / tile_n, splits, part_k, np.empty(splits.shape[0]))
    rates = _rates(hw, p)
    last = parts.shape[1] - 1
    for row in range(m.shape[0]):
        one_m, one_n, one_k, one_b = float(m[row]), float(n[row]), float(k[row]), float(b[row])
        _search(one_m, one_n, one_k, one_b, hw, p, rates, library, best)
        _waterfall(one_m, one_n, one_k, one_b, hw, p, best, parts[row])
        total = 0.0
        for i in range(last):
            total += parts[row, i]
        parts[row, last] = 0.0
        if p.shape[0] > SCALAR_COUNT:
            exponent = correction_at(p[SCALAR_COUNT:], one_m * one_b, one_n, one_k)
            parts[row, last] = total * (math.exp(min(max(exponent, -_LARGEST), _LARGEST)) - 1.0)
        times[row] = total + parts[row, last]
