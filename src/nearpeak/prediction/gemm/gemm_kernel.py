"""Compiled GEMM model: search over tiles and split-K, and the time breakdown of the best choice."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nearpeak.base.compilation import ceiling, compiled, floor, fused, room, room_of_rows
from nearpeak.prediction.gemm.overlap import norm, shares

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
_PLAIN_CASES = 500
"""Products that plain Python predicts in less time than compiling takes, half a millisecond each."""
_DEEPEST, _MOST_TILES = 4.0, 2.0
"""Steps along k that a part of a split sum has at least; tiles for each multiprocessor up to which sums are split."""
_SLACK = 1.0 - 1e-9
"""Keeps what rounding does to a floor from excluding the fastest split."""

# Positions of the coefficients, in the order of the model.
_LAUNCH, _TENSOR, _DRAM, _STORE, _BALANCED, _START, _SPLIT, _KEPT, _CLOCK, _STEP, _EXPOSED, _RAMP = range(12)
_QUANTISE, _QUANTISE_ROW, _QUANTISE_RAMP, _QUANTISE_PASSES, _PAD, _HOST, _FAR, _UNALIGNED, _SERIAL, _QUANTISE_KEPT = (
    range(12, 22)
)

# Positions of the figures of the device.
_PEAK, _SM, _BANDWIDTH, _CACHE, _CLOCK_HZ, _A, _B_SIZE, _C, _QUANTISED, _COPIES, _DEEP, _BLOCKS, _HOSTED, _SINGLE = (
    range(14)
)

# Columns of the table of kinds of tiles.
_ALONG_M, _ALONG_N, _PART_M, _PART_N, _FLOP_S, _EDGE_S = range(6)

# Rows are taken in blocks, which stay in a core's own cache. Each step is a loop over a block without branches, so that
# vector units take several rows at once. Columns 4 KiB apart, as 512 rows would make them, hold each other up.
# Start of each column of a block: results, in the order of `BestTile`,
_BLOCK = 256
(
    _LEAST, _TENSOR_S, _CACHE_S, _MEMORY_S, _CHAIN_S, _BODY_S, _STORE_S, _REDUCE_S, _BUSY, _WAVES, _TILE_M, _TILE_N,
    _TIMES, _DEPTH, _LOAD, _READ, _WRITE,
) = range(0, 17 * _BLOCK, _BLOCK)  # fmt: skip
# then the search's inputs of a row, its place, the rates of its tile, and the parts of its time with their sum.
_M, _N, _K, _B, _MOVED, _STORED, _ADDED, _SLOWER, _STEP_S, _FLOOR, _KIND, _PLACE = range(
    _WRITE + _BLOCK, _WRITE + 13 * _BLOCK, _BLOCK
)
_OWN_FLOP_S, _OWN_EDGE_S, _PARTS = range(_PLACE + _BLOCK, _PLACE + 4 * _BLOCK, _BLOCK)
_PART_COUNT = 18
_SUM = _PARTS + _PART_COUNT * _BLOCK
_SIZE = _SUM + _BLOCK


@compiled()
def _kinds(tile_m: Any, tile_n: Any, rates: Any) -> Any:
    """Return the table of kinds of tiles."""
    table = room_of_rows(len(tile_m), 6)
    for kind in range(len(tile_m)):
        along_m, along_n, row = tile_m[kind], tile_n[kind], table[kind]
        row[_ALONG_M], row[_ALONG_N] = along_m, along_n
        row[_PART_M], row[_PART_N] = _EXACT / along_m, _EXACT / along_n
        row[_FLOP_S], row[_EDGE_S] = rates[3] * along_m * along_n, rates[6] * (along_m + along_n)
    return table


@compiled()
def _rates(hw: Any, p: Any) -> tuple[float, ...]:
    """Return the rates that all rows share: seconds per byte read, written and moved in cache, and so on."""
    return (
        1.0 / (p[_DRAM] * hw[_BANDWIDTH]), 1.0 / (p[_STORE] * hw[_BANDWIDTH]), 1.0 / (_PORT * hw[_CLOCK_HZ] * hw[_SM]),
        2.0 * hw[_SM] / (p[_TENSOR] * hw[_PEAK]), 1.0 / (p[_KEPT] * hw[_CACHE]), 1.0 / hw[_SM],
        p[_BALANCED] * hw[_SM] / hw[_PEAK] * 0.5 * (hw[_A] + hw[_B_SIZE]) / max(hw[_A], hw[_B_SIZE]),
        p[_STEP] / hw[_DEEP],
    )  # fmt: skip


@compiled()
def _traffic(m: float, n: float, k: float, b: float, hw: Any, rates: Any) -> tuple[float, float]:
    """Return the times of reading and of writing what the cache does not keep."""
    a_bytes, b_bytes, c_bytes = b * m * k * hw[_A], b * n * k * hw[_B_SIZE], b * m * n * hw[_C]
    copies = min(max(ceiling(hw[_CACHE] / b_bytes), 1.0), hw[_COPIES])
    per_byte = rates[4]
    miss_b = min(max(fused(copies * b_bytes + a_bytes + c_bytes, per_byte, -0.5), 0.0), 1.0)
    miss_a = min(max(fused(b_bytes + a_bytes + c_bytes, per_byte, -0.5), 0.0), 1.0)
    fresh = 0.0 if (hw[_QUANTISED] > 0.0) & (a_bytes < 0.5 * hw[_CACHE]) else miss_a
    return fused(b_bytes, miss_b, a_bytes * fresh) * rates[0], c_bytes * miss_a * rates[1]


@compiled()
def slowed_ratio(m: float, n: float, k: float, b: float, hw: Any, p: Any) -> float:
    """Return the slow-down of loads of a single product whose rows are not aligned to lines, near and far."""
    line = hw[_DEEP]
    whole = (line * floor(k / line) == k) & (line * floor(m / line) == m)
    pages = (m * k * hw[_A] + n * k * hw[_B_SIZE]) / (_REACH_BYTES * hw[_SM])
    slower = fused(p[_FAR], min(max(pages - 0.5, 0.0), _WIDE), 1.0 + p[_UNALIGNED])
    steady = whole | (b > 1.0) | (hw[_A] < _VECTOR_BYTES) | (p[_FAR] + p[_UNALIGNED] == 0.0)
    return float(1.0 if steady else slower)


@compiled()
def _prepare(rows: int, hw: Any, p: Any, rates: Any, w: Any) -> None:
    """Write the tile-independent figures of a product, and the least time of its splits: batches do not split sums."""
    ideal_s = 2.0 / (hw[_PEAK] * p[_TENSOR])
    for row in range(rows):
        m, n, k, b = w[_M + row], w[_N + row], w[_K + row], w[_B + row]
        read_s, write_s = _traffic(m, n, k, b, hw, rates)
        slower, c_s = slowed_ratio(m, n, k, b, hw, p), b * m * n * rates[2]
        # A library may leave all of k to one kernel.
        whole = (hw[_SINGLE] > 0.0) & (m > 1.0) & (b * m * n * k < _SMALL) & (k <= _LONGEST)
        read_s *= slower
        w[_READ + row], w[_WRITE + row], w[_MOVED + row], w[_SLOWER + row] = read_s, write_s, read_s + write_s, slower
        w[_STORED + row], w[_ADDED + row] = p[_EXPOSED] * fused(c_s, hw[_C], write_s), c_s * 4.0
        w[_STEP_S + row] = p[_SERIAL] if whole else rates[7]
        w[_FLOOR + row] = 1e300 if whole | (b > 1.0) else max(m * n * k * ideal_s, read_s + write_s) * _SLACK
        w[_LEAST + row], w[_KIND + row], w[_TIMES + row], w[_PLACE + row] = 1e60, 0.0, 1.0, float(row)


@compiled()
def _taken(
    load: float, depth: float, flop_s: float, edge_s: float, start_s: float, step_s: float, memory_s: float,
    store_s: float, split_s: float, parts: float, part_s: float,
) -> tuple[float, ...]:  # fmt: skip
    """Return the times of products, cache, memory, latency, stores and adding up, and the waves of tiles."""
    few = load <= 1.0
    waves = 1.0 if few else fused(_SHOWN, ceiling(load) - load, load)
    each = (1.0 if few else store_s) / (load if few else waves)
    filling = max(1.0, each * (1.0 / _FILL)) if few else 1.0
    reduce = fused(parts * part_s if few else part_s, each if few else parts, split_s)
    return (
        waves * fused(depth, flop_s, start_s), max(load, 1.0) * depth * edge_s, memory_s * filling,
        waves * depth * step_s, store_s * filling if few else each, reduce, waves,
    )  # fmt: skip


@compiled()
def _improve(rows: int, times: float, hw: Any, p: Any, rates: Any, kinds: Any, w: Any) -> None:
    """Take the tile that ends first with k in so many parts where it ends sooner than what was found before."""
    start_s, ramp_s, deep, per_sm = p[_START], p[_RAMP], hw[_DEEP], rates[5]
    split_s, parts, most = (p[_SPLIT], times + 1.0, _MOST_TILES) if times > 1.0 else (0.0, 0.0, 1e300)
    for row in range(rows):
        w[_DEPTH + row] = deep * ceiling(w[_K + row] * (_EXACT / (deep * times)))
    for kind in range(len(kinds)):
        tile_m, tile_n, part_m, part_n, flop_s, edge_s = kinds[kind]
        half_m = 0.5 * tile_m if tile_m > 64.0 and len(kinds) > 1 else 0.0
        half_n = 0.5 * tile_n if tile_n > 64.0 and len(kinds) > 1 else 0.0
        for row in range(rows):
            m, n = w[_M + row], w[_N + row]
            load = w[_B + row] * ceiling(m * part_m) * ceiling(n * part_n) * times * per_sm
            tensor, cache, memory, chain, store, reduce, _ = _taken(
                load, w[_DEPTH + row], flop_s, edge_s * w[_SLOWER + row], start_s, w[_STEP_S + row], w[_MOVED + row],
                w[_STORED + row], split_s, parts, w[_ADDED + row],
            )  # fmt: skip
            time_s = norm(tensor, cache, memory, chain) + (store + reduce + min(ramp_s * load, ramp_s))
            # where half the tile covers as much, that one is tried
            better = (time_s < w[_LEAST + row]) & (m > half_m) & (n > half_n) & (load <= most)
            w[_LEAST + row] = time_s if better else w[_LEAST + row]
            w[_KIND + row] = float(kind) if better else w[_KIND + row]
            w[_TIMES + row] = times if better else w[_TIMES + row]


@compiled()
def _keep_hopeful(rows: int, times: float, hw: Any, p: Any, kinds: Any, source: Any, sink: Any) -> int:
    """Copy rows to the front of `sink` that may end sooner with k in so many parts or more; return how many."""
    count, least_k = 0, _DEEPEST * hw[_DEEP] * times
    largest_area = 0.0
    for kind in range(len(kinds)):
        largest_area = max(largest_area, kinds[kind][_ALONG_M] * kinds[kind][_ALONG_N])
    most = _MOST_TILES * hw[_SM] * largest_area / (times * _SLACK)
    for row in range(rows):
        floor_s = source[_FLOOR + row] + p[_SPLIT] + (times + 1.0) * source[_ADDED + row]
        has_few = source[_M + row] * source[_N + row] <= most
        if (floor_s < source[_LEAST + row]) & (source[_K + row] >= least_k) & has_few:
            sink[_LEAST + count], sink[_TIMES + count] = source[_LEAST + row], source[_TIMES + row]
            for column in range(_M, _OWN_FLOP_S, _BLOCK):
                sink[column + count] = source[column + row]
            count += 1
    return count


@compiled()
def _search(rows: int, hw: Any, p: Any, rates: Any, kinds: Any, splits: Any, w: Any, some: Any) -> None:
    """Find the fastest tile and split of each row; `some` takes the rows that splits are tried on."""
    _prepare(rows, hw, p, rates, w)
    _improve(rows, 1.0, hw, p, rates, kinds, w)
    count = _keep_hopeful(rows, splits[1], hw, p, kinds, w, some)
    for times in splits[1:]:
        count = _keep_hopeful(count, times, hw, p, kinds, some, some)
        if count == 0:
            return
        _improve(count, times, hw, p, rates, kinds, some)
        for row in range(count):
            place = int(some[_PLACE + row])
            for column in (_LEAST, _KIND, _TIMES):
                w[column + place] = some[column + row]


@compiled()
def _describe(rows: int, hw: Any, p: Any, rates: Any, kinds: Any, w: Any) -> None:
    """Write the resource times of each row with its fastest tile and split."""
    start_s, split_s, deep, per_sm = p[_START], p[_SPLIT], hw[_DEEP], rates[5]
    for row in range(rows):
        tile_m, tile_n, part_m, part_n, flop_s, edge_s = kinds[int(w[_KIND + row])]
        w[_TILE_M + row], w[_TILE_N + row], w[_OWN_FLOP_S + row], w[_OWN_EDGE_S + row] = tile_m, tile_n, flop_s, edge_s
        tiles, times = w[_B + row] * ceiling(w[_M + row] * part_m) * ceiling(w[_N + row] * part_n), w[_TIMES + row]
        w[_DEPTH + row], w[_LOAD + row] = (
            deep * ceiling(w[_K + row] * (_EXACT / (deep * times))),
            tiles * times * per_sm,
        )
    for row in range(rows):
        load, is_split = w[_LOAD + row], w[_TIMES + row] > 1.0
        tensor, cache, memory, chain, store, reduce, waves = _taken(
            load, w[_DEPTH + row], w[_OWN_FLOP_S + row], w[_OWN_EDGE_S + row] * w[_SLOWER + row], start_s,
            w[_STEP_S + row], w[_MOVED + row], w[_STORED + row], split_s if is_split else 0.0,
            w[_TIMES + row] + 1.0 if is_split else 0.0, w[_ADDED + row],
        )  # fmt: skip
        w[_TENSOR_S + row], w[_CACHE_S + row], w[_MEMORY_S + row], w[_CHAIN_S + row] = tensor, cache, memory, chain
        w[_BODY_S + row], w[_STORE_S + row], w[_REDUCE_S + row] = norm(tensor, cache, memory, chain), store, reduce
        w[_BUSY + row], w[_WAVES + row] = min(load, 1.0), waves


@compiled()
def _waterfall(rows: int, hw: Any, p: Any, w: Any) -> None:
    """Write the parts of each row by its fastest tile, the norm's excess with the second largest."""
    for row in range(rows):
        tensor, cache, memory, chain = w[_TENSOR_S + row], w[_CACHE_S + row], w[_MEMORY_S + row], w[_CHAIN_S + row]
        excess = w[_BODY_S + row] - max(tensor, cache, memory, chain)
        share0, share1, share2, share3 = shares(tensor, cache, memory, chain, excess)
        ratio = share0 / tensor if tensor > 0.0 else 0.0
        ideal = 2.0 * w[_B + row] * w[_M + row] * w[_N + row] * w[_K + row] / hw[_PEAK]
        depth_s = w[_DEPTH + row] * hw[_SM] / (p[_TENSOR] * hw[_PEAK]) * 2.0 * w[_TILE_M + row] * w[_TILE_N + row]
        filled = max(w[_LOAD + row], 0.0) * depth_s
        out = _PARTS + row
        w[out] = p[_LAUNCH]
        w[out + _BLOCK] = p[_RAMP] * w[_BUSY + row]
        w[out + 2 * _BLOCK] = ratio * ideal
        w[out + 3 * _BLOCK] = ratio * (ideal / p[_TENSOR] - ideal)
        w[out + 4 * _BLOCK] = ratio * (filled - ideal / p[_TENSOR])
        w[out + 5 * _BLOCK] = ratio * fused(w[_WAVES + row], depth_s, -filled)
        w[out + 6 * _BLOCK] = ratio * w[_WAVES + row] * p[_START]
        w[out + 7 * _BLOCK] = share1
        read_s, write_s = w[_READ + row], w[_WRITE + row]
        read, write = read_s * p[_DRAM], write_s * p[_STORE]
        scale = share2 / memory if memory > 0.0 else 0.0
        w[out + 8 * _BLOCK] = scale * (read + write)
        w[out + 9 * _BLOCK] = scale * (read_s + write_s - read - write)
        w[out + 10 * _BLOCK] = scale * (memory - read_s - write_s)
        w[out + 11 * _BLOCK] = share3
        w[out + 12 * _BLOCK] = w[_STORE_S + row]
        w[out + 13 * _BLOCK] = w[_REDUCE_S + row]
        w[out + 14 * _BLOCK] = tensor * p[_CLOCK] * (tensor / w[_LEAST + row]) * tensor / (tensor + CLOCK_S)


