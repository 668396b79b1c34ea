"""Rows per group of a grouped product: sampled (seeded) or stated loads of experts."""

from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.errors import SpecError

_CHUNK_ELEMENTS = 2**20
"""Random numbers drawn at a time."""
_MOST_DRAWN = 2**30
"""Random numbers beyond which a load is not drawn: ten seconds."""
_KINDS = {
    "uniform": ("top_k", "seed"),
    "zipf": ("exponent", "top_k", "seed"),
    "histogram": ("weights", "top_k", "seed"),
    "counts": ("rows",),
}


def touched_groups(load: str, rows: int, groups: int) -> int:
    """Return how many groups get a row; columns of extents give a column.

    Args:
        load: `uniform`, `zipf exponent=1.2` (expert e drawn in proportion to 1 / (e + 1) ** exponent), `histogram
            weights=5,0,3` (in proportion to the weights), each with `top_k=8` different experts per token and
            `seed=0`; or `counts rows=5,0,3`, the rows themselves.

    Raises:
        SpecError: the load is not known or contradicts the extents.

    >>> touched_groups("uniform top_k=8", 8, 256), touched_groups("counts rows=5,0,3", 8, 3)
    (8, 2)
    """
    shape = np.broadcast_shapes(np.shape(rows), np.shape(groups))
    every = [
        sum(count > 0 for count in counts_of(load, int(r), int(g)))
        for r, g in zip(*(np.broadcast_to(extent, shape).reshape(-1) for extent in (rows, groups)), strict=True)
    ]
    counts: int = np.array(every).reshape(shape) if shape else every[0]  # type: ignore[assignment]  # columns
    return counts


@lru_cache(maxsize=1024)
def counts_of(load: str, rows: int, groups: int) -> tuple[int, ...]:
    """Return the rows of each group.

    Each token draws `top_k` different groups, so that the first rows of the table are drawn alike whatever follows.
    """
    kind, options = _parsed(load)
    if kind == "counts":
        counts = tuple(_numbers(load, options["rows"]))
        if len(counts) != groups or sum(counts) != rows:
            got = f"{len(counts)} groups with {sum(counts)} rows"
            raise SpecError(f"load={load!r}: {got}; the case has groups={groups} and {rows} rows")
        return counts
    weights = _weights(kind, load, options, groups)
    top_k = int(options.get("top_k", 1))
    if not 1 <= top_k <= np.count_nonzero(weights):
        raise SpecError(f"load={load!r}: top_k={top_k} of {np.count_nonzero(weights)} groups that can be drawn")
    tokens = -(-rows // top_k)
    if tokens * groups > _MOST_DRAWN:
        raise SpecError(
            f"load={load!r}: {tokens} tokens choosing among {groups} groups are too many to draw, at most "
            f"{_MOST_DRAWN} random numbers are; state the rows of each group, e.g. counts rows=5,0,3"
        )
    return tuple(int(count) for count in _sampled(weights, rows, top_k, int(options.get("seed", 0))))


def _sampled(weights: Any, rows: int, top_k: int, seed: int) -> Any:
    """Return the rows of each group when every token takes its `top_k` largest of weight to the power of noise.

    Source: Efraimidis and Spirakis 2006, Information Processing Letters 97(5), pages 181-185.
    """
    random, groups = np.random.default_rng(seed), len(weights)
    with np.errstate(divide="ignore"):
        power = np.where(weights > 0, 1 / np.maximum(weights, 1e-300), np.inf)
    counts = np.zeros(groups, np.int64)
    tokens, left = -(-rows // top_k), rows
    step = max(1, _CHUNK_ELEMENTS // groups)
    for start in range(0, tokens, step):
        noise = -np.log1p(-random.random((min(step, tokens - start), groups))) * power
        chosen = np.argpartition(noise, top_k - 1, axis=1)[:, :top_k].reshape(-1)[:left]
        counts += np.bincount(chosen, minlength=groups)
        left -= len(chosen)
    return counts


def _weights(kind: str, load: str, options: dict[str, str], groups: int) -> Any:
    if kind == "uniform":
        return np.ones(groups)
    if kind == "zipf":
        return 1 / np.arange(1, groups + 1) ** float(options.get("exponent", 1))
    weights = np.array(_numbers(load, options["weights"]), float)
    if len(weights) != groups:
        raise SpecError(f"load={load!r}: {len(weights)} weights for groups={groups}")
    return weights


def _parsed(load: str) -> tuple[str, dict[str, str]]:
    kind, *words = load.split() or [""]
    if kind not in _KINDS:
        raise SpecError(f"load={load!r} is not known; there are {', '.join(_KINDS)}")
    options = dict(word.partition("=")[::2] for word in words)
    for name, value in options.items():
        if name not in _KINDS[kind]:
            raise SpecError(f"load={load!r}: no option {name!r}; {kind} has {', '.join(_KINDS[kind])}")
        if name in ("top_k", "seed") and not value.isdigit():
            raise SpecError(f"load={load!r}: {name}={value!r} is not a whole number of at least 0")
        if name == "exponent" and not value.replace(".", "", 1).isdigit():
            raise SpecError(f"load={load!r}: {name}={value!r} is not a number of at least 0")
    missing = [name for name in ("weights", "rows") if name in _KINDS[kind] and not options.get(name)]
    if missing:
        raise SpecError(f"load={load!r}: {missing[0]} is missing; e.g. {kind} {missing[0]}=5,0,3")
    return kind, options


def _numbers(load: str, text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isdigit() for part in parts):
        raise SpecError(f"load={load!r}: {text!r} is no list of whole numbers such as 5,0,3")
    return [int(part) for part in parts]
