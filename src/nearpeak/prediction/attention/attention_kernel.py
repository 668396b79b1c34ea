"""Compiled attention model: query tiles, visited and split keys, and the time breakdown of the best choice."""

import math
from collections.abc import Callable
from struct import Struct
from typing import Any

import numpy as np

from nearpeak.base.compilation import compiled, room

_BLOCK = 64.0
"""Keys that a tile of queries meets at a time."""
_LANES = 64.0
"""Rows of queries that one thread block of a decode kernel takes."""
_LATENT_LANES = 128.0
"""The same over a latent cache, whose one key head all 128 query heads of DeepSeek-V3 share (arXiv:2412.19437)."""
_WIDTH = 128.0
"""Width of heads by which the others are measured."""
_SATURATION = 0.3
"""Share of the multiprocessors that saturates memory: not identified by any measurement."""
_CLOCK_S = 10e-3
"""Time after which the clock falls."""
_SOURCE_BYTES = 2.0
"""Bytes of an element as the projection before attention leaves it."""
_LATENT = 576.0
"""Elements of a token that multi-head latent attention keeps in its cache (DeepSeek-V2, arXiv:2405.04434)."""
_PART_COUNT, _COLUMN_COUNT = 18, 15
_PACK_INTO = Struct(f"{_COLUMN_COUNT}d").pack_into  # half the time that NumPy takes for numbers one by one
_PLAIN_CASES = 2000
"""Cases that plain Python predicts in less time than compiling takes."""
BEST_COUNT = 17
"""Figures of the best kernel."""
SPLITS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0)
"""Parts into which decode kernels split the keys of a sequence."""
TILES = (64.0, 128.0, 256.0)
"""Rows of queries per tile that prefill kernels are built for."""


@compiled()
def _waves(load: float, hidden: float) -> float:
    """Return how many tiles one multiprocessor runs in sequence."""
    if load <= 1.0:
        return 1.0
    return load + (1.0 - hidden) * (math.ceil(load) - load)


@compiled()
def _together(first: float, second: float) -> float:
    """Return the time of two that run side by side: the longer, and a little of the shorter where they are alike."""
    longer, shorter = max(first, second), min(first, second)
    time: float = longer * (1.0 + (shorter / longer) ** 5.0) ** 0.2 if longer > 0.0 else 0.0
    return time


@compiled()
def _width_ratio(width: float, narrow: float, wide: float) -> float:
    """Return the cost of kernels of a width against those of 128; `narrow` is that of 64, `wide` that of 256."""
    steps = math.log(width / _WIDTH) / math.log(2.0)
    ratio: float = narrow ** min(-steps, 1.0) if steps < 0.0 else wide ** min(steps, 2.0)
    return ratio


@compiled()
def _traffic(shape: Any, keys: float, fresh: float, residency: float, hw: Any) -> tuple[float, float]:
    """Return bytes of queries, keys, values and outputs, and the share of them that the cache does not keep.

    Args:
        fresh: keys among them that are read as the projection leaves them, not as they are stored.
    """
    b, hq, hk, q, _kv, d, dv, stored = shape
    cache_bytes = b * hk * stored * (keys * hw[6] + fresh * max(hw[7] - hw[6], 0.0))
    edge_bytes = b * hq * q * (d * hw[7] + dv * _SOURCE_BYTES)
    moved = cache_bytes + edge_bytes
    return moved, min(max(moved / (residency * hw[3]) - 0.5, 0.0), 1.0)


