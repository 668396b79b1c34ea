"""Boolean element sets of tensors in broadcast form: an extent of 1 means that the set is constant along it."""

import zlib
from collections.abc import Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from nearpeak.bounds.simplify.affine_views import View
from nearpeak.bounds.simplify.element_moves import among, behind, seen, touched
from nearpeak.core.work.tensor import Layout
from nearpeak.core.work.workload import Pattern

_MOST_PRODUCTS = 2**36
"""Scalar steps beyond which three sets that meet are estimated from below instead of counted."""
_MOST_WRITTEN = 2**26
"""Elements beyond which a triangle or a concatenation is not written down."""
_MOST_SCATTERED = 2**22
"""Elements beyond which a set is not followed through a tensor that no view describes."""


class Bits:
    """A set of elements; two are the same only if they are one object, so that layers share what is worked out."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        """Keep a boolean array whose extents are those of the node or 1."""
        self.array = array


ElementSet: TypeAlias = Bits | None
"""A set of elements; none stands for all of them."""
Labelled: TypeAlias = tuple[tuple[int, ...], Any]
"""Labels, and which of their positions count."""


class Patterns:
    """Memoised operations on element sets."""

    def __init__(self, stored: Sequence[Pattern]) -> None:
        """Keep the patterns of a workload, unopened."""
        self._stored = stored
        self._known: dict[Any, ElementSet] = {}

    def without(self, number: int) -> ElementSet:
        """Return the elements that are not in a pattern of the workload."""
        return self.once(("stored", number), lambda: ~self._stored_set(number))

    def _stored_set(self, number: int) -> Any:
        pattern = self._stored[number]
        packed = np.frombuffer(zlib.decompress(pattern.packed), dtype=np.uint8)
        return np.unpackbits(packed, count=prod(pattern.shape)).astype(bool).reshape(pattern.shape)

    def empty(self, rank: int) -> ElementSet:
        """Return no element of a node with so many dimensions."""
        return self.once(("empty", rank), lambda: np.zeros((1,) * rank, dtype=bool))

    def chained(self, sets: Sequence[ElementSet], shapes: Sequence[tuple[int, ...]], axis: int) -> ElementSet:
        """Return the sets one behind the other along a dimension; all where that is too much to write down."""
        if all(elements is None for elements in sets):
            return None
        varies = [
            axis == dimension or any(elements is not None and elements.array.shape[dimension] > 1 for elements in sets)
            for dimension in range(len(shapes[0]))
        ]
        if (
            sum(prod(n for n, is_varying in zip(shape, varies, strict=True) if is_varying) for shape in shapes)
            > _MOST_WRITTEN
        ):
            return None

        def build() -> Any:
            parts = [
                np.broadcast_to(True if elements is None else elements.array,
                                [n if is_varying else 1 for n, is_varying in zip(shape, varies, strict=True)])
                for elements, shape in zip(sets, shapes, strict=True)
            ]  # fmt: skip
            return np.concatenate(parts, axis=axis)

        return self.once(("chained", axis, *sets, *shapes), build)

    def patched(self, sets: Sequence[ElementSet], layouts: Sequence[Layout], shape: tuple[int, ...]) -> ElementSet:
        """Return the set of a storage that was written partially: the earlier contents overwritten by the part."""
        if prod(shape) > _MOST_WRITTEN:
            return None

        def build() -> Any:
            flat = np.ones(shape, dtype=bool)
            for elements, lies in zip(sets, layouts, strict=True):
                place = as_strided(flat[lies.offset :], lies.shape, lies.strides)
                place[...] = True if elements is None else elements.array
            return flat

        return self.once(("patched", *sets, *layouts, shape), build)

    def part(self, bits: ElementSet, axis: int, begin: int, extent: int) -> ElementSet:
        """Return the set within a span of positions along a dimension."""
        if bits is None:
            return None
        whole = slice(begin, begin + extent) if bits.array.shape[axis] > 1 else slice(None)
        return self.once(("part", bits, axis, begin, extent), lambda: bits.array[(slice(None),) * axis + (whole,)])

    def behind_patch(
        self, bits: ElementSet, layouts: Sequence[Layout], place: int, shape: tuple[int, ...]
    ) -> ElementSet:
        """Return which elements of the earlier contents (place 0) or of the part (1) lie behind those of a storage."""
        if prod(shape) > _MOST_WRITTEN:
            return None
        lies, part = layouts

        def build() -> Any:
            flat = np.ones(shape, dtype=bool) if bits is None else np.broadcast_to(bits.array, shape).copy()
            if place:
                return as_strided(flat[part.offset :], part.shape, part.strides).copy()
            as_strided(flat[part.offset :], part.shape, part.strides)[...] = False
            return as_strided(flat[lies.offset :], lies.shape, lies.strides).copy()

        return self.once(("behind_patch", bits, lies, part, place, shape), build)

    def behind_strided(self, bits: ElementSet, lies: Layout, wanted: Layout) -> ElementSet:
        """Return which elements of a tensor that lies in a storage are behind those of another one in it."""
        last = max(t.offset + sum(s * (n - 1) for s, n in zip(t.strides, t.shape, strict=True)) for t in (lies, wanted))
        if max(last, prod(wanted.shape)) >= _MOST_SCATTERED or lies.dtype != wanted.dtype:
            return None

        def build() -> Any:
            runs = [s * np.arange(n) for s, n in zip(wanted.strides, wanted.shape, strict=True)]
            places = reduce(np.add.outer, runs, np.array(wanted.offset))
            flat = np.zeros(last + 1, dtype=bool)
            flat[places[True if bits is None else np.broadcast_to(bits.array, wanted.shape)]] = True
            return as_strided(flat[lies.offset :], lies.shape, lies.strides).copy()

        return self.once(("behind_strided", bits, lies, wanted), build)

    def spread(
        self, bits: ElementSet, places: Sequence[tuple[int, int]], inner: tuple[int, ...], shape: tuple[int, ...]
    ) -> ElementSet:
        """Return a set whose elements lie among others that are not in it, along padded or dilated dimensions."""
        varies = [
            n != whole or (bits is not None and bits.array.shape[axis] > 1)
            for axis, (n, whole) in enumerate(zip(inner, shape, strict=True))
        ]
        extents = [n if is_varying else 1 for n, is_varying in zip(shape, varies, strict=True)]
        if prod(extents) > _MOST_WRITTEN:
            return None

        def build() -> Any:
            elements = np.zeros(extents, dtype=bool)
            elements[among(places, inner, varies)] = True if bits is None else bits.array
            return elements

        return self.once(("spread", bits, tuple(places), inner, shape), build)

    def gathered(
        self, bits: ElementSet, places: Sequence[tuple[int, int]], inner: tuple[int, ...], shape: tuple[int, ...]
    ) -> ElementSet:
        """Return the elements of a tensor that lies among zeros of which the wanted ones are made."""
        if bits is None:
            return None
        varies = [extent > 1 for extent in bits.array.shape]
        return self.once(
            ("gathered", bits, tuple(places), inner, shape), lambda: bits.array[among(places, inner, varies)]
        )

    def both(self, *sets: ElementSet) -> ElementSet:
        """Return the elements that are in every set."""
        some = [elements for elements in dict.fromkeys(sets) if elements is not None]
        return (
            some[0]
            if len(some) == 1
            else self.once(("both", *some), lambda: reduce(np.logical_and, (elements.array for elements in some)))
            if some
            else None
        )

    def either(self, *sets: ElementSet) -> ElementSet:
        """Return the elements that are in any set; all where there is none."""
        if None in sets or not sets:
            return None
        some = list(dict.fromkeys(elements for elements in sets if elements is not None))
        return (
            some[0]
            if len(some) == 1
            else self.once(("either", *some), lambda: reduce(np.logical_or, (elements.array for elements in some)))
        )

    def apart(self, bits: ElementSet, moves: Mapping[int, int], rank: int) -> ElementSet:
        """Return which rows of an operand of that rank have an element in the set.

        Args:
            moves: by dimension of the set, the dimension of the operand that moves with it, in the same order.
        """
        if bits is None:
            return None

        def build() -> Any:
            extents = dict(zip(moves.values(), (bits.array.shape[axis] for axis in moves), strict=True))
            rows = bits.array.any(axis=tuple(axis for axis in range(bits.array.ndim) if axis not in moves))
            return rows.reshape([extents.get(axis, 1) for axis in range(rank)])

        return self.once(("apart", bits, *moves.items(), rank), build)

    def until(self, bits: ElementSet, axis: int) -> ElementSet:
        """Return the positions along a dimension up to the last one that is in the set."""
        if bits is None:
            return None
        return self.once(
            ("until", bits, axis),
            lambda: np.flip(np.logical_or.accumulate(np.flip(bits.array, axis), axis), axis).copy(),
        )

    def turned(self, bits: ElementSet, first: int, second: int) -> ElementSet:
        """Return the set with two dimensions exchanged."""
        if bits is None:
            return None
        return self.once(("turned", bits, first, second), lambda: bits.array.swapaxes(first, second))

    def diagonal(self, rank: int, extent: int, offset: int = 0) -> ElementSet:
        """Return the elements whose last two positions, of as many each, are that far apart."""
        if extent * extent > _MOST_WRITTEN:
            return None

        def build() -> Any:
            return np.eye(extent, k=offset, dtype=bool).reshape((1,) * (rank - 2) + (extent, extent))

        return self.once(("diagonal", rank, extent, offset), build)

    def span(self, shape: tuple[int, ...], axis: int, positions: slice) -> ElementSet:
        """Return the elements at some positions along a dimension."""

        def build() -> Any:
            elements = np.zeros(shape[axis], dtype=bool)
            elements[positions] = True
            return elements.reshape([n if place == axis % len(shape) else 1 for place, n in enumerate(shape)])

        return self.once(("span", len(shape), shape[axis], axis, str(positions)), build)

    def first(self, shape: tuple[int, ...], axes: Sequence[int]) -> ElementSet:
        """Return the elements at the first position along some dimensions; none where these are too many to write."""
        if prod(shape[axis] for axis in axes) > _MOST_WRITTEN:
            return self.empty(len(shape))

        def build() -> Any:
            elements = np.zeros([n if axis in axes else 1 for axis, n in enumerate(shape)], dtype=bool)
            elements[tuple(0 for _ in shape)] = True
            return elements

        return self.once(("first", shape, *axes), build)

    def flipped(self, bits: ElementSet, axes: Sequence[int]) -> ElementSet:
        """Return the set reversed along some dimensions."""
        return (
            None
            if bits is None
            else self.once(("flipped", bits, *axes), lambda: np.flip(bits.array, tuple(axes)).copy())
        )

    def triangle(self, shape: tuple[int, ...], diagonal: int, *, lower: bool) -> ElementSet:
        """Return what tril or triu leave of a tensor; all where it is too large to write down."""
        if prod(shape[-2:]) > _MOST_WRITTEN:
            return None
        below = diagonal if lower else diagonal - 1

        def build() -> Any:
            triangle = np.tri(shape[-2], shape[-1], below, dtype=bool)
            return (triangle if lower else ~triangle).reshape((1,) * (len(shape) - 2) + shape[-2:])

        return self.once(("triangle", shape[-2:], len(shape), below, lower), build)

    def seen(self, bits: ElementSet, options: View) -> ElementSet:
        """Return the set as a view of the node shows it."""
        return None if bits is None else self.once(("seen", bits, options), lambda: seen(bits.array, options))

    def behind(self, bits: ElementSet, options: View, shape: tuple[int, ...]) -> ElementSet:
        """Return which elements of a source of that shape lie behind a set of elements of a view of it."""
        if bits is None:
            return None
        return self.once(("behind", bits, options, shape), lambda: behind(bits.array, options, shape))

    def touched(self, options: View, shape: tuple[int, ...]) -> ElementSet:
        """Return which elements of a source of that shape a view shows."""
        return self.once(("touched", options, shape), lambda: touched(options, shape))

    def joined(self, parts: Sequence[tuple[tuple[int, ...], ElementSet]], out: tuple[int, ...]) -> ElementSet:
        """Return the positions `out` for which the other labels can be chosen so that all sets are met."""
        some = [(labels, bits) for labels, bits in parts if bits is not None]
        return self.once(("joined", *some, out), lambda: _joined(_labelled(some), out)) if some else None

    def once(self, key: Any, work: Any) -> ElementSet:
        """Return the set with that key; `work` gives its boolean array when first asked for, none for all elements."""
        if key not in self._known:
            array = work()
            self._known[key] = None if array is None or array.all() else Bits(array)
        return self._known[key]


def count(parts: Sequence[tuple[tuple[int, ...], ElementSet]], sizes: Mapping[int, int]) -> int:
    """Return how many choices of labels with these extents are in all sets.

    Where three large sets meet, it is a number that is surely reached.

    >>> lower = Bits(np.tri(4, dtype=bool))
    >>> count([((0, 1), lower), ((1, 2), lower)], {0: 4, 1: 4, 2: 4})
    20
    """
    sets = _merged(_labelled([(labels, bits) for labels, bits in parts if bits is not None]))
    used = {label for labels, _ in sets for label in labels}
    rest = prod(extent for label, extent in sizes.items() if label not in used)
    sums = [_summed(subset, [other for other in sets if other is not subset]) for subset in sets]
    if not sums:
        return rest
    left = {label for labels, _ in sums for label in labels}
    if len(sums) > 2 and prod(sizes[label] for label in left) > _MOST_PRODUCTS:
        return rest * _at_least(sets, {label: sizes[label] for label in used})
    return rest * round(float(_einsum([(labels, array.astype(np.float64)) for labels, array in sums], ())))


def _at_least(parts: Sequence[Labelled], sizes: Mapping[int, int]) -> int:
    """Return a bound from below on what three sets share: two pairs that share the third number no more than it."""
    if len(parts) != 3:
        return 0
    sets = [(labels, Bits(array)) for labels, array in parts]
    ways = []
    for pivot in range(3):
        first, second = (sets[place] for place in range(3) if place != pivot)
        pairs = count([sets[pivot], first], sizes) + count([sets[pivot], second], sizes)
        ways.append(pairs - count([sets[pivot]], sizes))
    return max(0, *ways)


def _labelled(parts: Sequence[tuple[tuple[int, ...], Bits]]) -> list[Labelled]:
    """Return sets without the dimensions that make no difference."""
    labelled = []
    for labels, bits in parts:
        varying = [place for place, extent in enumerate(bits.array.shape) if extent > 1]
        labelled.append(
            (tuple(labels[place] for place in varying), bits.array.reshape([bits.array.shape[p] for p in varying]))
        )
    return labelled


def _merged(parts: Sequence[Labelled]) -> list[Labelled]:
    """Return the sets with those joined whose labels are among those of another."""
    groups: list[Labelled] = []
    for labels, array in sorted(parts, key=lambda part: -len(part[0])):
        for place, (group_labels, whole) in enumerate(groups):
            if set(labels) <= set(group_labels):
                order = sorted(range(len(labels)), key=lambda at: group_labels.index(labels[at]))
                shape = [whole.shape[at] if label in labels else 1 for at, label in enumerate(group_labels)]
                groups[place] = (group_labels, whole & array.transpose(order).reshape(shape))
                break
        else:
            groups.append((labels, array))
    return groups


def _summed(part: Labelled, others: Sequence[Labelled]) -> Labelled:
    """Return how often each position of the shared labels is in the set."""
    shared = {label for labels, _ in others for label in labels}
    axes = tuple(place for place, label in enumerate(part[0]) if label not in shared)
    return tuple(label for label in part[0] if label in shared), part[1].sum(axis=axes) if axes else part[1]


def _joined(parts: Sequence[Labelled], out: tuple[int, ...]) -> Any:
    groups = _merged(parts)
    sizes = {label: n for labels, array in groups for label, n in zip(labels, array.shape, strict=True)}
    kept_labels = tuple(label for label in out if label in sizes)
    if len(groups) > 1 and prod(sizes.values()) > _MOST_PRODUCTS:
        return None
    if len(groups) == 1:
        labels, array = groups[0]
        array = array.any(axis=tuple(place for place, label in enumerate(labels) if label not in kept_labels))
        order = [label for label in labels if label in kept_labels]
        array = array.transpose([order.index(label) for label in kept_labels])
    else:
        array = _einsum([(labels, array.astype(np.float32)) for labels, array in groups], kept_labels) > 0
    return array.reshape([sizes.get(label, 1) for label in out])


def _einsum(parts: Sequence[Labelled], out: tuple[int, ...]) -> Any:
    names: dict[int, int] = {}
    for labels, _ in parts:
        for label in labels:
            names.setdefault(label, len(names))
    operands = [item for labels, array in parts for item in (array, [names[label] for label in labels])]
    return np.einsum(*operands, [names[label] for label in out], optimize=True)
