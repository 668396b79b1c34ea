"""Products over resized images: each tap meets each element of the image that it was made of once."""

from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from nearpeak.bounds.simplify.affine_views import View
from nearpeak.bounds.simplify.element_moves import among, seen
from nearpeak.bounds.simplify.operand_facts import is_weights
from nearpeak.bounds.simplify.product_sums import Product
from nearpeak.bounds.simplify.value_graph import Graph, Node


def resampled_products(graph: Graph, node: Node, products: int) -> int:
    """Return the multiply-adds of a product with matrices of weights, whose own arithmetic is none of unknown numbers.

    What else is multiplied may be multiplied first; no more pairs are needed than those of positions that some weight
    joins.

    Args:
        products: multiply-adds in the cheapest order, in which weights take none.
    """
    assert isinstance(node.options, Product)
    sizes: dict[int, int] = {}
    unknown: list[set[int]] = []
    share = Fraction(1)
    for operand, labels in zip(node.inputs, node.options.labels, strict=True):
        sizes |= dict(zip(labels, graph[operand].shape, strict=True))
        if not is_weights(graph, operand):
            unknown.append(set(labels))
            continue
        share *= _met(graph, operand, [label not in node.options.out for label in labels])
    if len(unknown) < 2:
        return 0
    first = prod(sizes[label] for label in set().union(*unknown))
    return int((min(products, first) if products else first) * share)


def _met(graph: Graph, number: int, summed: list[bool]) -> Fraction:
    """Return for which share of the positions that are summed over some weight of the others is not 0."""
    others = tuple(axis for axis, is_summed in enumerate(summed) if not is_summed)
    pairs = _elements(graph, number).any(axis=others)
    return Fraction(int(pairs.sum()), max(pairs.size, 1))


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
