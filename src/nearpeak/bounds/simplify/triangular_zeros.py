"""Share of the elements that tril, triu and zero insertion leave nonzero, for operands and results of products."""

from collections import Counter
from collections.abc import Mapping, Sequence

from nearpeak.bounds.simplify.affine_views import View, meets
from nearpeak.bounds.simplify.value_graph import Graph, Node, OperatorCall
from nearpeak.bounds.value_facts.call_operands import packet

_CUTS = ("tril", "triu")


def triangle_share(node: Node) -> tuple[int, int] | None:
    """Return how many of how many elements of a plane a triangle keeps; none for any other node."""
    if not isinstance(node.options, OperatorCall) or packet(node.options.name) not in _CUTS or len(node.shape) < 2:
        return None
    rows, columns = node.shape[-2:]
    diagonal = node.options.value("diagonal") or 0
    below = sum(min(max(row + diagonal + (packet(node.options.name) == "tril"), 0), columns) for row in range(rows))
    kept_count = below if packet(node.options.name) == "tril" else rows * columns - below
    return kept_count, rows * columns


def product_triangle_shares(graph: Graph, live: Sequence[int], roots: Sequence[int]) -> Mapping[int, tuple[int, int]]:
    """Return for nodes that triangles alone use how many of how many elements of a plane these keep."""
    cuts = {number: cut for number in live if (cut := triangle_share(graph.nodes[number])) is not None}
    if not cuts:
        return {}
    users = Counter(source for number in live for source in set(graph.nodes[number].inputs))
    root_numbers = frozenset(roots)
    of = {graph[number].inputs[0]: cut for number, cut in cuts.items()}
    return {number: cut for number, cut in of.items() if users[number] == 1 and number not in root_numbers}


Filled = Mapping[frozenset[int], tuple[int, int]]
"""By labels that run through one dimension: how many of how many positions do not surely hold zero."""


def filled(graph: Graph, number: int, labels: tuple[int, ...]) -> Filled:
    """Return where an operand is zero because a triangle was cut from it, or because it was spread among zeros."""
    node = graph[number]
    cut = triangle_share(node)
    if cut is not None:
        return {frozenset(labels[-2:]): cut}
    turned = _turned(graph, node)
    if turned is not None:
        return {frozenset(label for label, axis in zip(labels, turned[1], strict=True) if axis >= turned[2]): turned[0]}
    if not isinstance(node.options, View) or graph[node.inputs[0]].kind != "spread":
        return {}
    spread = graph[node.inputs[0]]
    inner_shape = graph[spread.inputs[0]].shape
    shares: dict[frozenset[int], tuple[int, int]] = {}
    for axis, (begin, step) in enumerate(spread.options):
        runs = [
            (labels[place], times, n)
            for place, group in enumerate(node.options.groups)
            for position, times, n in group
            if position == axis
        ]
        positions = meets(node.options.starts[axis] - begin, [(times, n) for _, times, n in runs])
        hits = int(((positions % step == 0) & (positions >= 0) & (positions < step * inner_shape[axis])).sum())
        if hits < positions.size:
            shares[frozenset(label for label, _, _ in runs)] = (hits, positions.size)
    return shares


def _turned(graph: Graph, node: Node) -> tuple[tuple[int, int], tuple[int, ...], int] | None:
    """Return what a triangle keeps whose dimensions a view reorders: the part, the order, its first own dimension."""
    if not isinstance(node.options, View) or any(node.options.starts):
        return None
    source = graph[node.inputs[0]]
    cut = triangle_share(source)
    runs = [group[0] if len(group) == 1 else (-1, 0, 0) for group in node.options.groups]
    whole = [(axis, 1, source.shape[axis]) for axis, _, _ in sorted(runs)]
    if cut is None or whole != sorted(runs) or [axis for axis, _, _ in whole] != list(range(len(source.shape))):
        return None
    return cut, tuple(axis for axis, _, _ in runs), len(source.shape) - 2
