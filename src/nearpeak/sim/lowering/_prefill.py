"""Attention with many queries: tiles of queries that visit the keys block by block, heads of a group packed or not."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from nearpeak.core.target import Target
from nearpeak.predict._kernel_kin import multiplies_in_pairs
from nearpeak.sim.lowering._lowering import filling, ps
from nearpeak.sim.lowering._sequences import SOURCE_BYTES, Sequences, has_kernel
from nearpeak.sim.work import Kernel, Phase

_BLOCK = 64.0
"""Keys that a tile of queries meets at a time."""
_TILES = (64.0, 128.0, 256.0)
"""Rows of queries per tile that kernels are built for."""
_WIDTH = 128.0
"""Width of heads by which the others are measured."""
_LATENT = 576.0
"""Elements of a token that multi-head latent attention keeps in its cache (DeepSeek-V2, arXiv:2405.04434)."""
_CLOCK_S = 10e-3
"""Time after which the clock falls."""


class _Tiles(NamedTuple):
    """A kernel by its tile: time of its blocks, of their products, and how many there are."""

    busy_s: float
    tensor_s: float
    special_s: float
    ctas: int


def prefill(s: Sequences, target: Target, p: Mapping[str, float], flop_per_s: float) -> Kernel:
    """Return the kernel of the tile whose blocks end first, with the appending of new keys and values."""
    moved, miss = _traffic(s, target, p)
    l2 = p["l2_bytes_per_clock"] * target.clock_hz * target.sm_count
    bandwidth = p["dram_ratio"] * (target.dram.bandwidth_bytes_per_s or 1.0)
    memory_s = moved * (miss / bandwidth + 1 / l2)
    best = min(_choices(s, target, p, flop_per_s), key=lambda one: math.hypot(one.busy_s, memory_s))
    body, longest = math.hypot(best.busy_s, memory_s), max(best.busy_s, memory_s)
    fresh = s.batch * min(s.q, s.kv) * (SOURCE_BYTES + s.kv_bytes)
    fresh *= _LATENT if s.dim != s.v_dim else s.kv_heads * (s.dim + s.v_dim + p["append_row_count"])
    if s.element_bytes < SOURCE_BYTES:
        fresh += s.batch * s.heads * s.q * s.dim * (SOURCE_BYTES + s.element_bytes)
    append_s = p["append_ratio"] * fresh * (miss / bandwidth + 1 / l2)
    hot_s = best.busy_s * p["clock_ratio"] * best.busy_s / (best.busy_s + _CLOCK_S)
    uneven = p["uneven_launch_s"] if s.dim != s.v_dim else 0.0
    phases = (
        Phase(fixed_ps=ps(p["launch_s"] + (p["window_s"] if s.window else 0.0) + uneven)),
        Phase(
            fixed_ps=ps(longest), pipe_s={"tensor": best.tensor_s, "special": best.special_s},
            pool_bytes={"dram": moved * miss / best.ctas, "l2": moved / best.ctas},
        ),
        Phase(fixed_ps=ps(body - longest + append_s)),
        Phase(fixed_ps=ps(hot_s), sags=True),
    )  # fmt: skip
    return Kernel(name="prefill", cta_count=best.ctas, phases=phases, needs=filling(target))


def _traffic(s: Sequences, target: Target, p: Mapping[str, float]) -> tuple[float, float]:
    """Return bytes of queries, keys, values and outputs, and the share of them that the cache does not keep."""
    moved = s.batch * s.kv_heads * s.kv * s.stored * s.kv_bytes
    moved += s.batch * s.heads * s.q * (s.dim * s.element_bytes + s.v_dim * SOURCE_BYTES)
    return moved, min(max(moved / (p["residency_ratio"] * (target.l2.capacity_bytes or 1)) - 0.5, 0.0), 1.0)


def _choices(s: Sequences, target: Target, p: Mapping[str, float], flop_per_s: float) -> list[_Tiles]:
    """Return the kernels that libraries have for it."""
    paired = multiplies_in_pairs(target)
    packs = (1.0, s.heads / s.kv_heads) if not paired and s.heads != s.kv_heads else (1.0,)
    known = has_kernel(s, target)
    found = []
    for rows in _TILES[: 3 if paired else 2]:
        for together in packs:
            if rows < 2 * s.q * together or rows == _TILES[0]:
                found.append(_tiles(s, target, p, flop_per_s, (rows, together, known)))
    return found


def _tiles(
    s: Sequences, target: Target, p: Mapping[str, float], flop_per_s: float, shape: tuple[float, float, bool]
) -> _Tiles:
    """Return the kernel of one tile."""
    rows, together, known = shape
    sm, per_tile = target.sm_count, max(rows / together, 1.0)
    slow, start = _costs(s, p, known)
    reach = s.window if known or not s.window else s.window + p["generic_reach_ratio"] * max(s.kv - s.window, 0.0)
    tiles, seen, most = _visited(s.q, s.kv, per_tile, reach, s.causal)
    count = s.batch * (s.heads / together) * tiles
    load = count / sm
    waves = 1.0 if load <= 1 else load + (1 - p["hidden_tail_ratio"]) * (math.ceil(load) - load)
    tensor = 2 * rows * (s.dim + s.v_dim) * sm / flop_per_s / p["tensor_ratio"]
    special = rows / (p["special_ratio"] * (target.special_per_clock or 16.0) * target.clock_hz)
    cache = s.stored * s.kv_bytes / (p["l2_bytes_per_clock"] * target.clock_hz)
    key_s = (tensor**3 + special**3 + cache**3) ** (1 / 3)
    masked = p["masked_ratio"] * max(per_tile, _BLOCK) if reach else 0.0
    keys = seen / tiles + masked
    busy = max(waves * (start + keys * key_s * slow), start + (most + masked) * key_s * slow)
    return _Tiles(busy, waves * keys * tensor, waves * keys * special, max(1, round(min(count, sm))))


def _costs(s: Sequences, p: Mapping[str, float], known: bool) -> tuple[float, float]:
    """Return the cost of a key against what its work says, and of starting a tile."""
    if not known:
        return p["generic_ratio"], p["start_s"] * _narrow(s, p)
    if s.dim != s.v_dim:
        return p["uneven_ratio"], p["start_s"] * p["uneven_start_ratio"]
    steps = math.log2(0.5 * (s.dim + s.v_dim) / _WIDTH)
    return (p["wide_ratio"] ** min(steps, 2.0) if steps > 0 else 1.0), p["start_s"] * _narrow(s, p)


def _narrow(s: Sequences, p: Mapping[str, float]) -> float:
    steps = math.log2(0.5 * (s.dim + s.v_dim) / _WIDTH)
    return float(p["narrow_start_ratio"] ** min(-steps, 1.0)) if steps < 0 else 1.0


def _visited(q: float, kv: float, per_tile: float, window: float, causal: bool) -> tuple[float, float, float]:
    """Return tiles along a sequence, the keys that all of them visit together, and the most that one visits."""
    tiles, whole = math.ceil(q / per_tile), math.ceil(kv / _BLOCK) * _BLOCK
    reach = min(whole, window + max(per_tile, _BLOCK)) if window else whole
    if not causal or tiles <= 1:
        return tiles, tiles * reach, reach
    first = kv - q + per_tile + 0.5 * (_BLOCK - min(per_tile, _BLOCK))
    rising = min(max(math.floor((reach - first) / per_tile) + 1.0, 0.0), tiles)
    return tiles, rising * (first + 0.5 * per_tile * (rising - 1)) + (tiles - rising) * reach, reach