@compiled()
def _surroundings(rows: int, hw: Any, p: Any, w: Any) -> None:
    """Write the parts around the product: quantising A, padding, and the host's launch; and the sum of all parts."""
    is_quantised, needs_blocks, host_s = hw[_QUANTISED] > 0.0, hw[_BLOCKS] > 0.0, p[_HOST] if hw[_HOSTED] > 0.0 else 0.0
    for row in range(rows):
        m, n, k, b, out = w[_M + row], w[_N + row], w[_K + row], w[_B + row], _PARTS + row
        whole = (PADDED * floor(n / PADDED) == n) & (PADDED * floor(k / PADDED) == k)
        w[out + 15 * _BLOCK] = quantise_s(m, k, b, hw, p) if is_quantised else 0.0
        w[out + 16 * _BLOCK] = p[_PAD] if is_quantised & needs_blocks & (not whole) else 0.0
        w[out + 17 * _BLOCK] = host_s
        early = _four(w, out) + _four(w, out + 4 * _BLOCK)
        late = _four(w, out + 8 * _BLOCK) + _four(w, out + 12 * _BLOCK)
        w[_SUM + row] = early + late + (w[out + 16 * _BLOCK] + w[out + 17 * _BLOCK])


@compiled()
def _four(w: Any, first: int) -> float:
    """Return the sum of four columns of a row."""
    return float((w[first] + w[first + _BLOCK]) + (w[first + 2 * _BLOCK] + w[first + 3 * _BLOCK]))


