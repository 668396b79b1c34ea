"""Cost of the cheapest contraction order of a product of several operands."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import combinations
from math import prod
from typing import NamedTuple

import numpy as np

from nearpeak.bounds.simplify.affine_views import View, meets
from nearpeak.bounds.simplify.operand_facts import adds_up, picked_dimensions, source_of
from nearpeak.bounds.simplify.product_sums import Product
from nearpeak.bounds.simplify.triangular_zeros import filled
from nearpeak.bounds.simplify.value_graph import Graph, Node

MOST_OPERANDS = 8
"""Operands up to which every order of forming a product is tried."""


def cost(
    graph: Graph, node: Node, needed_share: tuple[int, int] | None = None, *, zeros: bool = True
) -> tuple[int, int]:  # fmt: skip
    """Return the multiply-adds and the other arithmetic of a product, formed in the cheapest order.

    Args:
        needed_share: how many of how many elements of the result's last two dimensions are wanted; none for all.
        zeros: whether products with what is surely zero are left out.
    """
    options = node.options
    assert isinstance(options, Product)
    shapes = tuple(graph[number].shape for number in node.inputs)
    empty = tuple(
        tuple(filled(graph, number, labels).items()) if zeros else ()
        for number, labels in zip(node.inputs, options.labels, strict=True)
    )  # fmt: skip
    wanted = () if needed_share is None or len(options.out) < 2 else ((frozenset(options.out[-2:]), needed_share),)
    picking = tuple(
        (place, frozenset(labels[axis] for axis in picked_dimensions(graph, number)))
        for place, (number, labels) in enumerate(zip(node.inputs, options.labels, strict=True))
        if adds_up(graph, number)
    )
    return _cheapest(
        options, shapes, empty, wanted, picking, alike_operands(graph, node), overlapping_windows(graph, node)
    )


class Windows(NamedTuple):
    """Labels along which windows of one operand overlap, so that some of their positions show the same elements."""

    place: int
    """Operand."""
    labels: frozenset[int]
    """Labels that move along one dimension of its source."""
    share: tuple[int, int]
    """How many of how many positions differ, and may be other than zero."""


def overlapping_windows(graph: Graph, node: Node) -> tuple[Windows, ...]:
    """Return the windows of the operands of a product that overlap."""
    assert isinstance(node.options, Product)
    windows = []
    for place, (number, labels) in enumerate(zip(node.inputs, node.options.labels, strict=True)):
        options = graph[number].options
        if not isinstance(options, View):
            continue
        source = graph[graph[number].inputs[0]]
        spread = source.kind == "spread"  # what lies between elements that are spread counts as inside
        places, inner = (source.options, graph[source.inputs[0]].shape) if spread else ((), source.shape)
        steps = places or ((0, 1),) * len(inner)
        groups = source.options.groups if isinstance(source.options, View) else ((),) * len(inner)
        extents = [step * (n - 1) + 1 for (_, step), n in zip(steps, inner, strict=True)]
        spans = tuple(
            (begin, extent, prod(n for _, _, n in group[1:]) if group and group[0][0] < 0 else extent)
            for (begin, _), extent, group in zip(steps, extents, groups, strict=True)
        )
        for axes, share in _overlaps(options, spans):
            windows.append(Windows(place, frozenset(labels[axis] for axis in axes), share))
    return tuple(windows)


@lru_cache(maxsize=1024)
def _overlaps(
    options: View, inner: tuple[tuple[int, int, int], ...]
) -> tuple[tuple[tuple[int, ...], tuple[int, int]], ...]:  # fmt: skip
    """Return the dimensions of a view that move together along one of its source, and the share that differs.

    Args:
        inner: begin and extent of each dimension of the source, and after how many positions it repeats itself.
    """
    overlaps = []
    for axis, (begin, extent, period) in enumerate(inner):
        runs = sorted(
            (step, n, place)
            for place, group in enumerate(options.groups)
            for at, step, n in group
            if at == axis and n > 1
        )
        clusters = _clusters(runs)
        for cluster in clusters:
            places = tuple(dict.fromkeys(place for _, _, place in cluster))
            if sum(place in places for _, _, place in runs) > len(cluster) or any(
                at not in (axis, -1) for place in places for at, _, _ in options.groups[place]
            ):
                continue
            positions = meets(options.starts[axis] - begin, [(step, n) for step, n, _ in cluster])
            inside = positions[(positions >= 0) & (positions < extent)] if len(clusters) == 1 else positions
            distinct = len(np.unique(inside % period if period < extent else inside))
            if distinct < len(positions):
                overlaps.append((places, (distinct, len(positions))))
    return tuple(overlaps)


def _clusters(runs: Iterable[tuple[int, int, int]]) -> list[list[tuple[int, int, int]]]:
    """Return runs of (step, extent, dimension) with those together whose positions lie within each other's reach."""
    clusters: list[list[tuple[int, int, int]]] = []
    span = 0
    for run in runs:
        if not clusters or run[0] > span:
            clusters.append([])
        clusters[-1].append(run)
        span += run[0] * (run[1] - 1)
    return clusters


