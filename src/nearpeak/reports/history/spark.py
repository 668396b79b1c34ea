"""Sparklines: series of values as one line of characters."""

import itertools
import statistics
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
LEAST_RANGE_RATIO = 0.02
"""The line spans at least this part of its median, so that noise does not look like a change."""


def sparkline(values: Sequence[float], width: int) -> str:
    """Return values as bars, neighbours taken together by their median where there are more than `width`.

    >>> sparkline([1.0, 1.0, 1.0, 1.1, 1.1, 1.2], 6)
    '▁▁▁▅▅█'
    >>> sparkline([1.0, 1.001], 6)
    '▄▅'
    """
    if not values:
        return ""
    binned = [statistics.median(part) for part in bins(values, width)]
    low, high, middle = min(binned), max(binned), statistics.median(binned)
    least = abs(middle) * LEAST_RANGE_RATIO
    if high - low < least:
        low, high = (low + high - least) / 2, (low + high + least) / 2
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] if scale else BARS[4] for value in binned)


def marks(indices: Sequence[int], count: int, width: int, sign: str = "▲") -> str:
    """Return a line of markers below a sparkline of `count` values that point at some of them.

    >>> marks([3], 6, 6)
    '   ▲'
    """
    line = [" "] * min(count, width)
    for index in indices:
        line[place(index, count, width)] = sign
    return "".join(line).rstrip()


def bins(values: Sequence[float], width: int) -> list[Sequence[float]]:
    """Return values in at most `width` pieces of nearly one length."""
    count = min(len(values), width)
    edges = [round(index * len(values) / count) for index in range(count + 1)]
    return [values[start:stop] for start, stop in itertools.pairwise(edges)]


def place(index: int, count: int, width: int) -> int:
    """Return the piece that the value at `index` is in."""
    pieces = min(count, width)
    edges = [round(piece * count / pieces) for piece in range(pieces + 1)]
    return next(piece for piece in range(pieces) if edges[piece] <= index < edges[piece + 1])
