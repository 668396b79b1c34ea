"""A sum of a sum is one sum, and factors multiply: mean over one dimension, then over another."""

from nearpeak.bounds.simplify.product_sums import Product, merged, opened, placed, term_of
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node


def _rule(graph: Graph, node: Node) -> int | None:
    if len(node.inputs) != 1:
        return None
    inner = graph[node.inputs[0]]
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
