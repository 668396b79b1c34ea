"""A slice of concatenated tensors that lies in one of them is a slice of that one."""

from nearpeak.bounds.simplify.affine_views import View, view
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node


def _rule(graph: Graph, node: Node) -> int | None:
    source = graph[node.inputs[0]]
    if source.kind != "join":
        return None
    assert isinstance(node.options, View)
    axis = source.options
    first = node.options.starts[axis]
    last = first + sum(
        s * (n - 1) for group in node.options.groups for source_axis, s, n in group if source_axis == axis
    )
    begin = 0
    for number in source.inputs:
        extent = graph[number].shape[axis]
        if begin <= first and last < begin + extent:
            starts = tuple(s - begin if place == axis else s for place, s in enumerate(node.options.starts))
            return view(graph, number, node.options.groups, starts)
        begin += extent
    return None


REWRITE = Rewrite(
    kinds=("view",),
    of=("join",),
    rule=_rule,
    text="a slice of a concatenation that lies in one part is a slice of that part",
    sound="always",
)
