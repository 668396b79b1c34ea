"""A part of an element-wise result needs only that part of the operands."""

from nearpeak.bounds.simplify.affine_views import View, is_part, separate, view
from nearpeak.bounds.simplify.product_sums import added, contracts, merged, opened, placed, view_term
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node

_MOST_SUMMANDS = 64
"""Summands of a sum of sums that are looked at."""


def _rule(graph: Graph, node: Node) -> int | None:
    source = graph[node.inputs[0]]
    assert isinstance(node.options, View)
    if contracts(source) or not is_part(node, source.shape):
        return None
    if source.kind == "add" and _shares(graph, source):
        return None  # formed as one product, it has parts like any other; the search takes parts of such sums
    if (moved := _moved_part(graph, node)) is not None:
        return moved
    if source.kind == "product":
        term = merged(graph, view_term(graph, node.inputs[0], node.options), 0, opened(graph, source))
        return None if term is None else placed(graph, term, node.dtype)
    parts = [view(graph, number, node.options.groups, node.options.starts) for number in source.inputs]
    if source.kind == "add":
        return added(graph, parts, node.dtype)
    return graph.add_part(node.inputs[0], "pointwise", tuple(parts), node.shape, source.options)


def _moved_part(graph: Graph, node: Node) -> int | None:
    """Return a part whose dimensions are in another order as a view of the part itself, which others may have too."""
    source = graph[node.inputs[0]]
    runs = separate(node.options, len(source.shape))
    if runs is None:
        return None
    plain = tuple(((axis, *runs[axis]),) if runs[axis][1] > 1 else () for axis in range(len(source.shape)))
    if plain == node.options.groups:
        return None
    part = view(graph, node.inputs[0], plain, node.options.starts)
    groups = [[(axis, min(1, step), n) for axis, step, n in group] for group in node.options.groups]
    return view(graph, part, groups, (0,) * len(source.shape))


def _shares(graph: Graph, total: Node) -> bool:
    """Say whether a sum adds up products that share an operand."""
    seen, waiting, left = set[int](), list(total.inputs), _MOST_SUMMANDS
    while waiting and left:
        left -= 1
        core = graph[waiting.pop()]
        while core.kind in ("view", "product") and len(core.inputs) == 1:
            core = graph[core.inputs[0]]
        if core.kind == "add":
            waiting += core.inputs
            continue
        operands = set(core.inputs) if contracts(core) else set()
        if seen & operands:
            return True
        seen |= operands
    return False


REWRITE = Rewrite(
    kinds=("view",),
    of=("pointwise", "add", "product"),
    rule=_rule,
    text="a part of an element-wise result needs only that part of its operands",
    sound="always: each element depends on the operands' elements at its own position",
)
