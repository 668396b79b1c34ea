"""The compiled part of the matrix-product form: search over tiles and splits of K, and the waterfall of the best."""

import math
from typing import Any, NamedTuple

import numpy as np

from nearpeak.compiled import compiled

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
PADDED = 128.0
"""Multiple to which n and k are padded where operands of four bits need whole blocks."""
_FILL = 4.0
"""A quarter of the multiprocessors saturates memory."""
_PORT = 64.0
"""Bytes per clock between the cache and a multiprocessor."""
_REACH_BYTES = 1e6
"""Bytes whose addresses a multiprocessor keeps translated: where products of P4 and P100 slow down."""
_VECTOR_BYTES = 4.0
"""Elements from this size on are multiplied by vector units, whose loads alone were measured to be slower so."""
_WIDE = 4.0
"""Multiples of that reach beyond which loads do not slow down further."""
_SHOWN = 0.4
"""Share of the last partial wave that persistent kernels do not hide."""
_SMALL, _LONGEST = 2.0**21, 8192.0
"""Products of elements below which, and k up to which, a library may run a kernel that neither splits nor overlaps."""
CLOCK_S = 1e-4
"""Time after which the clock falls."""
SPLITS = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0])

# Positions of the scalars, in the order of the form.
_LAUNCH, _TENSOR, _DRAM, _STORE, _BALANCED, _START, _SPLIT, _KEPT, _CLOCK, _STEP, _EXPOSED, _RAMP = range(12)
_QUANTISE, _QUANTISE_ROW, _QUANTISE_RAMP, _QUANTISE_PASSES, _PAD, _HOST, _FAR, _UNALIGNED, _SERIAL, _QUANTISE_KEPT = (
    range(12, 22)
)

# Positions of the figures of the device.
_PEAK, _SM, _BANDWIDTH, _CACHE, _CLOCK_HZ, _A, _B, _C, _QUANTISED, _COPIES, _DEEP, _BLOCKS, _HOSTED, _SINGLE = range(14)

# Columns of the table of kinds of tiles, the last two of one case at a time.
_ALONG_M, _ALONG_N, _PART_M, _PART_N, _FLOP_S, _EDGE_S, _COUNT, _LEAST4 = range(8)


@compiled
def _kinds(tile_m: Any, tile_n: Any, rates: Any) -> Any:
    """Return the table of kinds of tiles."""
    found = np.zeros((tile_m.shape[0], 8))
    found[:, _ALONG_M], found[:, _ALONG_N] = tile_m, tile_n
    found[:, _PART_M], found[:, _PART_N] = _EXACT / tile_m, _EXACT / tile_n
    found[:, _FLOP_S], found[:, _EDGE_S] = rates[3] * tile_m * tile_n, rates[6] * (tile_m + tile_n)
    return found


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
def slowed_ratio(m: float, n: float, k: float, b: float, hw: Any, p: Any) -> float:
    """Return by how much loads of a single product slow down whose rows are no whole lines, near and far."""
    whole = k % hw[_DEEP] == 0.0 and m % hw[_DEEP] == 0.0
    if whole or b > 1.0 or hw[_A] < _VECTOR_BYTES or p[_FAR] + p[_UNALIGNED] == 0.0:
        return 1.0
    pages = (m * k * hw[_A] + n * k * hw[_B]) / (_REACH_BYTES * hw[_SM])
    return float(1.0 + p[_UNALIGNED] + p[_FAR] * min(max(pages - 0.5, 0.0), _WIDE))


@compiled
def _moves(m: float, n: float, k: float, b: float, hw: Any, p: Any, rates: Any) -> tuple[float, ...]:
    """Return the times of reading, writing, storing a wave and moving a part of a split sum; by how much loads slow."""
    read_s, write_s = _traffic(m, n, k, b, hw, rates)
    slower, c_s = slowed_ratio(m, n, k, b, hw, p), b * m * n * rates[2]
    return read_s * slower, write_s, p[_EXPOSED] * (write_s + c_s * hw[_C]), c_s * 4.0, slower


@compiled
def _outline(m: float, n: float, k: float, b: float, memory_s: float, slower: float, rates: Any, kinds: Any) -> int:
    """Write the number of tiles of each kind, and the fourth power of what no split of it beats; return the least."""
    each, rest, alone = rates[5] * k, (memory_s * memory_s) * (memory_s * memory_s), kinds.shape[0] == 1
    first, least4 = 0, 1e300
    for i in range(kinds.shape[0]):
        bm, bn = kinds[i, _ALONG_M], kinds[i, _ALONG_N]
        # half the tile covers as much
        wide = ((bm >= 2.0 * m) & (bm > 64.0)) | ((bn >= 2.0 * n) & (bn > 64.0))
        tiles = b * np.ceil(m * kinds[i, _PART_M]) * np.ceil(n * kinds[i, _PART_N])
        x, y = tiles * each * kinds[i, _FLOP_S], tiles * each * kinds[i, _EDGE_S] * slower
        x, y = x * x, y * y
        found4 = 1e240 if wide and not alone else x * x + y * y + rest
        kinds[i, _COUNT], kinds[i, _LEAST4] = tiles, found4
        if found4 < least4:
            first, least4 = i, found4
    return first


