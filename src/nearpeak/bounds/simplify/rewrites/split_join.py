"""A sum over products with concatenated factors is the sum of those with each, where some of them repeat themselves."""

from nearpeak.bounds.simplify.affine_views import View, selected
from nearpeak.bounds.simplify.product_sums import Product, added, product
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node

_MOST_PARTS = 4


def _rule(graph: Graph, node: Node) -> int | None:
    assert isinstance(node.options, Product)
    if len(node.inputs) != 2 or not node.options.out:
        return None
    for place, (number, labels) in enumerate(zip(node.inputs, node.options.labels, strict=True)):
        join = graph[number]
        if join.kind == "join" and labels[join.options] not in node.options.out and len(join.inputs) <= _MOST_PARTS:
            label = labels[join.options]
            other, other_labels = node.inputs[1 - place], node.options.labels[1 - place]
            if label in other_labels and any(_repeats(graph[part]) for part in join.inputs):
                return _apart(graph, node, place, (label, other_labels.index(label)), other)
    return None


def _repeats(part: Node) -> bool:
    """Say whether a part holds the same values, other than 0, at several positions."""
    if part.kind == "constant":
        return bool(part.options != 0)
    return isinstance(part.options, View) and any(axis < 0 for group in part.options.groups for axis, _, _ in group)


def _apart(graph: Graph, node: Node, place: int, label: tuple[int, int], other: int) -> int:
    """Return the sum of the products with each part."""
    assert isinstance(node.options, Product)
    join, begin, terms = graph[node.inputs[place]], 0, []
    names = [[str(name) for name in labels] for labels in node.options.labels]
    for part in join.inputs:
        extent = graph[part].shape[join.options]
        rest = selected(graph, other, label[1], begin, extent)
        factors = [(part, names[place]), (rest, names[1 - place])]
        terms.append(product(graph, factors, [str(name) for name in node.options.out], node.dtype, node.options.factor))
        begin += extent
    return added(graph, terms, node.dtype)


REWRITE = Rewrite(
    kinds=("product",),
    rule=_rule,
    text="a sum over products with concatenated factors is the sum of those with each",
    sound="always, in real arithmetic (A18)",
    shown=False,
)