@compiled()
def quantise_s(m: float, k: float, b: float, hw: Any, p: Any) -> float:
    """Return the time of quantising A from bf16: start, rows that wait for a multiprocessor, and bytes."""
    moved, rows = b * m * k * (hw[_QUANTISED] + hw[_A]), b * m / hw[_SM]
    miss = min(max(moved / (p[_QUANTISE_KEPT] * hw[_CACHE]) - 0.5, 0.0), 1.0)
    row_s = fused(p[_QUANTISE_ROW], rows, p[_QUANTISE_RAMP] * rows / (1.0 + rows))
    port = _PORT * hw[_CLOCK_HZ] * hw[_SM]
    byte_s = moved * (miss / (p[_DRAM] * hw[_BANDWIDTH]) + p[_QUANTISE_PASSES] / port)
    return float(p[_QUANTISE]) + math.sqrt(fused(row_s, row_s, byte_s * byte_s))


def case_fill(hw: Any, p: Any, tiles: tuple[Any, Any]) -> Callable[..., list[float]]:
    """Return a function from m, n, k and batch to the parts of one product's time, with their sum at the end."""

    def fill_one(m: float, n: float, k: float, batch: float) -> list[float]:
        results = np.empty(_PART_COUNT + 1)
        _fill_case(float(m), float(n), float(k), float(batch), hw, p, *tiles, SPLITS, results)
        parts: list[float] = results.tolist()
        return parts

    return fill_one


