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
        count, span = 1, 1
        for stride, extent in sorted(zip(map(abs, self.strides), self.shape, strict=True)):
            if stride == 0 or extent == 1:
                continue
            reach = (extent - 1) * stride + span
            if stride >= span:
                count *= extent
            elif count == span:  # dense so far, and the next window starts within it
                count = reach
            span = reach
        return count

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
