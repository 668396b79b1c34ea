"""Tensor views as affine maps from the positions of a view to the positions of its source."""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from nearpeak.bounds.simplify.value_graph import Graph, Node
from nearpeak.core.work.tensor import Layout

_RECENT = 4096
"""Results kept of what layers of a model do alike."""
Factor = tuple[int, int, int]
"""Dimension of the source (-1: repeated), step along it, extent."""
Digit = tuple[int, int, int]
"""A dimension, the distance of its neighbours in the order of elements, its extent."""


class View(NamedTuple):
    """Options of a `view`: each dimension runs through factors, the outermost first."""

    groups: tuple[tuple[Factor, ...], ...]
    """Factors of each dimension; none where the extent is 1."""
    starts: tuple[int, ...]
    """First position along each dimension of the source."""


def view(graph: Graph, source: int, groups: Sequence[Sequence[Factor]], starts: Sequence[int]) -> int:
    """Return the view of `source`; the source itself where nothing changes."""
    node = graph[source]
    shape, options = _tidied(node.shape, tuple(map(tuple, groups)), tuple(starts))
    return source if options is None else graph.add("view", (source,), shape, node.dtype, options)


@lru_cache(maxsize=_RECENT)
def _tidied(
    source_shape: tuple[int, ...], groups: tuple[tuple[Factor, ...], ...], starts: tuple[int, ...]
) -> tuple[tuple[int, ...], View | None]:
    """Return the shape of a view of a tensor of shape `source_shape`, and its options; none where nothing changes."""
    tidy = tuple(_merged(group) for group in groups)
    shape = tuple(prod(extent for _, _, extent in group) for group in tidy)
    whole = tuple(((axis, 1, extent),) if extent != 1 else () for axis, extent in enumerate(source_shape))
    return shape, None if shape == source_shape and tidy == whole and not any(starts) else View(tidy, starts)


def reshape(graph: Graph, source: int, shape: Sequence[int]) -> int:
    """Return the elements of `source` in order, in another shape; extents must agree."""
    digits = row_major(graph[source].shape)
    groups = []
    stride = 1
    for extent in reversed(shape):
        group = factors(extent, stride, digits)
        assert group is not None
        groups.append(group)
        stride *= extent
    return view(graph, source, groups[::-1], (0,) * len(graph[source].shape))


def repeated(graph: Graph, source: int, shape: tuple[int, ...]) -> int:
    """Return `source` broadcast to `shape`, dimensions aligned at the end."""
    source_shape = graph[source].shape
    if source_shape == shape:
        return source
    missing = len(shape) - len(source_shape)
    groups: list[tuple[Factor, ...]] = []
    for index, extent in enumerate(shape):
        axis = index - missing
        is_kept = axis >= 0 and source_shape[axis] == extent
        groups.append(((axis, 1, extent),) if is_kept else ((-1, 0, extent),))
    return view(graph, source, groups, (0,) * len(source_shape))


def selected(graph: Graph, source: int, axis: int, start: int, extent: int, step: int = 1) -> int:
    """Return the positions start, start + step, … along one dimension."""
    shape = graph[source].shape
    groups = [((a, step if a == axis else 1, extent if a == axis else n),) for a, n in enumerate(shape)]
    return view(graph, source, groups, tuple(start if a == axis else 0 for a in range(len(shape))))


def stored(graph: Graph, content: int, lies: Layout, wanted: Layout) -> int | None:
    """Return the view `wanted` of a storage that holds `content` as `lies` says; none where no view describes it."""
    between = _between(lies, wanted)
    return None if between is None else view(graph, content, *between)


@lru_cache(maxsize=_RECENT)
def _between(lies: Layout, wanted: Layout) -> View | None:
    """Return how one tensor of a storage is seen from another."""
    digits = [(axis, s, n) for axis, (s, n) in enumerate(zip(lies.strides, lies.shape, strict=True)) if n > 1]
    digits.sort(key=lambda digit: -digit[1])
    groups = [factors(n, s, digits) for n, s in zip(wanted.shape, wanted.strides, strict=True)]
    rest = wanted.offset - lies.offset
    starts = [0] * len(lies.shape)
    for axis, stride, extent in digits:
        starts[axis], rest = divmod(rest, stride)
        if not 0 <= starts[axis] < extent:
            return None
    dense_groups = [group for group in groups if group is not None]
    if rest or len(dense_groups) < len(groups) or not _inside(dense_groups, starts, lies.shape):
        return None
    return View(tuple(dense_groups), tuple(starts))


def meets(start: int, runs: Sequence[tuple[int, int]]) -> Any:
    """Return the positions that runs of (step, extent) reach together from `start`, an array.

    >>> meets(-1, [(2, 2), (1, 3)]).tolist()
    [-1, 0, 1, 1, 2, 3]
    """
    positions = np.array([start])
    for step, extent in runs:
        positions = np.add.outer(positions, step * np.arange(extent)).reshape(-1)
    return positions


def is_part(node: Node, shape: tuple[int, ...]) -> bool:
    """Say whether a view leaves out elements of a source of that shape."""
    assert isinstance(node.options, View)
    return prod(n for group in node.options.groups for axis, _, n in group if axis >= 0) < prod(shape)


