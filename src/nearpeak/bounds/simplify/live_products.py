"""Multiply-adds of a product of which operands are partly zero, results partly needed, or images resized."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from nearpeak.bounds.simplify.affine_views import View
from nearpeak.bounds.simplify.element_moves import among, seen
from nearpeak.bounds.simplify.element_patterns import ElementSet, Patterns, count
from nearpeak.bounds.simplify.live_elements import ElementKnowledge
from nearpeak.bounds.simplify.operand_facts import adds_up, is_weights, picked_dimensions
from nearpeak.bounds.simplify.product_orders import alike_operands, may_share
from nearpeak.bounds.simplify.product_sums import Product, contracts, placed
from nearpeak.bounds.simplify.repeated_chains import flattened, users_of
from nearpeak.bounds.simplify.transpose_symmetry import Pair
from nearpeak.bounds.simplify.value_graph import Graph, Node

_MOST_OPERANDS = 4
"""Operands up to which sets of elements are followed through every order of forming a product."""


def live_products(
    graph: Graph, number: int, known: ElementKnowledge, patterns: Patterns, pair: Pair | None = None
) -> int | None:  # fmt: skip
    """Return the least multiply-adds, over every order; none where all elements matter.

    Args:
        pair: dimensions of the result that may be exchanged without changing it; one of each two elements is formed.
    """
    node = graph[number]
    assert isinstance(node.options, Product)
    filled = [known.filled.get(operand) for operand in node.inputs]
    taking = [
        patterns.empty(len(graph[operand].shape))
        if adds_up(graph, operand)
        else patterns.both(elements, graph.facts.get((operand, "no_product")))
        for elements, operand in zip(filled, node.inputs, strict=True)
    ]
    needed = known.needed.get(number)
    if len(node.inputs) > _MOST_OPERANDS or (needed is None and all(operand is None for operand in taking)):
        return None
    order = _Order(graph, number, filled, taking, patterns)
    if pair is None:
        return order.least(needed)
    mirrored = patterns.either(needed, patterns.turned(needed, *pair))
    labels = tuple(node.options.out[place] for place in pair)
    return (order.least(mirrored) + order.least(mirrored, (labels, patterns.diagonal(2, node.shape[pair[0]])))) // 2


def chains_of_needed(
    graph: Graph, live: Sequence[int], roots: Sequence[int], known: ElementKnowledge, patterns: Patterns
) -> Iterator[tuple[set[int], int]]:  # fmt: skip
    """Yield the products of each chain of which only some elements are needed, and the least multiply-adds.

    Another order may take less than that which is the cheapest for all elements.
    """
    users = users_of(graph, live, roots) if known.needed else {}
    inner: set[int] = set()
    for number in reversed(live):
        needed = known.needed.get(number)
        if needed is None or number in inner or not contracts(graph[number]):
            continue
        term, members = flattened(graph, number, users)
        if len(members) < 2 or len(term.operands) > _MOST_OPERANDS:
            continue
        inner |= members
        whole = placed(graph, term, graph[number].dtype)
        if whole is None or graph[whole].shape != graph[number].shape or not contracts(graph[whole]):
            continue
        least = live_products(graph, whole, ElementKnowledge(known.filled, {whole: needed}), patterns)
        if least is not None:
            yield members, least


class _Order:
    """The orders of forming one product."""

    def __init__(
        self, graph: Graph, number: int, filled: Sequence[ElementSet], taking: Sequence[ElementSet], patterns: Patterns
    ) -> None:
        node = graph[number]
        assert isinstance(node.options, Product)
        self._labels, self._out = node.options.labels, node.options.out
        self._filled, self._taking, self._patterns = filled, taking, patterns
        self._alike = alike_operands(graph, node)
        self._picked = [
            {labels[axis] for axis in picked_dimensions(graph, source)}
            for source, labels in zip(node.inputs, self._labels, strict=True)
        ]
        self._sizes = {
            label: extent
            for source, labels in zip(node.inputs, self._labels, strict=True)
            for label, extent in zip(labels, graph[source].shape, strict=True)
        }

    def least(self, needed: ElementSet, also: tuple[tuple[int, ...], ElementSet] | None = None) -> int:
        """Return the least multiply-adds; `also` restricts which labels go together."""
        every = range(len(self._labels))
        best = {frozenset((i,)): 0 for i in every}
        for size in range(2, len(self._labels) + 1):
            for chosen in combinations(every, size):
                members = frozenset(chosen)
                splits = (
                    frozenset((chosen[0], *rest))
                    for rest_count in range(size - 1)
                    for rest in combinations(chosen[1:], rest_count)
                )
                best[members] = min(
                    self._parts(best, part, members - part) + self._step(part, members - part, needed, also)
                    for part in splits
                )
        return best[frozenset(every)]

    def _parts(self, best: Mapping[frozenset[int], int], left: frozenset[int], right: frozenset[int]) -> int:
        """Return the multiply-adds within two parts; of parts that may share a product, those of the larger."""
        shared = may_share([self._alike[i] for i in left], [self._alike[i] for i in right])
        return max(best[left], best[right]) if shared else best[left] + best[right]

    def _step(
        self,
        left: frozenset[int],
        right: frozenset[int],
        needed: ElementSet,
        also: tuple[tuple[int, ...], ElementSet] | None,
    ) -> int:
        """Return the multiply-adds of two parts of the product."""
        members = left | right
        remaining = self._left(members)
        rest = [(self._labels[i], self._filled[i]) for i in range(len(self._labels)) if i not in members]
        wanted = self._patterns.joined([*rest, (self._out, needed)], remaining) if rest else needed
        whole = (remaining if rest else self._out, wanted)
        parts = [self._part(left), self._part(right), whole, *((also,) if also else ())]
        all_labels = {*self._left(left), *self._left(right)}
        if all_labels == set(remaining):
            return 0  # element by element: no sum of products
        summed = tuple(sorted(all_labels.difference(remaining)))
        for runs, other in ((left, right), (right, left)):
            (first, *more) = runs
            # What only picks leaves one summand of each sum; sums along its rows are of what it is multiplied by.
            is_pick = bool(self._picked[first]) and self._picked[first].issuperset(summed)
            taking = None if more or is_pick else self._taking[first]
            if taking is not None and not taking.array.any() and self._multiplies(other, first):
                # A factor that adds up runs takes no products itself; what it adds up does.
                labels = self._left(other)
                every = [(self._labels[i], self._filled[i]) for i in sorted(members)]
                return count([(labels, self._patterns.joined([*every, whole], labels))], self._extents(labels))
        for labels, elements in parts:
            live = self._patterns.joined([(labels, elements)], summed) if set(summed) <= set(labels) else None
            if live is not None and count([(summed, live)], self._extents(summed)) < 2:
                return 0  # of a sum one summand is left
            places = tuple(labels.index(label) for label in summed if label in labels)
            array = None if elements is None or len(places) < len(summed) or not places else elements.array
            whole_axes = array is not None and all(array.shape[at] == self._sizes[labels[at]] for at in places)
            if array is not None and whole_axes and array.sum(axis=places).max() < 2:
                return 0  # of each sum, as with a diagonal matrix
        return count(parts, self._extents(all_labels))

    def _extents(self, labels: Iterable[int]) -> dict[int, int]:
        return {label: self._sizes[label] for label in labels}

    def _multiplies(self, members: frozenset[int], runs: int) -> bool:
        """Say whether a part holds a product for each element, so that sums of them are sums of products.

        Factors of a tensor of all its dimensions are none, unless `runs`, which adds up, only leaves elements out.
        """
        left = set(self._left(members))
        sums: list[set[int]] = []  # labels of operands that labels summed within the part join
        for i in members:
            labels = set(self._labels[i])
            joined = [group for group in sums if (group & labels) - left]
            sums = [group for group in sums if group not in joined] + [labels.union(*joined)]
        only_filters = len(sums) > 1 and set(self._labels[runs]) <= left
        return only_filters or all(not left <= labels for labels in sums)

    def _part(self, members: frozenset[int]) -> tuple[tuple[int, ...], ElementSet]:
        """Return which elements of a part take products."""
        left = self._left(members)
        if len(members) == 1:
            (operand,) = members
            if set(left) == set(self._labels[operand]):
                return self._labels[operand], self._taking[operand]
            if self._picked[operand].intersection(left):  # a sum over blocks of what it picks from still picks
                return left, self._patterns.empty(len(left))
        elements = self._patterns.joined([(self._labels[i], self._filled[i]) for i in sorted(members)], left)
        picked = {label for i in members for label in self._picked[i] if label in left}
        if picked:  # it still picks what it is multiplied by: as data may have it, the first
            places = tuple(place for place, label in enumerate(left) if label in picked)
            first = self._patterns.first(tuple(self._sizes[label] for label in left), places)
            elements = self._patterns.both(elements, first)
        return left, elements

    def _left(self, members: frozenset[int]) -> tuple[int, ...]:
        """Return the labels that a part still has once all that can be summed is."""
        outside = {
            *self._out,
            *(label for i, labels in enumerate(self._labels) if i not in members for label in labels),
        }
        labels = reduce(lambda seen, i: seen | dict.fromkeys(self._labels[i]), sorted(members), dict[int, None]())
        return tuple(label for label in labels if label in outside)


def resampled_products(graph: Graph, node: Node, products: int) -> int:
    """Return the multiply-adds of a product with matrices of weights, whose own arithmetic is none of unknown numbers.

    Each dimension of an image can be resized before what is unknown is multiplied, or after it, or the taps that meet
    one element can be added up before: the way that forms fewest pairs counts, of pairs that some weight joins.

    Args:
        products: multiply-adds in the cheapest order where weights take none and may all be other than 0.
    """
    assert isinstance(node.options, Product)
    sizes: dict[int, int] = {}
    unknown: list[set[int]] = []
    weights: list[tuple[int, Sequence[int]]] = []
    for operand, labels in zip(node.inputs, node.options.labels, strict=True):
        sizes |= dict(zip(labels, graph[operand].shape, strict=True))
        if is_weights(graph, operand):
            weights.append((operand, labels))
        else:
            unknown.append(set(labels))
    if len(unknown) < 2:
        return 0
    first = prod(sizes[label] for label in set().union(*unknown))
    shares = (
        _joined_share(graph, operand, [tuple(label in factor for factor in unknown) for label in labels])
        for operand, labels in weights
    )
    return int((min(products, first) if products else first) * prod(shares, start=Fraction(1)))


def _joined_share(graph: Graph, number: int, owners: Sequence[tuple[bool, ...]]) -> Fraction:
    """Return the fewest pairs that some weight joins over the fewest pairs of positions.

    Args:
        owners: by dimension of the matrix, which unknown factors vary along it.
    """
    elements = _elements(graph, number)
    pairs = [
        elements.any(axis=tuple(axis for axis, others in enumerate(owners) if others == left_out))
        for left_out in set(owners)
    ]
    return Fraction(min(int(joined.sum()) for joined in pairs), max(min(joined.size for joined in pairs), 1))


def _elements(graph: Graph, number: int) -> Any:
    """Return which elements of a matrix of weights, or of what shows or pads it, are not 0, as a boolean array."""
    node = graph[number]
    if isinstance(node.options, View):
        return seen(_elements(graph, node.inputs[0]), node.options)
    if node.kind != "spread":
        known = graph.facts.get((number, "zero"))
        return np.ones(node.shape, dtype=bool) if known is None else known.array
    inner, whole = _elements(graph, node.inputs[0]), np.zeros(node.shape, dtype=bool)
    whole[among(node.options, inner.shape, [True] * len(inner.shape))] = inner
    return whole
