"""Exact taps of sliding windows: which pairs of output position and kernel tap fall inside the input."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby

import numpy as np

from nearpeak.errors import SpecError
from nearpeak.ops._arrays import ceil_div, maximum, per_row


@dataclass(frozen=True, slots=True, kw_only=True)
class Taps:
    """Counts of one dimension, or of several multiplied; positions in padding are never counted."""

    size: int
    """Input positions."""
    outputs: int
    """Output positions."""
    taps: int
    """Kernel taps."""
    pair_count: int
    """Pairs of output position and tap that fall on an input position."""
    touched_count: int
    """Input positions that some pair falls on."""
    live_output_count: int
    """Output positions with at least one such pair."""
    live_tap_count: int
    """Kernel taps with at least one such pair."""

    def __mul__(self, other: "Taps") -> "Taps":
        """Return the counts of both dimensions together: a pair falls inside when it does in each."""
        return Taps(**{name: getattr(self, name) * getattr(other, name) for name in self.__slots__})


def windows(*dimensions: tuple[int, int, int, int, int | None, int], ceil: bool = False) -> Taps:
    """Return the taps of windows sliding over the dimensions (size, kernel, stride, padding, padding end, dilation).

    Args:
        ceil: a last window that hangs over the end counts too, as in the frameworks' pooling.

    >>> windows((7, 3, 1, 1, None, 1), (7, 3, 1, 1, None, 1)).pair_count
    361
    """
    product = Taps(**dict.fromkeys(Taps.__slots__, 1))
    for size, kernel, stride, padding, end, dilation in dimensions:
        outputs = output_extent(size, kernel, stride, padding, end, dilation, ceil=ceil)
        product = product * taps(size, outputs, kernel, stride, padding, dilation)
    return product


def output_extent(
    size: int, kernel: int, stride: int, padding: int, end: int | None, dilation: int, *, ceil: bool = False
) -> int:
    """Return how many windows fit; `end` none means as much padding as at the beginning.

    >>> output_extent(224, 7, 2, 3, None, 1), output_extent(5, 2, 3, 1, None, 1, ceil=True)
    (112, 2)
    """
    if np.any(np.asarray(stride) < 1):
        raise SpecError(f"window: stride {stride} is below 1")
    room = size + padding + (padding if end is None else end) - dilation * (kernel - 1) - 1
    if not ceil:
        return maximum(0, room // stride + 1)
    count = ceil_div(room, stride) + 1
    # PyTorch and ONNX drop a last window that would start in the padding at the end.
    return maximum(0, count - ((count - 1) * stride >= size + padding))


def taps(size: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> Taps:
    """Return the taps of one dimension: output o meets tap k at input position o*stride - padding + k*dilation.

    >>> taps(7, 7, 3, 1, 1).pair_count, taps(56, 28, 1, 2, 0).touched_count
    (19, 28)
    """
    pairs, touched, live_outputs, live_taps = (
        per_row(lambda *row, field=field: _counts(*row)[field], size, outputs, kernel, stride, padding, dilation)
        for field in range(4)
    )
    return Taps(
        size=size, outputs=outputs, taps=kernel, pair_count=pairs, touched_count=touched,
        live_output_count=live_outputs, live_tap_count=live_taps,
    )  # fmt: skip


@cache
def _counts(
    size: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int
) -> tuple[int, int, int, int]:
    """Return pairs, touched input positions, live outputs and live taps."""
    live = list(_live(size, outputs, kernel, stride, padding, dilation))
    # Input position = stride * (output + shift) + residue, so each residue class is a union of intervals.
    classes = [(*divmod(tap * dilation - padding, stride), first, stop) for tap, first, stop in live]
    shifted = sorted((residue, first + shift, stop + shift) for shift, residue, first, stop in classes)
    touched = sum(_union(row[1:] for row in rows) for _, rows in groupby(shifted, key=lambda row: row[0]))
    spans = sorted((first, stop) for _, first, stop in live)
    return sum(stop - first for first, stop in spans), touched, _union(spans), len(live)


def _live(
    size: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int
) -> Iterator[tuple[int, int, int]]:
    """Give each tap that meets the input, with the first and one past the last output that it serves."""
    for tap in range(kernel if outputs else 0):
        first = max(0, ceil_div(padding - tap * dilation, stride))
        stop = min(outputs, (size - 1 + padding - tap * dilation) // stride + 1)
        if first < stop:
            yield tap, first, stop


def _union(intervals: Iterable[tuple[int, ...]]) -> int:
    """Return how many integers sorted half-open intervals cover."""
    covered, end = 0, None
    for first, stop in intervals:
        begin = first if end is None else max(first, end)
        covered += max(0, stop - begin)
        end = stop if end is None else max(end, stop)
    return covered
