"""Compiled grouped-GEMM model: tiles over unequal groups, and the time breakdown of the best tile."""

import math
from typing import Any

from nearpeak.base.compilation import compiled, room

TILE_ROWS = (16.0, 32.0, 64.0, 128.0, 256.0)
"""Rows of a tile that libraries build kernels for."""
TILE_COLUMNS = (64.0, 128.0, 256.0)
"""Columns likewise."""
_QUANTILES = 16
"""Groups by which a skewed load is represented."""
CLOCK_S = 10e-3
"""Time after which the clock falls."""
OUT_BYTES = 2.0
"""Bytes of an element of a product, and of tokens."""
_PLAIN_CASES = 1000
"""Cases that plain Python predicts in less time than compiling takes."""
BEST_COUNT = 15
"""Figures of the fastest tile."""


@compiled()
def group_rows(rows: float, touched: float, exponent: float, loads: Any) -> None:
    """Write the rows of groups at the even quantiles of a load that `loads` has, their mean `rows` / `touched`.

    None is below 1.

    A load with an exponent follows x ** -exponent between 1 and a fifth of the rows.
    """
    mean = rows / max(touched, 1.0)
    if exponent == 0.0:
        whole = math.floor(mean)
        count = round((mean - whole) * len(loads))
        for i in range(len(loads)):
            loads[i] = max(whole + (1.0 if i < count else 0.0), 1.0)
        return
    top, power, total = max(0.2 * rows, 2.0), 1.0 - exponent, 0.0
    for i in range(len(loads)):
        u = (i + 0.5) / len(loads)
        loads[i] = (u * (top**power - 1.0) + 1.0) ** (1.0 / power)
        total += loads[i]
    for i in range(len(loads)):
        loads[i] = max(loads[i] * mean * len(loads) / total, 1.0)


@compiled()
def foreign_rows(rows: float, tokens: float, everywhere: float) -> float:
    """Return the rows of arriving tokens that belong to experts of other devices.

    A token arrives if any of its experts is here, with as many rows as it has experts.
    """
    return max(min(tokens, rows) * everywhere / max(tokens, 1.0) - rows, 0.0)


@compiled()
def tile_times(
    m: float, n: float, k: float, touched: float, foreign: float, loads: Any, hw: Any, p: Any, best: Any
) -> None:
    """Write into `best` what one grouped product takes of each resource with its fastest tile.

    From the second place on: products, cache, memory and latency, seconds of all tiles; further figures of the same
    tile, its rows and columns, its load and waves; last the seconds of the `foreign` rows, which come after the others.
    """
    weight_bytes, edge_bytes = touched * n * k * hw[6], m * (k * hw[5] + n * OUT_BYTES)
    miss = min(max((weight_bytes + edge_bytes) / (p[7] * hw[3]) - 0.5, 0.0), 1.0)
    fetched = (weight_bytes + edge_bytes) * miss
    l2 = p[3] * hw[4]
    best[0], least = 1e300, 1e300
    for bm in TILE_ROWS:
        deep = 0.0
        for i in range(len(loads)):
            deep += math.ceil(loads[i] / bm)
        deep *= touched / len(loads)
        for bn in TILE_COLUMNS:
            load = deep * math.ceil(n / bn) / hw[1]
            waves = 1.0 if load <= 1.0 else load + (1.0 - p[8]) * (math.ceil(load) - load)
            tile_s = k * 2.0 * bm * bn * hw[1] / hw[0]
            tensor = waves * (tile_s / p[1] + p[4])
            cache = max(load, 1.0) * k * (bm * hw[5] + bn * hw[6]) / l2
            dram = fetched / (p[2] * hw[2])
            memory = dram / min(1.0, min(load, 1.0) / p[6])
            chain = waves * math.ceil(k / hw[7]) * p[5]
            x, y, z, v = tensor * tensor, cache * cache, memory * memory, chain * chain
            squares = x * x + y * y + z * z + v * v
            whole, after = squares, 0.0
            if foreign > 0.0:  # in tiles of the same size; one expert's weights stay in cache
                more = math.ceil(foreign / bm) * math.ceil(n / bn) / hw[1]
                after = more * max(tile_s / p[1] + p[4], k * (bm * hw[5] + bn * hw[6]) / l2)
                whole = (math.sqrt(math.sqrt(squares)) + after) ** 4.0
            if whole < least:
                least, best[14] = whole, after
                best[0], best[1], best[2], best[3], best[4] = squares, tensor, cache, memory, chain
                best[5], best[6], best[7], best[8] = load * tile_s, waves * p[4], dram, fetched / hw[2]
                best[9] = waves * tile_s / p[1]
                best[10], best[11], best[12], best[13] = bm, bn, load, waves


