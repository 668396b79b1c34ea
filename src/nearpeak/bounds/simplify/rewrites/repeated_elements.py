"""Element-wise work on operands that all repeat along a dimension is done once and repeated."""

from nearpeak.bounds.simplify.affine_views import Factor, View, repeated, reshape, view
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node, OperatorCall


def _rule(graph: Graph, node: Node) -> int | None:
    operands = [graph[number] for number in node.inputs]
    drawn = isinstance(node.options, OperatorCall) and node.options.serial >= 0
    if drawn or not operands or all(operand.kind == "constant" for operand in operands):
        return None
    if any(operand.shape != node.shape for operand in operands):
        return None
    axes = [axis for axis, n in enumerate(node.shape) if n > 1 and all(_repeats(operand, axis) for operand in operands)]
    if not axes:
        return _several_times(graph, node)
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


def _several_times(graph: Graph, node: Node) -> int | None:
    """Return the work on rows that stand several times in some operands while the others are alike in all rows."""
    for axis, extent in enumerate(node.shape):
        groups = [_group(graph[number], axis) for number in node.inputs]
        several = [group for group in groups if len(group) > 1]
        alike = all(axis < 0 for group in groups if len(group) < 2 for axis, _, _ in group)
        for place in (0, -1) if several and alike else ():
            runs = {group[place] for group in several}
            repeat, _, count = several[0][place]
            if len(runs) > 1 or repeat >= 0:
                continue
            shape = (*node.shape[:axis], extent // count, *node.shape[axis + 1 :])
            inputs = tuple(_once(graph, number, axis, place, shape) for number in node.inputs)
            inputs = tuple(sorted(inputs)) if node.kind == "add" else inputs
            small = graph.add(node.kind, inputs, shape, node.dtype, node.options)
            whole = [[(place_axis, 1, n)] if n > 1 else [] for place_axis, n in enumerate(shape)]
            whole[axis].insert(-place * len(whole[axis]), (-1, 0, count))
            return view(graph, small, whole, (0,) * len(shape))
    return None


def _group(operand: Node, axis: int) -> tuple[Factor, ...]:
    """Return how an operand moves along a dimension."""
    if isinstance(operand.options, View):
        return operand.options.groups[axis]
    return ((-1 if operand.kind == "constant" else axis, 1, operand.shape[axis]),)


def _once(graph: Graph, number: int, axis: int, place: int, shape: tuple[int, ...]) -> int:
    """Return an operand without the repeats at one end of a dimension."""
    operand = graph[number]
    if operand.kind == "constant":
        return graph.constant(operand.options, shape, operand.dtype)
    groups = list(operand.options.groups)
    group = groups[axis]
    left = group[1:] if place == 0 else group[:-1]
    groups[axis] = left if len(group) > 1 else ((-1, 0, shape[axis]),)
    return view(graph, operand.inputs[0], groups, operand.options.starts)


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
