"""A sum of a sum is one sum, and factors multiply: mean over one dimension, then another; that of a softmax is 1."""

from math import prod

from nearpeak.bounds.simplify.operator_arguments import dimensions
from nearpeak.bounds.simplify.product_sums import Product, merged, opened, placed, term_of
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node, OperatorCall


def _rule(graph: Graph, node: Node) -> int | None:
    if len(node.inputs) != 1:
        return None
    inner = graph[node.inputs[0]]
    stated = inner.options if isinstance(inner.options, OperatorCall) else None
    if stated and stated.name == "aten._softmax.default" and isinstance(stated.value("dim"), int):
        assert isinstance(node.options, Product)
        (labels,) = node.options.labels
        places = [place for place, label in enumerate(labels) if label not in node.options.out]
        (normalised,) = dimensions(stated, len(inner.shape))
        if normalised not in places or len(set(labels)) < len(labels):
            return None
        count = prod(inner.shape[place] for place in places if place != normalised)
        return graph.constant(node.options.factor * count, node.shape, node.dtype)
    if not isinstance(inner.options, Product) or len(inner.inputs) != 1:
        return None
    term = merged(graph, opened(graph, node), 0, term_of(graph, node.inputs[0]))
    return None if term is None else placed(graph, term, node.dtype)


REWRITE = Rewrite(
    kinds=("product",),
    rule=_rule,
    text="a sum of a sum is one sum",
    sound="always, in real arithmetic (A18)",
    shown=False,
)
