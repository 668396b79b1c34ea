"""The last element of a running sum is the sum."""

from nearpeak.bounds.simplify.affine_views import View, reshape, view
from nearpeak.bounds.simplify.operator_arguments import dimensions
from nearpeak.bounds.simplify.product_sums import product
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node, OperatorCall
from nearpeak.bounds.value_facts.call_operands import packet


def _rule(graph: Graph, node: Node) -> int | None:
    source = graph[node.inputs[0]]
    if not isinstance(source.options, OperatorCall) or packet(source.options.name) != "cumsum":
        return None
    assert isinstance(node.options, View)
    (axis,) = dimensions(source.options, len(source.shape))
    moved = any(source_axis == axis for group in node.options.groups for source_axis, _, _ in group)
    if moved or node.options.starts[axis] != source.shape[axis] - 1 or source.shape[axis] < 2:
        return None
    labels = [str(number) for number in range(len(source.shape))]
    left = [label for number, label in enumerate(labels) if number != axis]
    total = product(graph, [(source.inputs[0], labels)], left, node.dtype)
    shape = tuple(1 if number == axis else extent for number, extent in enumerate(source.shape))
    starts = tuple(0 if number == axis else start for number, start in enumerate(node.options.starts))
    return view(graph, reshape(graph, total, shape), node.options.groups, starts)


REWRITE = Rewrite(
    kinds=("view",),
    of=("call", "pointwise"),
    rule=_rule,
    text="the last element of a running sum is the sum",
    sound="always, in real arithmetic (A18)",
)
