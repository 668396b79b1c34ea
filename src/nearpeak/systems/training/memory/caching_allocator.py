"""A model of PyTorch's caching allocator on the device: what it reserves for a sequence of allocations and frees."""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

ROUND_BYTES = 512
"""Sizes are rounded up to this."""
SMALL_BYTES = 2**20
"""Largest request that the pool of small blocks serves."""
SMALL_SEGMENT_BYTES = 2 * 2**20
"""Segment of the pool of small blocks."""
MIDDLE_BYTES = 10 * 2**20
"""Larger requests get a segment of their own size."""
MIDDLE_SEGMENT_BYTES = 20 * 2**20
"""Segment for requests up to MIDDLE_BYTES; also the page of an expandable segment."""
LARGE_ROUND_BYTES = 2 * 2**20
"""Segments of large requests are rounded up to this."""

Event = tuple[Hashable, int]
"""A tensor's key and its size; size 0 frees it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorPeaks:
    """Peaks of an allocator."""

    allocated_bytes: int
    """Largest sum of tensors."""
    reserved_bytes: int
    """Largest sum of segments."""


def allocator_peaks(events: Iterable[Event], *, is_expandable: bool = False) -> AllocatorPeaks:
    """Return the peaks of a sequence of allocations and frees on one stream.

    Blocks are rounded to 512 B; the smallest free block that is large enough is taken, and split where more than 512 B
    (small pool) or 1 MiB (large pool) would be left; freed neighbours merge; segments are never given back.

    Args:
        is_expandable: whether segments grow in pages in place of new ones (`expandable_segments:True`).

    Source: PyTorch, c10/cuda/CUDACachingAllocator.cpp, and its notes "CUDA semantics", memory management.

    >>> peaks = allocator_peaks([("a", 30 * 2**20), ("a", 0), ("b", 20 * 2**20), ("c", 12 * 2**20)])
    >>> peaks.allocated_bytes // 2**20, peaks.reserved_bytes // 2**20
    (32, 42)
    """
    pools = {True: _Pool(is_small=True, is_expandable=is_expandable), False: _Pool(is_expandable=is_expandable)}
    where: dict[Hashable, tuple[bool, int, int]] = {}
    allocated = most = 0
    for key, size in events:
        if size:
            rounded = -(-size // ROUND_BYTES) * ROUND_BYTES
            is_small = rounded <= SMALL_BYTES
            where[key] = (is_small, pools[is_small].allocate(rounded), rounded)
            allocated += rounded
            most = max(most, allocated)
        else:
            is_small, address, rounded = where.pop(key)
            pools[is_small].free(address)
            allocated -= rounded
    return AllocatorPeaks(allocated_bytes=most, reserved_bytes=sum(pool.reserved_bytes for pool in pools.values()))


class _Pool:
    """Free and used blocks of one pool; each segment begins at an address that no other touches."""

    def __init__(self, *, is_small: bool = False, is_expandable: bool = False) -> None:
        self._is_small, self._is_expandable = is_small, is_expandable
        self._free: list[tuple[int, int]] = []  # size and address, smallest first
        self._size: dict[int, int] = {}  # of every block, free or used
        self._is_free: dict[int, bool] = {}
        self._before: dict[int, int] = {}  # address of the block below, within one segment
        self._next_segment = 0
        self.reserved_bytes = 0

    def allocate(self, size: int) -> int:
        """Return the address of a block of a size."""
        place = bisect_left(self._free, (size, -1))
        if place < len(self._free):
            block, address = self._free.pop(place)
        else:
            block, address = self._grow(size)
        self._is_free[address] = False
        rest = block - size
        if rest >= ROUND_BYTES if self._is_small or self._is_expandable else rest > SMALL_BYTES:
            self._resize(address, size)
            self._insert(address + size, rest, before=address)
        return address

    def free(self, address: int) -> None:
        """Give a block back and merge it with free neighbours."""
        size = self._size[address]
        above, below = address + size, self._before.get(address)
        if self._is_free.get(above) and self._before.get(above) == address:
            size += self._remove(above)
        if below is not None and self._is_free[below]:
            size += self._remove_free(below)
            self._forget(address)
            address = below
        self._resize(address, size)
        self._is_free[address] = True
        insort(self._free, (size, address))

    def _grow(self, size: int) -> tuple[int, int]:
        """Return the size and address of a new free block that is large enough."""
        if self._is_expandable:
            return self._extend(size)
        if self._is_small:
            segment = SMALL_SEGMENT_BYTES
        elif size < MIDDLE_BYTES:
            segment = MIDDLE_SEGMENT_BYTES
        else:
            segment = -(-size // LARGE_ROUND_BYTES) * LARGE_ROUND_BYTES
        address = self._next_segment
        self._next_segment += segment + ROUND_BYTES  # a gap, so that segments do not merge
        self.reserved_bytes += segment
        self._size[address] = segment
        return segment, address

    def _extend(self, size: int) -> tuple[int, int]:
        """Return a block at the end of the only segment, mapped page by page."""
        page = SMALL_SEGMENT_BYTES if self._is_small else MIDDLE_SEGMENT_BYTES
        end = self.reserved_bytes
        tail = next((block for block in self._free if sum(block) == end), None)
        address = end
        if tail:
            self._free.remove(tail)
            address = tail[1]
        grown = -(-(address + size - end) // page) * page
        self.reserved_bytes += grown
        if not tail and self._size:
            self._before[address] = max(self._size)
        self._size[address] = end + grown - address
        return self._size[address], address

    def _resize(self, address: int, size: int) -> None:
        """Set a block's size, and tell the block above where it begins."""
        self._size[address] = size
        if address + size in self._size:
            self._before[address + size] = address

    def _insert(self, address: int, size: int, *, before: int) -> None:
        """Add a free block above another."""
        self._before[address] = before
        self._resize(address, size)
        self._is_free[address] = True
        insort(self._free, (size, address))

    def _remove_free(self, address: int) -> int:
        """Take a block out of the free list and return its size."""
        size = self._size[address]
        self._free.pop(bisect_left(self._free, (size, address)))
        return size

    def _remove(self, address: int) -> int:
        """Remove a free block altogether and return its size."""
        size = self._remove_free(address)
        self._forget(address)
        return size

    def _forget(self, address: int) -> None:
        del self._size[address], self._is_free[address]
        self._before.pop(address, None)