@compiled
def _runs_whole(m: float, n: float, k: float, b: float, hw: Any) -> bool:
    """Return whether a library leaves all of k to one kernel."""
    return bool((hw[_SINGLE] > 0.0) & (m > 1.0) & (b * m * n * k < _SMALL) & (k <= _LONGEST))


@compiled
def _search(
    m: float, n: float, k: float, b: float, hw: Any, p: Any, rates: Any, kinds: Any, splits: Any, best: Any
) -> None:
    """Write into `best` the parts of the fastest tile and split, names where it is read; batches do not split sums."""
    whole, deep, per_sm = _runs_whole(m, n, k, b, hw), hw[_DEEP], rates[5]
    start_s, ramp_s, split_s, step_s = p[_START], p[_RAMP], p[_SPLIT], p[_SERIAL] if whole else rates[7]
    read_s, write_s, store_s, part_s, slower = _moves(m, n, k, b, hw, p, rates)
    memory_s, least, least4 = read_s + write_s, 1e60, 1e240
    first = _outline(m, n, k, b, memory_s, slower, rates, kinds)
    for turn in range(-1, kinds.shape[0]):
        i = first if turn < 0 else turn
        if turn == first or kinds[i, _LEAST4] >= least4:
            continue
        flop_s, edge_s, tiles = kinds[i, _FLOP_S], kinds[i, _EDGE_S] * slower, kinds[i, _COUNT]
        for j in range(splits.shape[0]):
            split, reduce = splits[j, 0], 0.0
            load = tiles * split * per_sm
            if split > 1.0:
                reduce = split_s + (split + 1.0) * part_s
                if whole or b > 1.0 or load > 2.0 or k < 4.0 * deep * split or reduce + memory_s >= least:
                    break
            depth = deep * np.ceil(k * splits[j, 1])
            busy, waves = load, 1.0
            if load > 1.0:
                busy, waves = 1.0, load + _SHOWN * (np.ceil(load) - load)
            tensor, chain = waves * (depth * flop_s + start_s), waves * depth * step_s
            cache = max(load, 1.0) * depth * edge_s
            if max(tensor, chain, cache, memory_s) + reduce + ramp_s * busy >= least:
                continue
            memory, store = memory_s, store_s
            if load > 1.0:
                store = store / waves
            else:
                each = 1.0 / busy
                filling = max(1.0, each * (1.0 / _FILL))
                memory, store = memory * filling, store * filling
                if split > 1.0:
                    reduce = split_s + (split + 1.0) * part_s * each
            added = store + reduce + ramp_s * busy
            room = least - added
            x, y, z, v = tensor * tensor, cache * cache, memory * memory, chain * chain
            norm = (x * x + y * y) + (z * z + v * v)
            if room <= 0.0 or norm >= (room * room) * (room * room):
                continue
            body = math.sqrt(math.sqrt(norm))
            least = body + added
            best[0], best[1], best[2], best[3], best[4], best[5] = least, tensor, cache, memory, chain, body
            best[6], best[7], best[8], best[9], best[12] = store, reduce, busy, waves, split
            best[10], best[11], best[13], best[14] = kinds[i, _ALONG_M], kinds[i, _ALONG_N], depth, load
        least4 = (least * least) * (least * least)
    best[15], best[16] = read_s, write_s


class Chosen(NamedTuple):
    """What one product takes of each resource with the tile and split that end first, in seconds of all tiles."""

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


def chosen(m: float, n: float, k: float, batch: float, hw: Any, p: Any, tiles: tuple[Any, Any]) -> Chosen:
    """Return the tile and split that end first, among those that libraries have kernels for.

    Args:
        hw: figures of the device, see `_product_formats.device_figures`.
        p: scalars of the form, in its order.
        tiles: extents of tiles along m and along n.
    """
    best, rates = np.empty(17), _rates(hw, p)
    parts_of_k = np.stack([SPLITS, _EXACT / (hw[_DEEP] * SPLITS)], 1)
    _search(m, n, k, batch, hw, p, rates, _kinds(*tiles, rates), parts_of_k, best)
    return Chosen(*best.tolist())


