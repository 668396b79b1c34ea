"""Integer interval arithmetic: exposed time of each class of intervals, gaps, unions and windows."""

from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.base.compilation import compiled_exactly

Array = npt.NDArray[Any]


def exposed(start: Array, end: Array, rank: Array, classes: int) -> tuple[Array, Array]:
    """Return for each class its exposed and its whole length in nanoseconds, half-open intervals.

    Args:
        rank: class of each interval; where several are open, the smallest counts.

    >>> first, whole = exposed(np.array([0, 5]), np.array([10, 20]), np.array([0, 1]), 2)
    >>> first.tolist(), whole.tolist()
    ([10, 10], [10, 15])
    """
    points = np.concatenate([start, end])
    order = np.argsort(points, kind="stable")
    return _sweep(points, order, rank.astype(np.int64), len(start), classes)  # type: ignore[no-any-return]


@compiled_exactly()
def _sweep(points: Any, order: Any, rank: Any, count: int, classes: int) -> Any:
    """Go over all ends in order of time with the number of open intervals of each class."""
    open_now = np.zeros(classes, np.int64)
    first, whole = np.zeros(classes, np.int64), np.zeros(classes, np.int64)
    before = np.int64(0)
    for i in range(len(order)):
        at = order[i]
        length = points[at] - before
        if length > 0:
            shown = False
            for c in range(classes):
                if open_now[c] > 0:
                    whole[c] += length
                    if not shown:
                        first[c] += length
                        shown = True
        before = points[at]
        open_now[rank[at % count]] += 1 if at < count else -1
    return first, whole


@compiled_exactly()
def gaps_of(start: Any, end: Any) -> Any:
    """Return (place of the interval that ends each gap, where the gap begins) for intervals in order of start."""
    rows, begins = np.empty(len(start), np.int64), np.empty(len(start), np.int64)
    count, reach = 0, start[0] if len(start) else 0
    for i in range(len(start)):
        if start[i] > reach:
            rows[count], begins[count] = i, reach
            count += 1
        reach = max(reach, end[i])
    return rows[:count], begins[:count]


def union_ns(start: Array, end: Array) -> int:
    """Return the length of the union of intervals in order of start.

    >>> union_ns(np.array([0, 5, 30]), np.array([10, 12, 31]))
    13
    """
    if not len(start):
        return 0
    rows, begins = gaps_of(start, end)
    return int(end.max() - start[0] - (start[rows] - begins).sum())


def inside(win_start: Array, win_end: Array, start: Array, end: Array, rank: Array, classes: int) -> Array:
    """Return the time of disjoint windows by the smallest class that is open then, the last entry where none is.

    >>> inside(*(np.array(one) for one in ([0], [10], [2, 3], [5, 20], [1, 0])), 2).tolist()
    [7, 1, 2]
    """
    if not len(win_start):
        return np.zeros(classes + 1, np.int64)
    starts, ends = np.concatenate([win_start, start]), np.concatenate([win_end, end])
    ranks = np.concatenate([np.full(len(win_start), classes, np.int64), rank.astype(np.int64)])
    points = np.concatenate([starts, ends])
    return _sweep_inside(points, np.argsort(points, kind="stable"), ranks, len(starts), classes)  # type: ignore[no-any-return]


@compiled_exactly()
def _sweep_inside(points: Any, order: Any, rank: Any, count: int, classes: int) -> Any:
    """Go over all ends in order of time and count where the class after the last, the windows, is open."""
    open_now, times_ns = np.zeros(classes + 1, np.int64), np.zeros(classes + 1, np.int64)
    before = np.int64(0)
    for i in range(len(order)):
        at = order[i]
        length = points[at] - before
        if length > 0 and open_now[classes] > 0:
            c = 0
            while c < classes and open_now[c] <= 0:
                c += 1
            times_ns[c] += length
        before = points[at]
        open_now[rank[at % count]] += 1 if at < count else -1
    return times_ns
