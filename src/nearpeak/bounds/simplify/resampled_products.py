"""Products over resized images: each tap meets each element of the image that it was made of once."""

from collections.abc import Sequence
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
