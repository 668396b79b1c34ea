"""A part of the rows of a normalisation, a softmax or an attention needs only those rows."""

from math import prod

from nearpeak.bounds.simplify.affine_views import View, is_part, selected, separate, view
from nearpeak.bounds.simplify.operator_arguments import free_dimensions
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node, OperatorCall


def _rule(graph: Graph, node: Node) -> int | None:
    number = node.inputs[0]
    source = graph[number]
    if source.kind != "call" or not is_part(node, source.shape):
        return None
    assert isinstance(source.options, OperatorCall)
    assert isinstance(node.options, View)
    free = free_dimensions(graph, source)
    taken = separate(node.options, len(source.shape))
    if not free or taken is None:
        return None
    starts = node.options.starts
    part = {a: (starts[a], *taken[a]) for a in free if taken[a][1] < source.shape[a]}
    if not part:
        return None
    inputs = list(source.inputs)
    for place in range(len(inputs)):
        for axis, (start, step, extent) in part.items():
            if place in free[axis]:
                inputs[place] = selected(graph, inputs[place], free[axis][place], start, extent, step)
    shape = tuple(part[axis][2] if axis in part else n for axis, n in enumerate(source.shape))
    small = graph.add("call", tuple(inputs), shape, source.dtype, source.options)
    graph.share(number, small, prod(shape), prod(source.shape))
    groups = [[(axis, 1 if axis in part else s, n) for axis, s, n in group] for group in node.options.groups]
    return view(graph, small, groups, [0 if axis in part else s for axis, s in enumerate(starts)])


REWRITE = Rewrite(
    kinds=("view",),
    of=("call",),
    rule=_rule,
    text="a part of the rows of a normalisation, a softmax or an attention needs only those rows",
    sound="rows do not depend on one another: dimensions that are not normalised; queries without a causal mask",
)
