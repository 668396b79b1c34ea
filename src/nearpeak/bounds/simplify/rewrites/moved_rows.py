"""A product with rows in another order, among zeros, or with some again, is the product's rows moved alike."""

from math import prod

from nearpeak.bounds.simplify.affine_views import Factor, View, reshape, view
from nearpeak.bounds.simplify.operand_facts import is_weights, picked_dimensions, source_of
from nearpeak.bounds.simplify.product_sums import Product, contracts, product
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node

_MOST_PARTS = 4


def _rule(graph: Graph, node: Node) -> int | None:
    if node.kind == "pointwise":
        turns = {graph[number].options if graph[number].kind == "turned" else () for number in node.inputs}
        if len(turns) != 1 or () in turns:
            return None
        inner = tuple(graph[number].inputs[0] for number in node.inputs)
        done = graph.add("pointwise", inner, node.shape, node.dtype, node.options)
        return graph.add("turned", (done,), node.shape, node.dtype, turns.pop())
    if not contracts(node) or any(is_weights(graph, number) for number in node.inputs):
        return None
    assert isinstance(node.options, Product)
    for place, number in enumerate(node.inputs):
        if (number, "zero") in graph.facts or picked_dimensions(graph, number):
            continue
        whole = graph[graph[number].inputs[0]] if isinstance(graph[number].options, View) else graph[number]
        axes = _axes(graph, whole)
        labels = [node.options.labels[place][at] for at in _places(graph, number, axes)]
        others = {label for at, row in enumerate(node.options.labels) if at != place for label in row}
        if labels and set(labels) <= set(node.options.out) - others:
            return _outside(graph, node, place, whole, others)
    return None


def _axes(graph: Graph, node: Node) -> tuple[int, ...]:
    """Return the dimensions along which a node is a tensor in reverse or among zeros, or parts of one in a row."""
    if node.kind == "turned":
        return tuple(node.options)
    if node.kind == "spread":
        inner = graph[node.inputs[0]].shape
        return tuple(axis for axis, n in enumerate(node.shape) if inner[axis] != n)
    sources = [source_of(graph, part) for part in node.inputs if graph[part].kind != "constant"]
    several = node.kind == "join" and len(sources) <= _MOST_PARTS and len(set(sources)) < len(sources)
    return (node.options,) if several else ()


def _places(graph: Graph, number: int, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dimensions of a node that hold those of what it shows whole; none where it shows a part."""
    options = graph[number].options
    if not isinstance(options, View) or not axes:
        return axes
    shape = graph[graph[number].inputs[0]].shape
    runs = [run for group in options.groups for run in group]
    if any(axis < 0 or (step, n) != (1, shape[axis]) for axis, step, n in runs) or any(options.starts):
        return ()
    return tuple(place for place, group in enumerate(options.groups) if any(axis in axes for axis, _, _ in group))


def _outside(graph: Graph, node: Node, place: int, whole: Node, others: set[int]) -> int | None:
    """Return the node as the moved products with what an operand moves; labels that `others` have stay whole."""
    assert isinstance(node.options, Product)
    number, labels = node.inputs[place], node.options.labels[place]
    options = graph[number].options
    groups: tuple[tuple[Factor, ...], ...] = tuple(
        ((axis, 1, n),) if n > 1 else () for axis, n in enumerate(whole.shape)
    )
    groups = options.groups if isinstance(options, View) else groups
    parts = {
        label: [str(label)] if label in others else [f"{label}.{axis}" for axis, _, _ in group]
        for label, group in zip(labels, groups, strict=True)
    }
    if any(len(parts[label]) != len(group) for label, group in zip(labels, groups, strict=True)):
        return None
    axes = [axis for group in groups for axis, _, _ in group]
    names = [name for label in labels for name in parts[label]]
    out = [name for label in node.options.out for name in parts.get(label, [str(label)])]
    made = []
    for source in whole.inputs:
        shape = graph[source].shape
        seen = view(graph, source, [((axis, 1, shape[axis]),) for axis in axes], (0,) * len(shape))
        extents = tuple(shape[axis] for axis in axes)
        operands = [
            (reshape(graph, seen, extents), names) if at == place else (other, [str(label) for label in row])
            for at, (other, row) in enumerate(zip(node.inputs, node.options.labels, strict=True))
        ]
        made.append(product(graph, operands, out, node.dtype, node.options.factor))
    spots = {axis: out.index(name) for axis, name in zip(axes, names, strict=True) if name in out}
    shape = graph[made[0]].shape
    if whole.kind == "turned":
        turned = tuple(sorted(spots[axis] for axis in whole.options))
        moved = graph.add("turned", (made[0],), shape, node.dtype, turned)
    elif whole.kind == "spread":
        spans = {spots[axis]: (whole.options[axis], whole.shape[axis]) for axis in spots}
        places = tuple(spans[at][0] if at in spans else (0, 1) for at in range(len(shape)))
        extents = tuple(spans[at][1] if at in spans else n for at, n in enumerate(shape))
        moved = graph.add("spread", (made[0],), extents, node.dtype, places)
    else:
        along = spots[whole.options]
        extent = sum(graph[part].shape[along] for part in made)
        moved = graph.add("join", tuple(made), (*shape[:along], extent, *shape[along + 1 :]), node.dtype, along)
    assert prod(graph[moved].shape) == prod(node.shape)
    return reshape(graph, moved, node.shape)


REWRITE = Rewrite(
    kinds=("product", "pointwise"),
    rule=_rule,
    text="a product with rows in another order is formed once",
    sound="always: a row of the product depends on that row alone",
    shown=False,
)