@compiled
def _waterfall(m: float, n: float, k: float, b: float, hw: Any, p: Any, best: Any, out: Any) -> float:
    """Write the parts of a case by its fastest tile, the norm's excess with the second largest; return their sum."""
    tensor, cache, memory, chain, body = best[1], best[2], best[3], best[4], best[5]
    excess = body - max(tensor, cache, memory, chain)
    share0, share1, share2, share3 = _shares(tensor, cache, memory, chain, excess)
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
    out[7] = share1
    read, write = best[15] * p[_DRAM], best[16] * p[_STORE]
    scale = share2 / memory if memory > 0.0 else 0.0
    out[8] = scale * (read + write)
    out[9] = scale * (best[15] + best[16] - read - write)
    out[10] = scale * (memory - best[15] - best[16])
    out[11] = share3
    out[12] = best[6]
    out[13] = best[7]
    out[14] = tensor * p[_CLOCK] * (tensor / best[0]) * tensor / (tensor + CLOCK_S)
    out[15] = quantise_s(m, k, b, hw, p) if hw[_QUANTISED] > 0.0 else 0.0
    padded = hw[_QUANTISED] > 0.0 and hw[_BLOCKS] > 0.0 and (n % PADDED > 0.0 or k % PADDED > 0.0)
    out[16] = p[_PAD] if padded else 0.0
    out[17] = p[_HOST] if hw[_HOSTED] > 0.0 else 0.0
    early = (out[0] + out[1]) + (out[2] + out[3]) + ((out[4] + out[5]) + (out[6] + out[7]))
    late = (out[8] + out[9]) + (out[10] + out[11]) + ((out[12] + out[13]) + (out[14] + out[15]))
    return float(early + late + (out[16] + out[17]))


@compiled
def quantise_s(m: float, k: float, b: float, hw: Any, p: Any) -> float:
    """Return the time of quantising A from bf16: start, rows that wait for a multiprocessor, and bytes."""
    moved, rows = b * m * k * (hw[_QUANTISED] + hw[_A]), b * m / hw[_SM]
    miss = min(max(moved / (p[_QUANTISE_KEPT] * hw[_CACHE]) - 0.5, 0.0), 1.0)
    row_s = p[_QUANTISE_ROW] * rows + p[_QUANTISE_RAMP] * rows / (1.0 + rows)
    port = _PORT * hw[_CLOCK_HZ] * hw[_SM]
    byte_s = moved * (miss / (p[_DRAM] * hw[_BANDWIDTH]) + p[_QUANTISE_PASSES] / port)
    return float(p[_QUANTISE]) + math.sqrt(row_s * row_s + byte_s * byte_s)


@compiled
def _shares(a: float, b: float, c: float, d: float, excess: float) -> tuple[float, float, float, float]:
    """Return the largest of four times as it is, `excess` in place of the second largest, and 0 for the others."""
    first_a = (a >= b) & (a >= c) & (a >= d)
    first_b = (not first_a) & (b >= c) & (b >= d)
    first_c = (not first_a) & (not first_b) & (c >= d)
    first_d = not (first_a | first_b | first_c)
    rest_a, rest_b = -1.0 if first_a else a, -1.0 if first_b else b
    rest_c, rest_d = -1.0 if first_c else c, -1.0 if first_d else d
    next_a = (rest_a >= rest_b) & (rest_a >= rest_c) & (rest_a >= rest_d)
    next_b = (not next_a) & (rest_b >= rest_c) & (rest_b >= rest_d)
    next_c = (not next_a) & (not next_b) & (rest_c >= rest_d)
    next_d = not (next_a | next_b | next_c)
    return (
        a * first_a + excess * next_a, b * first_b + excess * next_b,
        c * first_c + excess * next_c, d * first_d + excess * next_d,
    )  # fmt: skip


@compiled
def fill(
    m: Any, n: Any, k: Any, b: Any, hw: Any, p: Any, tile_m: Any, tile_n: Any, splits: Any, parts: Any, times: Any
) -> None:
    """Write for each row the parts of its time and their sum."""
    best, rates = np.empty(17), _rates(hw, p)
    kinds, parts_of_k = _kinds(tile_m, tile_n, rates), np.empty((splits.shape[0], 2))
    parts_of_k[:, 0], parts_of_k[:, 1] = splits, _EXACT / (hw[_DEEP] * splits)
    for row in range(m.shape[0]):
        one_m, one_n, one_k, one_b = float(m[row]), float(n[row]), float(k[row]), float(b[row])
        _search(one_m, one_n, one_k, one_b, hw, p, rates, kinds, parts_of_k, best)
        times[row] = _waterfall(one_m, one_n, one_k, one_b, hw, p, best, parts[row])
