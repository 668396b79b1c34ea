"""Batches by width: no other batches of so many items pad less, by brute force over all of them."""

import random

import pytest
from tests.sampling import sampled

from nearpeak.systems.edge.width_buckets import batches_of, padded_width


def partitions(items, size, count):
    """Yield all ways to put items into at most `count` batches of at most `size`."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for smaller in partitions(rest, size, count):
        for place, batch in enumerate(smaller):
            if len(batch) < size:
                yield [*smaller[:place], [first, *batch], *smaller[place + 1 :]]
        if len(smaller) < count:
            yield [[first], *smaller]


@pytest.mark.parametrize("seed", sampled(range(30), 10))
def test_sorted_batches_pad_least_of_all_batches(seed):
    draw = random.Random(seed)
    widths = [draw.randint(1, 40) for _ in range(draw.randint(1, 7))]
    size = draw.randint(1, 4)
    count = -(-len(widths) // size)
    least = min(padded_width(widths, batches) for batches in partitions(list(range(len(widths))), size, count))
    ours = batches_of(widths, size)
    assert padded_width(widths, ours) == least
    assert len(ours) == count
    assert sorted(place for batch in ours for place in batch) == list(range(len(widths)))
