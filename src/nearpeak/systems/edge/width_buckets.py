"""Batches of items of unlike width: padding, and the batches with the least of it."""

from collections.abc import Sequence

from nearpeak.core.edge.stage_pipeline import SORTED


def batches_of(widths: Sequence[int], size: int, order: str = SORTED) -> tuple[tuple[int, ...], ...]:
    """Return the items of each batch, at most `size` in one, in as few batches as that takes.

    Sorted by width, widest first and the smaller batch last, no other batches of so many items pad less: exchanging two
    items of different batches towards this order never widens a batch.

    >>> batches_of([30, 90, 31, 88, 10], 2), batches_of([30, 90, 31, 88, 10], 2, "given")
    (((1, 3), (2, 0), (4,)), ((0, 1), (2, 3), (4,)))
    """
    places = list(range(len(widths)))
    if order == SORTED:
        places.sort(key=lambda place: (-widths[place], place))
    return tuple(tuple(places[first : first + size]) for first in range(0, len(places), size))


def padded_width(widths: Sequence[int], batches: Sequence[Sequence[int]]) -> int:
    """Return the sum of the widths of all rows after padding.

    >>> padded_width([30, 90, 31, 88, 10], batches_of([30, 90, 31, 88, 10], 2, "given"))
    366
    >>> padded_width([30, 90, 31, 88, 10], batches_of([30, 90, 31, 88, 10], 2))
    252
    """
    return sum(len(batch) * max(widths[place] for place in batch) for batch in batches)


def padded_share(widths: Sequence[int], batches: Sequence[Sequence[int]]) -> float:
    """Return the padded share of all pixels, 1 - Σ w / (b · max w) for one batch.

    >>> padded_share([50, 100], [(0, 1)])
    0.25
    """
    padded = padded_width(widths, batches)
    return 1 - sum(widths) / padded if padded else 0.0
