"""Multiply-adds of a product whose operands are partly zero or whose result is only partly needed."""

from collections.abc import Sequence
from functools import reduce
from itertools import combinations

from nearpeak.bounds.simplify.element_patterns import Patterns, Some, count
from nearpeak.bounds.simplify.live_elements import Alive, picks
from nearpeak.bounds.simplify.product_sums import Product
from nearpeak.bounds.simplify.transpose_symmetry import Pair
from nearpeak.bounds.simplify.value_graph import Graph

_MOST_OPERANDS = 4
"""Operands up to which sets of elements are followed through every order of forming a product."""


def live_products(
    graph: Graph, number: int, known: Alive, patterns: Patterns, pair: Pair | None = None
) -> int | None:  # fmt: skip
    """Return the least multiply-adds, over every order; none where all elements matter.

    Args:
        pair: dimensions of the result that may be exchanged without changing it; one of each two elements is formed.
    """
    node = graph[number]
    assert isinstance(node.options, Product)
    filled = [known.filled.get(one) for one in node.inputs]
    taking = [
        patterns.empty(len(graph[one].shape))
        if picks(graph, one)
        else patterns.both(own, graph.facts.get((one, "no_product")))
        for own, one in zip(filled, node.inputs, strict=True)
    ]
    needed = known.needed.get(number)
    if len(node.inputs) > _MOST_OPERANDS or (needed is None and all(one is None for one in taking)):
        return None
    order = _Order(graph, number, filled, taking, patterns)
    if pair is None:
        return order.least(needed)
    mirrored = patterns.either(needed, patterns.turned(needed, *pair))
    labels = tuple(node.options.out[place] for place in pair)
    return (order.least(mirrored) + order.least(mirrored, (labels, patterns.diagonal(2, node.shape[pair[0]])))) // 2


class _Order:
    """The orders of forming one product."""

    def __init__(
        self, graph: Graph, number: int, filled: Sequence[Some], taking: Sequence[Some], patterns: Patterns
    ) -> None:
        node = graph[number]
        assert isinstance(node.options, Product)
        self._labels, self._out = node.options.labels, node.options.out
        self._filled, self._taking, self._patterns = filled, taking, patterns
        self._sizes = {
            label: extent
            for one, labels in zip(node.inputs, self._labels, strict=True)
            for label, extent in zip(labels, graph[one].shape, strict=True)
        }

    def least(self, needed: Some, also: tuple[tuple[int, ...], Some] | None = None) -> int:
        """Return the least multiply-adds; `also` restricts which labels go together."""
        every = range(len(self._labels))
        best = {frozenset((one,)): 0 for one in every}
        for size in range(2, len(self._labels) + 1):
            for chosen in combinations(every, size):
                members = frozenset(chosen)
                splits = (
                    frozenset((chosen[0], *rest)) for own in range(size - 1) for rest in combinations(chosen[1:], own)
                )
                best[members] = min(
                    best[one] + best[members - one] + self._step(one, members - one, needed, also) for one in splits
                )
        return best[frozenset(every)]

    def _step(
        self, one: frozenset[int], other: frozenset[int], needed: Some, also: tuple[tuple[int, ...], Some] | None
    ) -> int:
        """Return the multiply-adds of two parts of the product."""
        members = one | other
        left = self._left(members)
        rest = [(self._labels[i], self._filled[i]) for i in range(len(self._labels)) if i not in members]
        wanted = self._patterns.joined([*rest, (self._out, needed)], left) if rest else needed
        parts = [self._part(one), self._part(other), (left if rest else self._out, wanted), *((also,) if also else ())]
        labels = {*self._left(one), *self._left(other)}
        if labels == set(left):
            return 0  # element by element: no sum of products
        return count(parts, {label: self._sizes[label] for label in labels})

    def _part(self, members: frozenset[int]) -> tuple[tuple[int, ...], Some]:
        """Return which elements of a part take products."""
        if len(members) == 1:
            (own,) = members
            left = self._left(members)
            if set(left) == set(self._labels[own]):
                return self._labels[own], self._taking[own]
        left = self._left(members)
        return left, self._patterns.joined([(self._labels[i], self._filled[i]) for i in sorted(members)], left)

    def _left(self, members: frozenset[int]) -> tuple[int, ...]:
        """Return the labels that a part still has once all that can be summed is."""
        outside = {*self._out, *(label for i, own in enumerate(self._labels) if i not in members for label in own)}
        own = reduce(lambda found, i: found | dict.fromkeys(self._labels[i]), sorted(members), dict[int, None]())
        return tuple(label for label in own if label in outside)
