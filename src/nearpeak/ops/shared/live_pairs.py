"""Unmasked (live) query-key pairs of attention: counts for bands and chunks, and the masks themselves."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nearpeak.errors import SpecError
from nearpeak.ops.shared.definition.array_arithmetic import maximum, minimum, unless_empty, where

ALIGNMENTS = ("upper_left", "lower_right")
"""Query i is aligned with key i (PyTorch's is_causal), or the last query with the last key (decode, FlashAttention)."""


class Live(NamedTuple):
    """Counts of live pairs, keys and queries under a mask, for one head or all of them."""

    pairs: int
    """Pairs of query and key that take part."""
    keys: int
    """Keys that at least one query sees."""
    queries: int
    """Queries that see at least one key."""


class Band(NamedTuple):
    """A mask that positions alone decide."""

    left: int
    """Keys up to its own position that a query sees, its own included; 0 stands for all."""
    right: int
    """Keys from its own position on that a query sees, its own included; 0 stands for all."""
    chunk: int
    """Positions of one chunk, beyond which no query sees; 0 stands for one chunk of all."""
    causal: bool
    """Nothing after the own position is seen."""
    align: str
    """One of ALIGNMENTS."""


def band_live(q: int, kv: int, band: Band) -> Live:
    """Return what the band leaves of q * kv scores, exactly, for integers and columns alike.

    Raises:
        SpecError: an unknown alignment, or chunks together with a window.

    >>> band_live(4, 4, Band(left=0, right=0, chunk=0, causal=True, align="upper_left"))
    Live(pairs=10, keys=4, queries=4)
    >>> band_live(2, 8, Band(left=2, right=0, chunk=0, causal=True, align="lower_right"))
    Live(pairs=4, keys=3, queries=2)
    """
    if band.align not in ALIGNMENTS:
        raise SpecError(f"attention: align={band.align!r} is not one of {', '.join(ALIGNMENTS)}")
    if np.any((band.chunk > 0) & ((band.left > 0) | (band.right > 0))):
        raise SpecError("attention: chunk contradicts left and right; a mask has chunks or a window, not both")
    shift = kv - q if band.align == "lower_right" else 0 * q
    windowed, chunked = _window(q, kv, shift, band), _chunks(q, kv, shift, band)
    return Live(*(where(band.chunk > 0, *pair) for pair in zip(chunked, windowed, strict=True)))


def _window(q: int, kv: int, shift: int, band: Band) -> Live:
    """Count keys j with p - before <= j <= p + after for queries at p = i + shift."""
    every = q + kv
    if type(band.left) is int and not band.left and band.causal:  # no key is too early: nothing is taken off below
        seen = _clamped(shift + q, kv)
        return Live(_below(q, kv, shift), unless_empty(q, seen), unless_empty(kv, q - _clamped(-shift, q)))
    before = where(band.left > 0, band.left - 1, every)
    after = 0 * kv if band.causal else where(band.right > 0, band.right - 1, every)
    pairs = _below(q, kv, shift + after) - _below(q, kv, shift - before - 1)
    keys = _clamped(shift + q + after, kv) - _clamped(shift - before, kv)
    queries = _clamped(kv - shift + before, q) - _clamped(-shift - after, q)
    return Live(pairs, unless_empty(q, keys), unless_empty(kv, queries))


def _below(q: int, kv: int, reach: int) -> int:
    """Return the pairs with j <= i + reach: rows that grow by one key each, then rows of all keys."""
    high, low = _clamped(reach + q, kv), _clamped(reach, kv)
    full = maximum(reach + q - kv, 0 * kv) - maximum(reach - kv, 0 * kv)
    return (high - low) * (high + low + 1) // 2 + full * kv


def _clamped(value: int, most: int) -> int:
    return minimum(maximum(value, 0 * most), most)


def _chunks(q: int, kv: int, shift: int, band: Band) -> Live:
    """Count keys of the query's own chunk; positions before the first key and beyond the last chunk see none."""
    chunk = maximum(band.chunk, 1)
    end = -(-kv // chunk) * chunk
    first, last = _clamped(shift, end), _clamped(shift + q, end)  # live positions, the last excluded
    start = first // chunk * chunk
    stop = minimum(last if band.causal else -(-last // chunk) * chunk, kv)
    seen = _chunk_pairs(last, kv, chunk, causal=band.causal) - _chunk_pairs(first, kv, chunk, causal=band.causal)
    return Live(seen, unless_empty(last - first, stop - start), last - first)


def _chunk_pairs(positions: int, kv: int, chunk: int, *, causal: bool) -> int:
    """Return the pairs of the first `positions` positions, which end no later than the last chunk does."""
    if causal:
        inside = minimum(positions, kv)
        rest = inside % chunk
        rising = inside // chunk * (chunk * (chunk + 1) // 2) + rest * (rest + 1) // 2
        return rising + (positions - inside) * (kv % chunk)
    full = kv // chunk * chunk
    return minimum(positions, full) * chunk + maximum(positions - full, 0 * full) * (kv % chunk)


def band_mask(q: int, kv: int, band: Band, queries: Any = None) -> Any:
    """Return the band's mask [q, kv], true where a pair is live, by the definition.

    Args:
        queries: positions of the rows that are wanted, all of them unless given.

    >>> band_mask(2, 3, Band(left=0, right=0, chunk=0, causal=True, align="lower_right")).astype(int).tolist()
    [[1, 1, 0], [1, 1, 1]]
    """
    rows = np.arange(q) if queries is None else np.asarray(queries)
    position = (rows + (kv - q if band.align == "lower_right" else 0))[:, None]
    key = np.arange(kv)[None, :]
    live = np.ones((len(rows), kv), dtype=bool)
    live &= (key > position - band.left) | (band.left == 0)
    live &= (key < position + band.right) | (band.right == 0)
    live &= (key // max(band.chunk, 1) == position // max(band.chunk, 1)) | (band.chunk == 0)
    return live & (key <= position) if band.causal else live


def mask_of(live: Live, batch: int, heads: int, kv_heads: int, q: int, kv: int) -> Any:
    """Return a mask [batch, heads, q, kv] with the counts `live`, which are sums over all heads of the batch.

    Raises:
        SpecError: no spread of the counts over the key heads' blocks has them.

    >>> mask_of(Live(3, 2, 2), 1, 1, 1, 3, 4).astype(int).tolist()
    [[[[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]]]
    """
    rows, blocks = heads // max(kv_heads, 1) * q, batch * kv_heads
    for used in range(1, blocks + 1):
        queries, keys = _spread(live.queries, used), _spread(live.keys, used)
        least = [max(pair) for pair in zip(queries, keys, strict=True)]
        most = [a * b for a, b in zip(queries, keys, strict=True)]
        if max(queries) <= rows and max(keys) <= kv and sum(least) <= live.pairs <= sum(most):
            mask = np.zeros((blocks, rows, kv), dtype=bool)
            spare = live.pairs - sum(least)
            for index in range(used):
                extra = min(spare, most[index] - least[index])
                spare -= extra
                mask[index, : queries[index], : keys[index]] = _block(queries[index], keys[index], extra)
            return mask.reshape(batch, heads, q, kv)
    raise SpecError(f"attention: no mask over [{batch}, {heads}, {q}, {kv}] has {live}")


def _spread(count: int, parts: int) -> Sequence[int]:
    return [count // parts + (index < count % parts) for index in range(parts)]


def _block(queries: int, keys: int, extra: int) -> Any:
    """Return a block in which every query and key has a pair, with `extra` pairs more than that takes."""
    live = np.zeros((queries, keys), dtype=bool)
    steps = np.arange(max(queries, keys))
    if live.size:
        live[np.minimum(steps, queries - 1), np.minimum(steps, keys - 1)] = True
    free = np.flatnonzero(~live)[:extra]
    live.reshape(-1)[free] = True
    return live
