"""How collectors of mixtures of experts spread tokens: rows and touched experts of the rank that is timed."""

import math
from functools import lru_cache

import numpy as np

DRAW_COUNT = 16
"""Loads drawn of a power law; their means count."""
_EXACT_TOKENS = 512
"""Tokens up to which an even load is followed token by token."""


@lru_cache(maxsize=100_000)
def even_load(tokens: int, top_k: int, experts: int, ranks: int) -> tuple[int, int]:
    """Return rows and touched experts of the first rank when every expert gets as many tokens as any other.

    Each token takes experts at equal distances; few tokens start at equal distances too.

    >>> even_load(1, 8, 128, 1), even_load(1024, 8, 128, 8), even_load(1, 8, 128, 8)
    ((8, 8), (1024, 16), (1, 1))
    """
    own, stride = experts // ranks, math.ceil(experts / top_k)
    if tokens > _EXACT_TOKENS:
        return max(round(tokens * top_k / ranks), 1), own
    first = np.arange(tokens) if tokens >= stride else (np.arange(tokens) * stride / tokens).astype(int)
    chosen = ((first[:, None] + np.arange(top_k) * stride) % experts).reshape(-1)
    own_rows = chosen[chosen < own]
    return max(len(own_rows), 1), max(len(np.unique(own_rows)), 1)


@lru_cache(maxsize=100_000)
def skewed_load(tokens: int, top_k: int, experts: int, ranks: int, exponent: float) -> tuple[int, int]:
    """Return rows and touched experts of the fullest rank when loads of experts follow a power law.

    Loads are drawn from x ** -exponent on [1, 0.8 * tokens] (on [0.01, 2] where tokens are fewer than experts), scaled
    to all rows and rounded; what is missing goes to the emptiest experts, one row each. The means of seeded draws.

    >>> rows, touched = skewed_load(64, 1, 128, 1, 1.01)
    >>> rows, 40 < touched < 55
    (64, True)
    """
    rows = tokens * top_k
    low, high = (1.0, max(0.8 * tokens, 1.01)) if rows > experts else (0.01, 2.0)
    draw, power = np.random.default_rng(0).random((DRAW_COUNT, experts)), 1.0 - exponent
    loads = (draw * (high**power - low**power) + low**power) ** (1.0 / power)
    counts = np.sort(np.minimum(np.rint(loads / loads.sum(axis=1, keepdims=True) * rows), tokens), axis=1)
    missing = np.maximum(rows - counts.sum(axis=1), 0)[:, None]
    counts += (missing > np.arange(experts)) + np.floor_divide(np.maximum(missing - experts, 0), experts)
    order = np.argsort(np.random.default_rng(1).random((DRAW_COUNT, experts)), axis=1)
    by_rank = np.take_along_axis(counts, order, axis=1).reshape(DRAW_COUNT, ranks, -1)
    fullest = by_rank[np.arange(DRAW_COUNT), by_rank.sum(axis=2).argmax(axis=1)]
    return max(round(fullest.sum(axis=1).mean()), 1), max(round((fullest > 0).sum(axis=1).mean()), 1)
