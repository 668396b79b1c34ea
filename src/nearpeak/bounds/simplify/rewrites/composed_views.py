"""A view of a view is one view; a view of a constant is that constant."""

from nearpeak.bounds.simplify.affine_views import View, composed, view
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node


def _rule(graph: Graph, node: Node) -> int | None:
    source = graph[node.inputs[0]]
    if source.kind == "constant":
        return graph.constant(source.options, node.shape, node.dtype)
    if not isinstance(source.options, View) or not isinstance(node.options, View):
        return None
    both = composed(node.options, source.options, graph[source.inputs[0]].shape)
    return None if both is None else view(graph, source.inputs[0], both.groups, both.starts)


REWRITE = Rewrite(
    kinds=("view",),
    of=("constant", "view"),
    rule=_rule,
    text="transposes, reshapes and slices that follow one another are one",
    sound="always: views move elements and change none",
    shown=False,
)