@compiled()
def decode_times(
    shape: Any, keys: float, windowed: float, generic: float, apart: float, hw: Any, p: Any, best: Any
) -> None:
    """Write into `best` the parts of a decode kernel with the best split of the keys.

    Where heads run `apart` (1), each query head is a separate thread block, which reads the keys of its group again;
    of a simple kernel (2), which does not split them.
    The first are blocks, memory, both as they overlap, and adding up the parts; from the tenth on looking up sequences,
    starting, and after a gap blocks over multiprocessors, products of a multiprocessor, bytes, share not in cache.
    """
    b, hq, hk, q, _kv, d, dv, stored = shape
    sets = hq if apart > 0.0 else hk
    rows = q * hq / sets
    latent, most = (1.0, 1.0, 1.0, 1.0, 1.0), _LANES
    if stored == d and d != dv:
        latent, most = (p[43], p[44], p[45], p[46], p[47]), _LATENT_LANES
    lanes = 8.0
    while lanes < min(rows, most):
        lanes *= 2.0
    units, blocks = b * sets * math.ceil(rows / most), math.ceil(keys / _BLOCK)
    moved, miss = _traffic(shape, keys, 0.0, p[3], hw)
    again = b * (sets - hk) * keys * stored * hw[6]
    l2, slow = p[2] * latent[4] * hw[4], p[37] if generic > 1.0 else p[13] if generic > 0.0 else 1.0
    start = (
        (p[5] * latent[1] * (p[8] if rows == 1.0 else 1.0) + p[6] * latent[3] * lanes * (d + dv) / (2.0 * _WIDTH))
        * slow
        / hw[4]
    )
    block = (p[7] * latent[2] / hw[4] + _BLOCK * (stored * hw[6] / l2 + 2.0 * lanes * (d + dv) * hw[1] / hw[0])) * slow
    if apart == 1.0:
        start = p[36] / hw[4]
    elif apart > 1.0:
        start, block = p[34] * (d + dv) / _WIDTH / hw[4], p[35] * _BLOCK * (d + dv) / _WIDTH / hw[4]
    fastest = 1e300
    for split in SPLITS:
        if split > blocks or (apart > 1.0 and split > 1.0):
            break
        load, deep = units * split / hw[1], math.ceil(blocks / split)
        tiles = _waves(load, p[4]) * (start + deep * block)
        few = 1.0 / min(1.0, load / _SATURATION) if load > 0.0 else 1.0
        memory = _together(moved * miss * few / (p[1] * hw[2]), (moved + again) / (l2 * hw[1]))
        body = (tiles**5.0 + memory**5.0) ** 0.2
        combine = 0.0
        if split > 1.0:
            combine = (p[9] + p[10] * split) / hw[4] + (split + 1.0) * b * hq * q * dv * 4.0 / (l2 * hw[1])
        if body + combine < fastest:
            fastest = body + combine
            best[0], best[1], best[2], best[3] = tiles, memory, body, combine
            best[4], best[5] = load * start, load * deep * block
            best[6], best[7] = moved * miss / hw[2], moved * miss / (p[1] * hw[2])
            best[8] = best[7] * few
            best[12], best[13] = (
                load,
                _waves(load, p[4]) * deep * 2.0 * _BLOCK * lanes * (d + dv) * hw[1] / hw[0] * slow,
            )
            best[14], best[15] = moved, miss
    best[9], best[10] = b * p[11] / hw[4], hw[10] + (p[0] * latent[0] + windowed * p[12]) / hw[4]


@compiled()
def _visited(q: float, kv: float, per_tile: float, window: float, causal: float) -> tuple[float, float, float]:
    """Return tiles along a sequence, the keys that all of them visit together and the most that one visits.

    Of more queries than keys under a causal mask, those beyond see no key, or all of them where `causal` is above 1.
    """
    tiles, whole = math.ceil(q / per_tile), math.ceil(kv / _BLOCK) * _BLOCK
    reach = whole
    if window > 0.0:
        reach = min(whole, window + max(per_tile, _BLOCK))
    if causal == 0.0 or tiles <= 1.0:
        return tiles, tiles * reach, reach
    beyond = max(q - kv, 0.0)
    seeing = math.ceil((q - beyond) / per_tile)
    first = kv - (q - beyond) + per_tile + 0.5 * (_BLOCK - min(per_tile, _BLOCK))
    rising = min(max(math.floor((reach - first) / per_tile) + 1.0, 0.0), seeing)
    seen = rising * (first + 0.5 * per_tile * (rising - 1.0)) + (seeing - rising) * reach
    return tiles, seen + (beyond / per_tile * reach if causal > 1.0 else 0.0), reach


