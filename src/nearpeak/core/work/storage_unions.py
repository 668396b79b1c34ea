"""Bytes of one storage that several views of it touch together."""

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

from nearpeak.core.work.workload import Use

_MOST_BLOCKS = 2**16
"""Blocks of bytes beyond which views whose blocks lie differently are not laid over each other."""


class _Blocks(NamedTuple):
    """Equal blocks of bytes of a view."""

    start: int
    """First byte."""
    bytes: int
    """Size of each block."""
    runs: tuple[tuple[int, int], ...]
    """Counts of blocks and their distances in bytes, the largest first."""

    @property
    def total_bytes(self) -> int:
        """Size of all blocks."""
        return self.bytes * prod(count for count, _ in self.runs)


def union_bytes(uses: Iterable[Use]) -> int:
    """Return the bytes of one storage that are surely touched.

    Of views that a call touches in part it is as many as all would cover without what these leave out.

    >>> spans = ((0, 4), (2, 6))
    >>> union_bytes([Use(buffer=0, bytes=4, start_bytes=start, stop_bytes=stop) for start, stop in spans])
    6
    >>> columns = [Use(buffer=0, bytes=32, start_bytes=b, stop_bytes=b + 60, runs=((8, 8), (4, 1))) for b in (0, 4)]
    >>> union_bytes(columns)
    64
    """
    uses = list(dict.fromkeys(uses))
    largest = max(use.bytes for use in uses)
    if len(uses) == 1:
        return largest
    touched: dict[_Blocks, int] = {}
    for use in uses:
        *runs, (size, _) = use.runs or ((use.stop_bytes - use.start_bytes, 1),)
        blocks = _Blocks(use.start_bytes, size, tuple(runs))
        touched[blocks] = max(use.bytes, touched.get(blocks, 0))
    left_out = sum(blocks.total_bytes - size for blocks, size in touched.items())
    whole = [blocks for blocks, size in touched.items() if size == blocks.total_bytes]
    return max(largest, _covered(whole), _covered([*touched]) - left_out if left_out else 0)


def _covered(parts: Sequence[_Blocks]) -> int:
    """Return the bytes that blocks cover together; the most of one view where they are too many to lay over others."""
    if not any(part.runs for part in parts):
        return _joined([(part.start, part.bytes) for part in parts])
    outer = {part.runs[:1] for part in parts}
    if len(outer) == 1:
        (((count, distance),),) = outer
        inner = [part._replace(runs=part.runs[1:]) for part in parts]
        if max(map(_stop, inner)) - min(part.start for part in inner) <= distance:
            return count * _covered(inner)
    if sum(prod(count for count, _ in part.runs) for part in parts) > _MOST_BLOCKS:
        dense_bytes = _joined([(part.start, part.bytes) for part in parts if not part.runs])
        return max(dense_bytes, *(part.total_bytes for part in parts))
    blocks: list[tuple[int, int]] = []
    for part in parts:
        steps = [range(0, count * distance, distance) for count, distance in part.runs]
        blocks += [(part.start + sum(places), part.bytes) for places in product(*steps)]
    return _joined(blocks)


def _stop(part: _Blocks) -> int:
    """Return one past the last byte of a view."""
    return part.start + part.bytes + sum((count - 1) * distance for count, distance in part.runs)


def _joined(blocks: Iterable[tuple[int, int]]) -> int:
    """Return the bytes that blocks of (first byte, size) cover together."""
    covered, reached = 0, -1
    for start, size in sorted(blocks):
        covered += max(0, start + size - max(start, reached))
        reached = max(reached, start + size)
    return covered
