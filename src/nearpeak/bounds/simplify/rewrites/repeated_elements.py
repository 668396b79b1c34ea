"""Element-wise work on operands that all repeat along a dimension is done once and repeated."""

from nearpeak.bounds.simplify.affine_views import View, repeated, reshape, view
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node, OperatorCall


def _rule(graph: Graph, node: Node) -> int | None:
    operands = [graph[number] for number in node.inputs]
    drawn = isinstance(node.options, OperatorCall) and node.options.serial >= 0
    if drawn or not operands or all(operand.kind == "constant" for operand in operands):
        return None
    axes = [axis for axis, n in enumerate(node.shape) if n > 1 and all(_repeats(operand, axis) for operand in operands)]
    if not axes or any(operand.shape != node.shape for operand in operands):
        return None
    shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(node.shape))
    inputs = []
    for operand in operands:
        if operand.kind == "constant":
            inputs.append(graph.constant(operand.options, shape, operand.dtype))
            continue
        groups = [() if axis in axes else group for axis, group in enumerate(operand.options.groups)]
        inputs.append(reshape(graph, view(graph, operand.inputs[0], groups, operand.options.starts), shape))
    inputs = sorted(inputs) if node.kind == "add" else inputs
    return repeated(graph, graph.add(node.kind, tuple(inputs), shape, node.dtype, node.options), node.shape)


def _repeats(operand: Node, axis: int) -> bool:
    """Say whether an operand holds the same values at every position along a dimension."""
    if operand.kind == "constant":
        return True
    return isinstance(operand.options, View) and all(source < 0 for source, _, _ in operand.options.groups[axis])


REWRITE = Rewrite(
    kinds=("add", "pointwise"),
    rule=_rule,
    text="element-wise work on values that repeat along a dimension is done once",
    sound="always: each element depends on the operands' elements at its own position",
    shown=False,
)
