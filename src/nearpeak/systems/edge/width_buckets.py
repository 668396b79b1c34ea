"""Bucketing of items by width into batches with the least padding."""

from collections.abc import Sequence

from nearpeak.core.edge.stage_pipeline import SORTED


def batches_of(widths: Sequence[int], size: int, order: str = SORTED) -> tuple[tuple[int, ...], ...]:
    """Return the items of each batch, at most `size` in one, in as few batches as that takes.

    Sorted by width, no other batches of so many items pad less: exchanging items of two batches towards the sorted
    order widens neither, and which batches are not full is found by dynamic programming.

    >>> batches_of([30, 90, 31, 88, 10], 2), batches_of([30, 90, 31, 88, 10], 2, "given")
    (((1, 3), (2, 0), (4,)), ((0, 1), (2, 3), (4,)))
    >>> batches_of([3, 28, 31, 37, 1], 2)
    ((3,), (2, 1), (0, 4))
    """
    places = list(range(len(widths)))
    if order != SORTED:
        return tuple(tuple(places[first : first + size]) for first in range(0, len(places), size))
    places.sort(key=lambda place: (-widths[place], place))
    count = -(-len(places) // size)
    best: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
    for batch in range(1, count + 1):
        following: dict[int, tuple[int, tuple[int, ...]]] = {}
        for first, (cost, ends) in best.items():
            for last in range(max(first + 1, len(places) - (count - batch) * size), min(first + size, len(places)) + 1):
                whole = cost + (last - first) * widths[places[first]]
                if last not in following or whole < following[last][0]:
                    following[last] = whole, (*ends, last)
        best = following
    ends = best[len(places)][1]
    return tuple(tuple(places[first:last]) for first, last in zip((0, *ends), ends, strict=False))


def padded_width(widths: Sequence[int], batches: Sequence[Sequence[int]]) -> int:
    """Return the sum of the widths of all rows after padding.

    >>> padded_width([30, 90, 31, 88, 10], batches_of([30, 90, 31, 88, 10], 2, "given"))
    366
    >>> padded_width([30, 90, 31, 88, 10], batches_of([30, 90, 31, 88, 10], 2))
    252
    """
    return sum(len(batch) * max(widths[place] for place in batch) for batch in batches)