@compiled(_PLAIN_CASES)
def _fill_case(
    m: float, n: float, k: float, b: float, hw: Any, p: Any, tile_m: Any, tile_n: Any, splits: Any, parts: Any
) -> None:
    """Write the parts of one product's time, and their sum behind them."""
    w, some, rates = room(_SIZE), room(_PARTS), _rates(hw, p)
    w[_M], w[_N], w[_K], w[_B] = m, n, k, b
    _block(1, hw, p, rates, _kinds(tile_m, tile_n, rates), splits, w, some)
    for part in range(_PART_COUNT + 1):
        parts[part] = w[_PARTS + part * _BLOCK]


@compiled()
def _block(rows: int, hw: Any, p: Any, rates: Any, kinds: Any, splits: Any, w: Any, some: Any) -> None:
    """Write everything that is found of the rows of a block."""
    _search(rows, hw, p, rates, kinds, splits, w, some)
    _describe(rows, hw, p, rates, kinds, w)
    _waterfall(rows, hw, p, w)
    _surroundings(rows, hw, p, w)


@compiled(_PLAIN_CASES)
def fill(
    m: Any, n: Any, k: Any, b: Any, hw: Any, p: Any, tile_m: Any, tile_n: Any, splits: Any, parts: Any, times: Any
) -> None:
    """Write the parts of each row's time, one row of `parts` for each part, and their sum."""
    w, some, rates = room(_SIZE), room(_PARTS), _rates(hw, p)
    kinds = _kinds(tile_m, tile_n, rates)
    for start in range(0, len(m), _BLOCK):
        end = min(start + _BLOCK, len(m))
        rows = end - start
        w[_M : _M + rows], w[_N : _N + rows] = m[start:end], n[start:end]
        w[_K : _K + rows], w[_B : _B + rows] = k[start:end], b[start:end]
        _block(rows, hw, p, rates, kinds, splits, w, some)
        times[start:end] = w[_SUM : _SUM + rows]
        for part in range(_PART_COUNT):
            first = _PARTS + part * _BLOCK
            parts[part][start:end] = w[first : first + rows]
