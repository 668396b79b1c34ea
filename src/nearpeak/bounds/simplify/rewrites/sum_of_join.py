"""A sum over concatenated or stacked tensors is the sum of their sums: the mean of several maps."""

from nearpeak.bounds.simplify.product_sums import Product, added, product
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node

_MOST_PARTS = 16


def _rule(graph: Graph, node: Node) -> int | None:
    assert isinstance(node.options, Product)
    if len(node.inputs) != 1:
        return None
    (labels,), join = node.options.labels, graph[node.inputs[0]]
    if labels[join.options] in node.options.out or len(join.inputs) > _MOST_PARTS:
        return None
    names, out = [str(label) for label in labels], [str(label) for label in node.options.out]
    sums = [product(graph, [(part, names)], out, node.dtype, node.options.factor) for part in join.inputs]
    return added(graph, sums, node.dtype)


REWRITE = Rewrite(
    kinds=("product",),
    of=("join",),
    rule=_rule,
    text="a sum over concatenated tensors is the sum of their sums",
    sound="always, in real arithmetic (A18)",
    shown=False,
)
