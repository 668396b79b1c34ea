"""Summands that are outer products with one factor are added before it multiplies: a xᵀ + b xᵀ = (a + b) xᵀ."""

from collections.abc import Iterator
from typing import NamedTuple

from nearpeak.bounds.simplify.product_sums import Product, added, contracts, product
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node


class _Outer(NamedTuple):
    """A summand as the outer product of one of its factors and the others."""

    summand: int
    """Its node."""
    others: tuple[tuple[int, tuple[str, ...]], ...]
    """The other factors and their labels; those of the result are numbered by its dimensions."""
    factor: float
    """What it is multiplied by."""


def _rule(graph: Graph, node: Node) -> int | None:
    groups: dict[tuple[int, tuple[str, ...]], list[_Outer]] = {}
    for number in node.inputs:
        for shared, outer in _outers(graph, number):
            groups.setdefault(shared, []).append(outer)
    (number, labels), outers = max(groups.items(), key=lambda item: len(item[1]), default=((-1, ()), []))
    if len(outers) < 2:
        return None
    every = [str(axis) for axis in range(len(node.shape))]
    left = [label for label in every if label not in labels]
    sums = added(graph, [product(graph, outer.others, left, node.dtype, outer.factor) for outer in outers], node.dtype)
    whole = product(graph, ((number, labels), (sums, left)), every, node.dtype)
    gone = {outer.summand for outer in outers}
    return added(graph, [whole, *(number for number in node.inputs if number not in gone)], node.dtype)


def _outers(graph: Graph, number: int) -> Iterator[tuple[tuple[int, tuple[str, ...]], _Outer]]:
    """Yield each factor of a summand that has its dimensions of the result for itself, and the outer product."""
    node, factor = graph[number], 1.0
    if isinstance(node.options, Product) and node.options.labels == (node.options.out,):
        node, factor = graph[node.inputs[0]], node.options.factor
    if not isinstance(node.options, Product) or len(node.inputs) < 2 or contracts(node):
        return
    options = node.options
    names = {label: str(axis) for axis, label in enumerate(options.out)}
    factors = [
        (operand, tuple(names.get(label, f"{place}s{axis}") for axis, label in enumerate(labels)))
        for place, (operand, labels) in enumerate(zip(node.inputs, options.labels, strict=True))
    ]
    for place, (operand, labels) in enumerate(factors):
        others = (*factors[:place], *factors[place + 1 :])
        if all(set(labels).isdisjoint(other) for _, other in others) and set(labels) < {*labels, *names.values()}:
            places = tuple(label.removeprefix(str(place)) if "s" in label else label for label in labels)
            yield (operand, places), _Outer(number, others, factor * options.factor)


REWRITE = Rewrite(
    kinds=("add",),
    rule=_rule,
    text="a factor that several outer products share multiplies their sum",
    sound="always, in real arithmetic (A18)",
    shown=False,
)
