"""Exact counts of sliding-window taps: pairs of output position and kernel tap that fall inside the input."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np

from nearpeak.ops.shared.definition.array_arithmetic import ceil_div, greatest_common_divisor, maximum
from nearpeak.ops.shared.definition.axis_checks import required_positive, required_window

AXES = ("d", "h", "w")
"""Dimensions, the last one first to be used."""
_NARROW_TAPS = 32
"""Kernels up to this wide are counted for all rows at once, tap by tap."""


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
    reuse_count: int
    """Most such pairs that any input position could meet."""

    def __mul__(self, other: "Taps") -> "Taps":
        """Return the counts of both dimensions together: a pair falls inside when it does in each."""
        return Taps(**{name: getattr(self, name) * getattr(other, name) for name in self.__slots__})


def windows(*dimensions: tuple[int, int, int, int, int | None, int], ceil: bool = False) -> Taps:
    """Return the taps of windows sliding over the dimensions (size, kernel, stride, padding, padding end, dilation).

    Args:
        ceil: a last window that hangs over the end counts too, as in the frameworks' pooling.

    Raises:
        SpecError: a kernel, stride or dilation is 0, or a kernel is absurdly wide; the axis is named.

    >>> windows((7, 3, 1, 1, None, 1), (7, 3, 1, 1, None, 1)).pair_count
    361
    """
    product = Taps(**dict.fromkeys(Taps.__slots__, 1))
    for axis, (size, kernel, stride, padding, end, dilation) in zip(AXES[-len(dimensions) :], dimensions, strict=True):
        check_window(axis, kernel, stride, dilation)
        outputs = output_extent(size, kernel, stride, padding, end, dilation, ceil=ceil)
        product = product * taps(size, outputs, kernel, stride, padding, dilation)
    return product


def check_window(axis: str, kernel: int, stride: int, dilation: int) -> None:
    """Refuse a kernel, stride or dilation below 1 and a kernel too wide to count, by the name of its axis."""
    required_window("window", **{f"k{axis}": kernel})
    required_positive("window", **{f"s{axis}": stride, f"d{axis}": dilation})


def output_extent(
    size: int, kernel: int, stride: int, padding: int, end: int | None, dilation: int, *, ceil: bool = False
) -> int:
    """Return how many windows fit; `end` none means as much padding as at the beginning.

    >>> output_extent(224, 7, 2, 3, None, 1), output_extent(5, 2, 3, 1, None, 1, ceil=True)
    (112, 2)
    """
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
    row = (size, outputs, kernel, stride, padding, dilation)
    counts: Any = _counts(*row) if all(isinstance(extent, int) for extent in row) else _columns(*row)
    pairs, touched, live_outputs, live_taps = counts
    # Taps that meet one input position differ by multiples of stride / gcd(stride, dilation).
    reuse = ceil_div(kernel, stride // greatest_common_divisor(stride, dilation))
    return Taps(
        size=size, outputs=outputs, taps=kernel, pair_count=pairs, touched_count=touched,
        live_output_count=live_outputs, live_tap_count=live_taps, reuse_count=reuse,
    )  # fmt: skip


def _columns(*columns: Any) -> Any:
    """Return the four counts as columns, in exact wide integers where the extents come as such."""
    broad = np.broadcast_arrays(*columns)
    table = np.stack([column.reshape(-1) for column in broad]).astype(np.int64)
    counts = np.empty((4, table.shape[1]), dtype=np.int64)
    wide = table[2] > _NARROW_TAPS
    counts[:, ~wide] = _narrow(table[:, ~wide])
    rows, inverse = np.unique(table[:, wide], axis=1, return_inverse=True)
    if rows.size:
        counts[:, wide] = np.array([_counts(*(int(x) for x in row)) for row in rows.T]).T[:, inverse.reshape(-1)]
    exact = counts.astype(object) if any(column.dtype == object for column in broad) else counts
    return exact.reshape(4, *broad[0].shape)


def _narrow(table: Any) -> Any:
    """Return the four counts of rows (size, outputs, kernel, stride, padding, dilation) with few taps each.

    As taps ascend, the outputs that they serve descend, and within one residue of the stride the input positions that
    they meet ascend; so what a tap adds to either union lies beyond the end of the one before it.
    """
    size, outputs, kernel, stride, padding, dilation = table
    period = stride // np.gcd(stride, dilation)
    pairs, touched, live_outputs, live_taps = (np.zeros_like(size) for _ in range(4))
    lowest, ends, each = outputs.copy(), np.empty((_NARROW_TAPS, len(size)), dtype=np.int64), np.arange(len(size))
    for tap in range(int(kernel.max(initial=0))):
        shift = (tap * dilation - padding) // stride
        first = np.maximum(0, -shift)
        stop = np.minimum(outputs, (size - 1 + padding - tap * dilation) // stride + 1)
        live = (first < stop) & (tap < kernel)
        ends[tap] = stop + shift
        before = ends[np.maximum(tap - period, 0), each]
        fresh = np.where(tap >= period, np.maximum(first + shift, before), first + shift)
        pairs += np.where(live, stop - first, 0)
        touched += np.where(live, np.maximum(0, stop + shift - fresh), 0)
        live_outputs += np.where(live, np.maximum(0, np.minimum(stop, lowest) - first), 0)
        lowest = np.where(live, np.minimum(lowest, first), lowest)
        live_taps += live
    return pairs, touched, live_outputs, live_taps


@lru_cache(maxsize=65536)
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
    """Yield each tap that meets the input, with the first and one past the last output that it serves."""
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