@compiled()
def prefill_times(
    shape: Any, mask: Any, packs: float, generic: float, most_rows: float, hw: Any, p: Any, best: Any
) -> None:
    """Write into `best` the parts of a prefill kernel with the best tile of queries, heads of a group packed or not.

    The first are blocks, memory, both as they overlap, and loss of clock; from the tenth on appending keys, starting,
    and after a gap blocks over multiprocessors, products, bytes, share not in cache, special functions.
    """
    b, hq, hk, q, kv, d, dv, stored = shape
    window, causal = mask
    width, l2 = 0.5 * (d + dv), p[16] * hw[4]
    slow, first = _width_ratio(width, 1.0, p[23]), _width_ratio(width, p[22], 1.0)
    if d != dv:
        slow, first = p[29], p[30]
    if generic > 0.0:
        slow = p[38] if generic > 1.0 else p[28]
    reach = window if generic == 0.0 or window == 0.0 else window + p[32] * max(kv - window, 0.0)
    unmasked = (1.0, 1.0, 1.0, 1.0) if causal > 0.0 else (p[39], p[40], p[41], p[42])
    start, fastest = p[19] * first * unmasked[1] / hw[4], 1e300
    moved, miss = _traffic(shape, kv, min(q, kv), p[17] / hw[9], hw)
    memory = _together(moved * miss / (p[15] * hw[2]), moved / (l2 * hw[1]))
    for choice in range(2 * len(TILES)):
        rows, together = TILES[choice // 2], 1.0
        if rows > most_rows:
            break
        if choice % 2 == 1:
            if packs == 0.0 or hq == hk or hq > hk * rows:  # lone heads, or more than a tile holds
                continue
            together = hq / hk
        if rows >= 2.0 * q * together and rows > TILES[0]:
            continue
        per_tile = max(rows / together, 1.0)
        tiles, seen, most = _visited(q, kv, per_tile, reach, causal)
        load = b * (hq / together) * tiles / hw[1]
        ideal, cache = 2.0 * rows * (d + dv) * hw[1] / hw[0], stored * max(hw[6], hw[7]) / l2
        tensor, special = ideal / (p[20] * unmasked[2]), rows / (p[21] * unmasked[3] * hw[5] * hw[4])
        formed = (tensor ** hw[8] + special ** hw[8]) ** (1.0 / hw[8])
        key_s = (formed**3.0 + cache**3.0) ** (1.0 / 3.0)
        masked = p[24] * max(per_tile, _BLOCK) if reach > 0.0 else 0.0
        keys = seen / tiles + masked
        busy = max(_waves(load, p[18]) * (start + keys * key_s * slow), start + (most + masked) * key_s * slow)
        body = math.sqrt(busy * busy + memory * memory)
        if body < fastest:
            fastest = body
            best[0], best[1], best[2], best[3] = busy, memory, body, busy * p[27] * busy / (busy + _CLOCK_S)
            best[4], best[5] = load * start, load * keys * key_s * slow
            best[6], best[7] = moved * miss / hw[2], moved * miss / (p[15] * hw[2])
            best[8], best[11] = best[7], load * seen / tiles * ideal
            best[12], best[13] = load, _waves(load, p[18]) * keys * tensor
            best[14], best[15], best[16] = moved, miss, _waves(load, p[18]) * keys * special
    fresh = b * min(q, kv) * (_LATENT if d != dv else hk * (d + dv + p[33])) * (_SOURCE_BYTES + hw[6])
    if hw[7] < _SOURCE_BYTES:
        fresh += b * hq * q * d * (_SOURCE_BYTES + hw[7])
    best[9] = (p[26] if causal > 0.0 else 0.0) * _together(fresh * miss / (p[15] * hw[2]), fresh / (l2 * hw[1]))
    best[10] = hw[10] + (p[14] * unmasked[0] + (p[25] if window > 0.0 else 0.0) + (p[31] if d != dv else 0.0)) / hw[4]


@compiled()
def _pairs(q: float, kv: float, window: float, causal: float) -> float:
    """Return the pairs of query and key of one head that count."""
    if causal == 0.0:
        return q * kv
    reach = kv if window == 0.0 else min(window, kv)
    beyond = max(q - kv, 0.0)
    q = q - beyond
    rising = min(max(reach - (kv - q), 0.0), q)
    seen = rising * (kv - q) + 0.5 * rising * (rising + 1.0) + (q - rising) * reach
    return seen + (beyond * reach if causal > 1.0 else 0.0)


@compiled()
def _shares(best: Any) -> tuple[float, float]:
    """Return the weights of tiles and of memory in the sum: the larger counts whole, the other fills up."""
    if best[0] >= best[1]:
        return 1.0, (best[2] - best[0]) / best[1] if best[1] > 0.0 else 0.0
    return (best[2] - best[1]) / best[0], 1.0


def case_fill(hw: Any, p: Any) -> Callable[..., list[float]]:
    """Return a function from the columns of one case to the parts of its time, with their sum at the end."""

    def fill_one(*columns: float) -> list[float]:
        packed: Any = np.empty(_COLUMN_COUNT)
        results = np.empty(_PART_COUNT + 1)
        _PACK_INTO(packed, 0, *columns)
        _fill_case(packed, hw, p, results)
        parts: list[float] = results.tolist()
        return parts

    return fill_one


@compiled(_PLAIN_CASES, items=lambda *_: 1)
def _fill_case(columns: Any, hw: Any, p: Any, results: Any) -> None:
    """Write the parts of one case's time, and their sum behind them."""
    results[_PART_COUNT] = _fill_row(columns, hw, p, room(BEST_COUNT), results)


@compiled(_PLAIN_CASES)
def fill(columns: Any, hw: Any, p: Any, parts: Any, times: Any) -> None:
    """Write for each row the parts of its time and their sum.

    Args:
        columns: a row of figures for each case.
    """
    best = room(BEST_COUNT)
    for row in range(len(columns)):
        times[row] = _fill_row(columns[row], hw, p, best, parts[row])


@compiled()
def _fill_row(c: Any, hw: Any, p: Any, best: Any, part: Any) -> float:
    """Write the parts of the time of a case, and return their sum."""
    shape = (c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7])
    window, causal, packs, generic, decodes = c[8], c[9], c[10], c[11], c[12]
    for place in range(_PART_COUNT):
        part[place] = 0.0
    keys = c[4] if window == 0.0 else min(c[4], window + c[3] - 1.0)
    if decodes > 0.0:
        decode_times(shape, keys, 1.0 if window > 0.0 else 0.0, generic, c[14], hw, p, best)
        tiles, memory = _shares(best)
        part[0], part[1], part[2] = best[10], best[9], best[3]
        part[3], part[4] = tiles * best[4], tiles * best[5]
        part[5] = tiles * (best[0] - best[4] - best[5])
        part[6], part[7] = memory * best[6], memory * (best[8] - best[6])
        part[8] = memory * (best[1] - best[8])
    else:
        prefill_times(shape, (window, causal), packs, generic, c[13], hw, p, best)
        tiles, memory = _shares(best)
        useful = 2.0 * c[0] * c[1] * _pairs(c[3], c[4], window, causal) * (c[5] + c[6]) / hw[0]
        part[9], part[10], part[11] = best[10], tiles * best[4], tiles * useful
        part[12] = tiles * (best[11] - useful)
        part[13] = tiles * (best[5] - best[11])
        part[14] = tiles * (best[0] - best[4] - best[5])
        part[15], part[16] = memory * best[1], best[9]
        part[17] = best[3]
    total = 0.0
    for place in range(_PART_COUNT):
        total += part[place]
    # What stays in cache here came from memory once: keys of other layers pass in between.
    once = _traffic(shape, keys, 0.0, 1.0, hw)[0] / hw[2]
    if once > total:
        part[6] += once - total
        total = once
    return float(total)
