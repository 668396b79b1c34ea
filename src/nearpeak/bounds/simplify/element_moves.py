"""Boolean element masks mapped through tensor views, forwards and backwards."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nearpeak.bounds.simplify.affine_views import View, separate

_MOST_SCATTERED = 2**22
"""Elements beyond which a set is not followed through a view that picks or overlaps."""


def among(places: Sequence[tuple[int, int]], inner: Sequence[int], varies: Sequence[bool]) -> tuple[slice, ...]:
    """Return where a tensor lies in one that it is spread over, along the dimensions that vary."""
    return tuple(
        slice(begin, begin + step * (n - 1) + 1, step) if is_varying else slice(None)
        for (begin, step), n, is_varying in zip(places, inner, varies, strict=True)
    )


def seen(array: Any, options: View) -> Any:
    """Return a boolean array as a view shows it."""
    rank = len(options.groups)
    moving = [[factor for factor in group if factor[0] >= 0 and array.shape[factor[0]] > 1] for group in options.groups]
    axes = [axis for group in moving for axis, _, _ in group]
    alone = all(
        not moving_factors or len(group) == 1 for moving_factors, group in zip(moving, options.groups, strict=True)
    )
    if alone and len(set(axes)) == len(axes):
        steps = {axis: slice(options.starts[axis], None, step) for group in moving for axis, step, _ in group}
        sizes = {axis: extent for group in moving for axis, _, extent in group}
        fixed = (begin if extent > 1 else 0 for begin, extent in zip(options.starts, array.shape, strict=True))
        picked = array[tuple(steps.get(axis, slice(begin, begin + 1)) for axis, begin in enumerate(fixed))]
        picked = picked[tuple(slice(sizes.get(axis)) for axis in range(array.ndim))]
        picked = picked.transpose([*axes, *(axis for axis in range(array.ndim) if axis not in axes)])
        return picked.reshape([sizes[moving_factors[0][0]] if moving_factors else 1 for moving_factors in moving])
    index = []
    for axis, begin in enumerate(options.starts):
        positions = np.full((1,) * rank, begin if array.shape[axis] > 1 else 0)
        for place, group in enumerate(options.groups if array.shape[axis] > 1 else ()):
            moving_factors = _positions(group, axis)
            if moving_factors.any():
                positions = positions + moving_factors.reshape(
                    [-1 if dimension == place else 1 for dimension in range(rank)]
                )
        index.append(positions)
    return array[tuple(index)] if index else array.reshape((1,) * rank)


def _positions(group: Sequence[tuple[int, int, int]], axis: int) -> Any:
    """Return how far along one dimension of the source each position of a group lies."""
    offsets = np.zeros(1, dtype=np.int64)
    for other, step, extent in group:
        offsets = np.add.outer(offsets, np.arange(extent) * (step if other == axis else 0)).reshape(-1)
    return offsets


def behind(array: Any, options: View, shape: tuple[int, ...]) -> Any:
    """Return which elements of the source a set of elements of a view is made of; none where that is not followed."""
    factors = [
        factor
        for group, extent in zip(options.groups, array.shape, strict=True)
        for factor in (group if extent > 1 else ())
    ]
    axes = [axis for axis, _, _ in factors if axis >= 0]
    whole = all(axis < 0 or (step == 1 and extent == shape[axis]) for axis, step, extent in factors)
    if whole and len(set(axes)) == len(axes):
        opened = array.reshape([extent for _, _, extent in factors])
        opened = opened.any(axis=tuple(place for place, (axis, _, _) in enumerate(factors) if axis < 0))
        order = sorted(range(len(axes)), key=lambda place: axes[place])
        return opened.transpose(order).reshape([n if axis in axes else 1 for axis, n in enumerate(shape)])
    if prod(len(_positions(group, -1)) for group in options.groups) > _MOST_SCATTERED or prod(shape) > _MOST_SCATTERED:
        return None
    rank = len(options.groups)
    elements = np.zeros(shape, dtype=bool)
    index = [
        begin + sum(
            _positions(group, axis).reshape([-1 if positions == place else 1 for positions in range(rank)])
            for place, group in enumerate(options.groups)
        )
        for axis, begin in enumerate(options.starts)
    ]  # fmt: skip
    *index, wanted = np.broadcast_arrays(*index, array)
    elements[tuple(positions[wanted] for positions in index)] = True
    return elements


def touched(options: View, shape: tuple[int, ...]) -> Any:
    """Return which elements of a source of that shape a view shows; none where that is too much to write down."""
    runs = separate(options, len(shape))
    if runs is None:
        return behind(np.ones([_extent(group) for group in options.groups], dtype=bool), options, shape) if (
            prod(_extent(group) for group in options.groups) <= _MOST_SCATTERED
        ) else None  # fmt: skip
    spans = [
        range(begin, begin + step * (n - 1) + 1, max(step, 1)) for begin, (step, n) in zip(
            options.starts, (runs[axis] for axis in range(len(shape))), strict=True
        )
    ]  # fmt: skip
    partial = [len(span) < extent for span, extent in zip(spans, shape, strict=True)]
    extents = [n if is_partial else 1 for n, is_partial in zip(shape, partial, strict=True)]
    if prod(extents) > _MOST_SCATTERED:
        return None
    elements = np.zeros(extents, dtype=bool)
    elements[tuple(
        slice(span.start, span.stop, span.step) if is_partial else slice(None)
        for span, is_partial in zip(spans, partial, strict=True)
    )] = True  # fmt: skip
    return elements


def _extent(group: Sequence[tuple[int, int, int]]) -> int:
    return prod(n for _, _, n in group)