def alike_operands(graph: Graph, node: Node) -> tuple[int, ...]:
    """Return for each operand the first one that moves elements of the same node."""
    sources = [source_of(graph, number) for number in node.inputs]
    return tuple(map(sources.index, sources))


_Share = tuple[frozenset[int], tuple[int, int]]
_Shares = tuple[_Share, ...]
"""By labels: how many of how many positions count."""


@lru_cache(maxsize=1024)  # layers of a model form the same products
def _cheapest(
    options: Product, shapes: tuple[tuple[int, ...], ...], zeros: tuple[_Shares, ...], wanted: _Shares,
    picking: tuple[tuple[int, frozenset[int]], ...], alike: tuple[int, ...], windows: tuple[Windows, ...],
) -> tuple[int, int]:  # fmt: skip
    """Return the least multiply-adds, and the other arithmetic that goes with them.

    Operands of `picking` only pick elements, along those labels, of what they are multiplied by; sums along others are
    of products where that is multiplied element by element. Of parts that may have a product in common, by the numbers
    of their operands in `alike`, the smaller counts nothing. What is formed of `windows` and nothing else that moves
    with them is formed once for each element.
    """
    sizes, count = _extents(options, shapes), len(options.labels)
    operands, out = [frozenset(operand_labels) for operand_labels in options.labels], frozenset(options.out)
    if count > MOST_OPERANDS:
        raise ValueError(f"a product of {count} operands")
    every = range(count)

    def left(members: frozenset[int]) -> frozenset[int]:
        """Return the labels that the product of `members` still has once all that can be summed is."""
        outside = out.union(*(operands[i] for i in every if i not in members))
        return reduce(frozenset.union, (operands[i] for i in members)) & outside

    def waits(members: frozenset[int]) -> bool:
        """Say whether `members` are multiplied element by element, and their products are not summed yet."""
        labels = left(members)
        return all(operands[i] <= labels for i in members) and not any(labels <= operands[i] for i in members)

    picked = {frozenset((place,)): along for place, along in picking}
    best = {
        frozenset((i,)): (0, prod(sizes[label] for label in labels) if left(frozenset((i,))) != labels else 0)
        for i, labels in enumerate(operands)
    }
    for size in range(2, count + 1):
        for chosen in combinations(every, size):
            members, ways = frozenset(chosen), []
            known = [*(zeros[i] for i in chosen), *((wanted,) if size == count else ())]
            for split in range(1, size // 2 + 1):
                for part in combinations(chosen, split):
                    left_part, right_part = frozenset(part), members - frozenset(part)
                    labels = left(left_part) | left(right_part)
                    summed = labels - left(members)
                    picks = any(
                        side in picked and (not picked[side] or summed <= picked[side] or not waits(other))
                        for side, other in ((left_part, right_part), (right_part, left_part))
                    )
                    seen = [
                        (part.labels, part.share) for part in windows if part.place in chosen
                        and not any(part.labels & operands[i] for i in chosen if i != part.place)
                    ]  # fmt: skip
                    step = 0 if picks else _products(labels, sizes, known, seen)
                    more = (step, 0) if labels != left(members) else (0, step)
                    parts = [best[left_part], best[right_part]]
                    if may_share([alike[i] for i in left_part], [alike[i] for i in right_part]):
                        parts = [max(parts)]
                    ways.append((sum(part[0] for part in parts) + more[0], sum(part[1] for part in parts) + more[1]))
            best[members] = min(ways)
    return best[frozenset(every)]


def may_share(left: Sequence[int], right: Sequence[int]) -> bool:
    """Say whether two parts of a product may have a product of operands in common: two of these, or one twice.

    >>> may_share((1, 2), (2, 3)), may_share((1, 2), (2, 1, 3)), may_share((1, 1), (1, 1))
    (False, True, True)
    """
    return not set(left).isdisjoint(right) and (Counter(left) & Counter(right)).total() > 1


def _extents(options: Product, shapes: Iterable[tuple[int, ...]]) -> dict[int, int]:
    """Return the extent of each label."""
    return {
        label: n
        for shape, operand_labels in zip(shapes, options.labels, strict=True)
        for label, n in zip(operand_labels, shape, strict=True)
    }


def _products(
    labels: frozenset[int], sizes: Mapping[int, int], zeros: Iterable[_Shares], distinct: Sequence[_Share]
) -> int:  # fmt: skip
    count = prod(sizes[label] for label in labels)
    groups = {group for group, _ in distinct}
    for group, (hits, positions) in (
        *distinct,
        *(share for empty in zeros for share in empty if share[0] not in groups),
    ):
        if group <= labels:
            count = count * hits // positions
    return count