def leaves_out(options: View, shape: tuple[int, ...]) -> bool:
    """Say whether a view shows fewer elements of a source of that shape, each counted once, than there are.

    >>> leaves_out(View((((0, 1, 3),), ((0, 1, 2),)), (0,)), (6,))  # windows of two over the first four elements
    True
    """
    most, reach = [1] * len(shape), [1] * len(shape)
    for axis, step, extent in (run for group in options.groups for run in group if run[0] >= 0):
        most[axis] *= extent
        reach[axis] += step * (extent - 1)
    return any(min(seen) < extent for *seen, extent in zip(most, reach, shape, strict=True))


def separate(options: View, rank: int) -> dict[int, tuple[int, int]] | None:
    """Return step and extent by dimension of the source; none where one runs through several factors."""
    steps: dict[int, tuple[int, int]] = {}
    for group in options.groups:
        for axis, step, extent in group:
            if axis in steps:
                return None
            if axis >= 0:
                steps[axis] = (step, extent)
    return {axis: steps.get(axis, (1, 1)) for axis in range(rank)}


@lru_cache(maxsize=_RECENT)
def composed(outer: View, inner: View, shape: tuple[int, ...]) -> View | None:
    """Return the view that takes `outer` of `inner` of a source of that shape; none where no view does."""
    starts = list(inner.starts)
    groups: list[list[Factor]] = []
    for position, start in enumerate(outer.starts):
        for index, stride, extent in _digits(inner.groups[position]):
            axis, step, _ = inner.groups[position][index]
            if axis >= 0:
                starts[axis] += step * (start // stride % extent)
    for group in outer.groups:
        composed_group: list[Factor] = []
        for position, step, extent in group:
            if position < 0:
                composed_group.append((-1, 0, extent))
                continue
            parts = factors(extent, step, _digits(inner.groups[position]))
            if parts is None:
                return None
            composed_group += [
                (axis, step * times, n)
                for index, times, n in parts
                for axis, step, _ in [inner.groups[position][index]]
            ]
        groups.append(composed_group)
    if not _inside(groups, starts, shape) or not _digits_fit(outer, inner):
        return None
    return View(tuple(_merged(group) for group in groups), tuple(starts))


def factors(extent: int, stride: int, digits: Sequence[Digit]) -> tuple[Factor, ...] | None:
    """Return the factors of a dimension that moves by `stride` through dense `digits`, the outermost first.

    >>> factors(6, 1, [(0, 3, 2), (1, 1, 3)])
    ((0, 1, 2), (1, 1, 3))
    """
    parts: list[Factor] = []
    while extent > 1:
        if stride == 0:
            parts.append((-1, 0, extent))
            break
        fit = next((digit for digit in digits if digit[1] <= stride < digit[1] * digit[2]), None)
        if fit is None or stride % fit[1]:
            return None
        axis, digit_stride, size = fit
        step = stride // digit_stride
        if step * (extent - 1) < size:
            parts.append((axis, step, extent))
            break
        inner = size // step
        if size % step or extent % inner:
            return None
        parts.append((axis, step, inner))
        extent, stride = extent // inner, digit_stride * size
    return tuple(reversed(parts))


def row_major(shape: Sequence[int]) -> list[Digit]:
    """Return the dimensions of a contiguous tensor as digits, the outermost first."""
    digits: list[Digit] = []
    stride = 1
    for axis in range(len(shape) - 1, -1, -1):
        if shape[axis] > 1:
            digits.append((axis, stride, shape[axis]))
        stride *= shape[axis]
    return digits[::-1]


def _digits(group: Sequence[Factor]) -> list[Digit]:
    return row_major([extent for _, _, extent in group])


def _inside(groups: Sequence[Sequence[Factor]], starts: Sequence[int], shape: Sequence[int]) -> bool:
    """Say whether every element lies within its dimension."""
    last = list(starts)
    for group in groups:
        for axis, step, extent in group:
            if axis >= 0:
                last[axis] += step * (extent - 1)
    return all(position < max(extent, 1) for position, extent in zip(last, shape, strict=True))


def _digits_fit(outer: View, inner: View) -> bool:
    """Say whether no position of `outer` carries over from one factor of `inner` to the next."""
    last = {
        (position, index): start // stride % extent
        for position, start in enumerate(outer.starts)
        for index, stride, extent in _digits(inner.groups[position])
    }
    for group in outer.groups:
        for position, step, extent in group:
            for index, times, n in (
                factors(extent, step, _digits(inner.groups[position])) or () if position >= 0 else ()
            ):
                last[position, index] += times * (n - 1)
    return all(end < inner.groups[position][index][2] for (position, index), end in last.items())


def _merged(group: Sequence[Factor]) -> tuple[Factor, ...]:
    """Return the factors with those joined that run on from one another."""
    joined: list[Factor] = []
    for axis, step, extent in group:
        if extent == 1:
            continue
        if joined and joined[-1][0] == axis and (axis < 0 or joined[-1][1] == step * extent):
            joined[-1] = (axis, step, joined[-1][2] * extent)
        else:
            joined.append((axis, step, extent))
    return tuple(joined)
