"""A captured tensor: shape, strides, number format and storage, without its values."""

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from nearpeak.core.work.dtype import dtype_of


class Layout(NamedTuple):
    """A tensor without its storage; the key under which matches and uses are cached."""

    shape: tuple[int, ...]
    """Extent of each dimension."""
    strides: tuple[int, ...]
    """Elements to step per dimension."""
    dtype: str
    """Canonical format."""
    offset: int
    """Elements from the start of the storage."""
    alias: int
    """Storages of one call numbered in order of appearance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A view of a storage."""

    shape: tuple[int, ...]
    """Extent of each dimension."""
    dtype: str
    """Canonical dtype name."""
    strides: tuple[int, ...] | None = None
    """Elements to step per dimension; none means contiguous."""
    buffer: int = -1
    """Number of the storage within the workload; -1 when it has none."""
    offset: int = 0
    """Elements from the start of the storage to the first element."""

    @property
    def elements(self) -> int:
        """Number of elements, broadcast ones counted each time."""
        return prod(self.shape)

    @property
    def distinct(self) -> int:
        """Number of distinct elements: broadcast ones once, overlapping windows by what they cover.

        Where windows overlap and leave gaps as well, it is a number that is surely reached.

        >>> Tensor(shape=(8, 4), dtype="fp32", strides=(0, 1)).distinct
        4
        >>> Tensor(shape=(3, 4), dtype="fp32", strides=(2, 1)).distinct
        8
        """
        if self.strides is None or not self.elements:
            return self.elements
        return prod(count for count, _ in _runs(self.shape, self.strides)[0])

    @property
    def bytes(self) -> int:
        """Bytes of the distinct elements.

        >>> Tensor(shape=(8, 4), dtype="bf16").bytes
        64
        """
        return dtype_of(self.dtype).bytes(self.distinct)

    @property
    def span_bytes(self) -> tuple[int, int]:
        """First and one-past-last byte of the storage that the view can touch."""
        size = dtype_of(self.dtype).bytes(1)
        start = self.offset * size
        if self.elements == 0:
            return (start, start)
        if self.strides is None:
            return (start, start + self.bytes)
        last = sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))
        return (start, start + (last + 1) * size)

    @property
    def block_runs(self) -> tuple[tuple[int, int], ...]:
        """Counts and distances in bytes of equal blocks, the largest distance first, and at last the block's own bytes.

        None where blocks overlap in part.

        >>> Tensor(shape=(8, 4), dtype="fp32", strides=(6, 1)).block_runs
        ((8, 24), (16, 1))
        """
        dtype = dtype_of(self.dtype)
        if not self.elements or dtype.bits_count % 8:
            return ()
        if self.strides is None:
            return ((self.bytes, 1),)
        ((count, _), *runs), is_exact = _runs(self.shape, self.strides)
        size = dtype.bytes(1)
        apart = [(blocks, stride * size) for blocks, stride in reversed(runs)]
        return (*apart, (count * size, 1)) if is_exact else ()


def _runs(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[list[tuple[int, int]], bool]:
    """Return counts and steps of elements, neighbours first, that lie apart; and whether these are all elements."""
    runs, span, is_exact = [(1, 1)], 1, True
    for stride, extent in sorted(zip(map(abs, strides), shape, strict=True)):
        if stride == 0 or extent == 1:
            continue
        count, step = runs[-1]
        if stride % step == 0 and stride <= count * step:  # it runs on, or windows overlap
            runs[-1] = ((extent - 1) * stride // step + count, step)
        elif stride >= span:
            runs.append((extent, stride))
        else:
            is_exact = False
        span += (extent - 1) * stride
    return runs, is_exact
