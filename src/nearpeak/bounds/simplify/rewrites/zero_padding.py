"""A sum over products with a padded factor runs over the part that is not padding."""

from nearpeak.bounds.simplify.affine_views import selected
from nearpeak.bounds.simplify.product_sums import Product, product
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node

Span = tuple[int, int, int]
"""First position and extent of what is not padding along a dimension, and the node that holds it."""


def _rule(graph: Graph, node: Node) -> int | None:
    assert isinstance(node.options, Product)
    for place, (number, labels) in enumerate(zip(node.inputs, node.options.labels, strict=True)):
        for axis, label in enumerate(labels):
            if label in node.options.out:
                continue
            span = _span(graph, number, axis)
            if span is not None:
                return _shortened(graph, node, place, label, span)
    return None


def _span(graph: Graph, number: int, axis: int) -> Span | None:
    """Return what of a factor is not padding along one dimension; none where all of it may differ from 0."""
    node = graph[number]
    if node.kind == "spread":
        (begin, step), inner = node.options[axis], graph[node.inputs[0]]
        others = all(n == m for place, (n, m) in enumerate(zip(inner.shape, node.shape, strict=True)) if place != axis)
        return (
            (begin, inner.shape[axis], node.inputs[0]) if others and step == 1 and inner.shape != node.shape else None
        )
    if node.kind != "join" or node.options != axis:
        return None
    begin, spans = 0, []
    for part in node.inputs:
        if graph[part].kind != "constant" or graph[part].options != 0:
            spans.append((begin, graph[part].shape[axis], part))
        begin += graph[part].shape[axis]
    return spans[0] if len(spans) == 1 < len(node.inputs) else None


def _shortened(graph: Graph, node: Node, place: int, label: int, span: Span) -> int:
    """Return the product over the positions of one label that are not padding."""
    assert isinstance(node.options, Product)
    begin, extent, inner = span
    factors = []
    for position, (number, labels) in enumerate(zip(node.inputs, node.options.labels, strict=True)):
        part = inner
        if position != place:
            part = selected(graph, number, labels.index(label), begin, extent) if label in labels else number
        factors.append((part, [str(name) for name in labels]))
    return product(graph, factors, [str(name) for name in node.options.out], node.dtype, node.options.factor)


REWRITE = Rewrite(
    kinds=("product",),
    rule=_rule,
    text="a sum over products with padding runs over what is not padding",
    sound="values are finite (A8), so that 0 times any of them is 0",
)
