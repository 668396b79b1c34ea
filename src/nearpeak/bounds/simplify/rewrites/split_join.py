"""Distribution over a concatenation: a contraction with concatenated factors becomes a sum of smaller contractions."""

from nearpeak.bounds.simplify.affine_views import View, selected, view
from nearpeak.bounds.simplify.operand_facts import picked_dimensions
from nearpeak.bounds.simplify.product_sums import Product, added, product
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node

_MOST_PARTS = 4


def _rule(graph: Graph, node: Node) -> int | None:
    assert isinstance(node.options, Product)
    if len(node.inputs) != 2 or not node.options.out:
        return None
    for place, (number, labels) in enumerate(zip(node.inputs, node.options.labels, strict=True)):
        parts, axis = _parts(graph, number)
        if parts and labels[axis] not in node.options.out and len(parts) <= _MOST_PARTS:
            label, other_labels = labels[axis], node.options.labels[1 - place]
            holds_zeros = bool(graph.picked) and _holds_zeros(graph, node.inputs[1 - place])
            splits = any(_repeats(graph[part]) or axis in picked_dimensions(graph, part) for part in parts)
            if label in other_labels and (holds_zeros or splits):
                return _apart(graph, node, place, (parts, axis, other_labels.index(label)))
    return None


def _parts(graph: Graph, number: int) -> tuple[list[int], int]:
    """Return what a factor is joined of and along which dimension, also behind a view that keeps it; none elsewhere."""
    node = graph[number]
    if node.kind == "join":
        return list(node.inputs), node.options
    join = graph[node.inputs[0]] if isinstance(node.options, View) else node
    if join.kind != "join" or not isinstance(node.options, View):
        return [], 0
    axis, groups = join.options, node.options.groups
    users = [place for place, group in enumerate(groups) if any(source == axis for source, _, _ in group)]
    if len(users) != 1 or groups[users[0]] != ((axis, 1, join.shape[axis]),):
        return [], 0
    parts = []
    for part in join.inputs:
        whole_axis = ((axis, 1, graph[part].shape[axis]),)
        parts.append(view(graph, part, [*groups[: users[0]], whole_axis, *groups[users[0] + 1 :]], node.options.starts))
    return parts, users[0]


def _repeats(part: Node) -> bool:
    """Say whether a part holds the same values, other than 0, at several positions."""
    if part.kind == "constant":
        return bool(part.options != 0)
    return isinstance(part.options, View) and any(axis < 0 for group in part.options.groups for axis, _, _ in group)


def _holds_zeros(graph: Graph, number: int) -> bool:
    """Say whether a factor is put together of zeros and other tensors: parts may have rows of which few differ."""
    node = graph[number]
    if node.kind == "constant":
        return bool(node.options == 0)
    return node.kind in ("view", "join", "patch") and any(_holds_zeros(graph, source) for source in node.inputs)


def _apart(graph: Graph, node: Node, place: int, join: tuple[list[int], int, int]) -> int:
    """Return the sum of the products with each part; `join` gives also its dimension, and that of the other factor."""
    assert isinstance(node.options, Product)
    (parts, axis, other_axis), begin, terms = join, 0, []
    names = [[str(name) for name in labels] for labels in node.options.labels]
    for part in parts:
        extent = graph[part].shape[axis]
        rest = selected(graph, node.inputs[1 - place], other_axis, begin, extent)
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
