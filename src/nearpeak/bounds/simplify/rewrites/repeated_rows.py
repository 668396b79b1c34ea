"""An operator that takes rows apart is done once for rows that stand several times."""

from math import prod

from nearpeak.bounds.simplify.affine_views import Factor, View, reshape, view
from nearpeak.bounds.simplify.live_elements import is_attention
from nearpeak.bounds.simplify.operator_arguments import free_dimensions
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node, OperatorCall


def _rule(graph: Graph, node: Node) -> int | None:
    stated = node.options
    if not isinstance(stated, OperatorCall) or stated.serial >= 0 or not node.inputs:
        return None
    for axis, moves in free_dimensions(graph, node).items():
        if is_attention(node) and len(moves) < 3:  # queries alike are one
            continue
        operands = [(graph[node.inputs[place]].options, source_axis) for place, source_axis in moves.items()]
        groups = [options.groups[source_axis] if isinstance(options, View) else () for options, source_axis in operands]
        for end in (0, -1) if all(groups) else ():
            ((repeat, _, count), *others) = {group[end] for group in groups}
            if repeat < 0 and not others:
                return _once(graph, node, axis, moves, (end, count))
    return None


def _once(graph: Graph, node: Node, axis: int, moves: dict[int, int], repeat: tuple[int, int]) -> int:
    """Return the node as a view of one with a dimension `count` times shorter, of which one end repeated itself."""
    end, count = repeat
    inputs = list(node.inputs)
    for place, source_axis in moves.items():
        operand = graph[inputs[place]]
        assert isinstance(operand.options, View)
        groups = list(operand.options.groups)
        groups[source_axis] = groups[source_axis][1:] if end == 0 else groups[source_axis][:-1]
        seen = view(graph, operand.inputs[0], groups, operand.options.starts)
        shape = tuple(n // count if at == source_axis else n for at, n in enumerate(operand.shape))
        inputs[place] = reshape(graph, seen, shape)
    shape = tuple(n // count if at == axis else n for at, n in enumerate(node.shape))
    small = graph.add("call", tuple(inputs), shape, node.dtype, node.options)
    if graph.owner.get(small) == graph.call >= 0:
        graph.parts[small] = (graph.owner.pop(small), prod(shape), prod(node.shape))
    whole: list[list[Factor]] = [[(at, 1, n)] if n > 1 else [] for at, n in enumerate(shape)]
    whole[axis].insert(0 if end == 0 else len(whole[axis]), (-1, 0, count))
    return view(graph, small, whole, (0,) * len(shape))


REWRITE = Rewrite(
    kinds=("call",),
    of=("view",),
    rule=_rule,
    text="what an operator does row by row is done once for rows that are the same",
    sound="rows do not depend on one another",
)