@compiled()
def _add(useful: float, best: Any, p: Any, part: Any) -> None:
    """Add the parts of one product: each of four times counts by its share in the sum of fourth powers."""
    body = math.sqrt(math.sqrt(best[0]))
    weights = [best[i] ** 3.0 / body**3.0 for i in range(1, 5)]
    part[3] += weights[0] * useful
    part[4] += weights[0] * (best[5] - useful)
    part[5] += weights[0] * (best[5] / p[1] - best[5])
    part[6] += weights[0] * (best[9] - best[5] / p[1])
    part[7] += weights[0] * best[6]
    part[8] += weights[1] * best[2]
    part[9] += weights[2] * best[8]
    part[10] += weights[2] * (best[7] - best[8])
    part[11] += weights[2] * (best[3] - best[7])
    part[12] += weights[3] * best[4]
    part[13] += best[1] * weights[0] * p[13] * best[1] / (best[1] + CLOCK_S)
    part[14] += best[14]


@compiled(_PLAIN_CASES)
def fill(columns: Any, matrices: float, exponent: float, hw: Any, p: Any, parts: Any, times: Any) -> None:
    """Write for each row the parts of its time and their sum.

    Args:
        columns: for each case its rows, columns, depth, groups, touched groups, tokens, and rows of all its devices.
        matrices: 1, or the matrices of an expert that one layer multiplies by: 3 with a gate, 2 without.
    """
    best, loads = room(BEST_COUNT), room(_QUANTILES)
    for row in range(len(columns)):
        m, n, k, groups, touched, tokens, everywhere = columns[row]
        part = parts[row]
        for place in range(len(part)):
            part[place] = 0.0
        part[0] = p[0]
        group_rows(m, touched, exponent, loads)
        if matrices > 1.0:
            inner = n / matrices
            part[1] = p[9] + p[10] * groups + p[11] * tokens
            foreign = p[14] * foreign_rows(m, tokens, everywhere)
            rows = m + foreign + p[15] * max(everywhere - m, 0.0)
            moved = (2.0 * min(tokens, m) * k + rows * (2.0 * k + matrices * inner)) * OUT_BYTES
            miss = min(max(moved / (p[7] * hw[3]) - 0.5, 0.0), 1.0)
            part[2] = p[12] * moved * (miss / (p[2] * hw[2]) + 1.0 / (p[3] * hw[4] * hw[1]))
            tile_times(m, n - inner, k, touched, foreign, loads, hw, p, best)
            _add(2.0 * m * (n - inner) * k / hw[0], best, p, part)
            tile_times(m, k, inner, touched, foreign, loads, hw, p, best)
            _add(2.0 * m * inner * k / hw[0], best, p, part)
        else:
            part[1] = p[10] * groups
            tile_times(m, n, k, touched, 0.0, loads, hw, p, best)
            _add(2.0 * m * n * k / hw[0], best, p, part)
        total = 0.0
        for place in range(len(part)):
            total += part[place]
        # What stays in cache here came from memory once: weights of other layers pass in between.
        once = (m * k * hw[5] + touched * n * k * hw[6] + m * n * OUT_BYTES) / hw[2]
        if once > total:
            part[9] += once - total
            total = once
        times[row] = total
