"""Page cache of a training set that is read once an epoch: hit rates in closed form, and simulators of replacement."""

import math
import random
from collections import OrderedDict
from collections.abc import Callable, Sequence

from nearpeak.errors import SpecError

_STEPS = 200
"""Halvings that leave an interval of 0 to 1 at one number."""


def hit_ratio(cache_ratio: float, order: str = "random", replacement: str = "lru") -> float:
    """Return the share of reads in later epochs that the cache serves.

    With a new random order in each epoch and least-recently-used replacement it is c + (1 − c) ln(1 − c): an item read
    at u of one epoch and at v of the next (both of 0 to 1) is still there when 1 − u + uv < c, as the items read in
    between are the rest of the first epoch and, of the second, those that the rest did not hold. Always in the same
    order, each item goes out just before its turn: 0. Items that stay once they are in: c.

    Args:
        cache_ratio: bytes of the cache over bytes of the data set.
        order: `random` or `same`.
        replacement: `lru` or `minio`.

    Raises:
        SpecError: the share is below 0 or no number.

    >>> [round(hit_ratio(share), 4) for share in (0.25, 0.5, 0.75, 0.9)]
    [0.0342, 0.1534, 0.4034, 0.6697]
    >>> hit_ratio(0.5, "same"), hit_ratio(0.5, replacement="minio"), hit_ratio(1.0)
    (0.0, 0.5, 1.0)
    """
    if not cache_ratio >= 0:
        raise SpecError(f"page cache: share {cache_ratio!r} of the data set; give at least 0")
    if cache_ratio >= 1:
        return 1.0
    if replacement == "minio":
        return cache_ratio
    if order == "same":
        return 0.0
    return cache_ratio + (1 - cache_ratio) * math.log1p(-cache_ratio)


def cache_ratio_of(wanted_ratio: float, order: str = "random", replacement: str = "lru") -> float:
    """Return the least share of the data set that a cache must hold for a hit rate.

    >>> round(cache_ratio_of(hit_ratio(0.3)), 6), cache_ratio_of(0.2, "same"), cache_ratio_of(0.2, replacement="minio")
    (0.3, 1.0, 0.2)
    """
    low, high = 0.0, 1.0
    if hit_ratio(low, order, replacement) >= wanted_ratio:
        return low
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if hit_ratio(middle, order, replacement) >= wanted_ratio:
            high = middle
        else:
            low = middle
    return high


def random_epochs(items: int, epoch_count: int, seed: int, order: str = "random") -> list[list[int]]:
    """Return the items in the order in which each epoch reads them.

    >>> [sorted(epoch) for epoch in random_epochs(3, 2, 0)]
    [[0, 1, 2], [0, 1, 2]]
    """
    draw, epochs = random.Random(seed), []
    for _ in range(epoch_count):
        epoch = list(range(items))
        if order == "random":
            draw.shuffle(epoch)
        epochs.append(epoch)
    return epochs


def simulated_hits(epochs: Sequence[Sequence[int]], capacity: int, replacement: str) -> list[float]:
    """Return the share of reads of each epoch that a cache of `capacity` items serves; the first finds it empty.

    Args:
        replacement: `lru`, `minio`, or `two_list`: as Linux has it, a page that is read again while it is on the
            inactive list moves to the active one, which is kept no longer than the inactive one (mm/vmscan.c; refault
            distances of mm/workingset.c are not simulated).

    >>> simulated_hits([[0, 1, 2], [0, 1, 2]], 2, "minio"), simulated_hits([[0, 1, 2], [0, 1, 2]], 2, "lru")
    ([0.0, 0.6666666666666666], [0.0, 0.0])
    """
    if replacement not in _CACHES:
        raise SpecError(f"page cache: replacement {replacement!r} is not one of {', '.join(_CACHES)}")
    read = _CACHES[replacement](capacity)
    return [sum(read(item) for item in epoch) / len(epoch) for epoch in epochs]


def _lru(capacity: int) -> Callable[[int], bool]:
    pages = OrderedDict[int, None]()

    def read(item: int) -> bool:
        is_hit = item in pages
        if is_hit:
            pages.move_to_end(item)
        elif capacity:
            if len(pages) >= capacity:
                pages.popitem(last=False)
            pages[item] = None
        return is_hit

    return read


def _minio(capacity: int) -> Callable[[int], bool]:
    pages = set[int]()

    def read(item: int) -> bool:
        is_hit = item in pages
        if len(pages) < capacity:
            pages.add(item)
        return is_hit

    return read


def _two_lists(capacity: int) -> Callable[[int], bool]:
    active, inactive = OrderedDict[int, None](), OrderedDict[int, None]()

    def read(item: int) -> bool:
        if item in active:
            active.move_to_end(item)
            return True
        is_hit = item in inactive
        if is_hit:
            del inactive[item]
            active[item] = None
            if len(active) > max(1, capacity // 2):
                inactive[active.popitem(last=False)[0]] = None
        elif capacity:
            if len(active) + len(inactive) >= capacity:
                (inactive or active).popitem(last=False)
            inactive[item] = None
        return is_hit

    return read


_CACHES = {"lru": _lru, "minio": _minio, "two_list": _two_lists}
