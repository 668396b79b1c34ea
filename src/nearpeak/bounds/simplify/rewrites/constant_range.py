"""A value that can only lie at one point is that constant: clamp(min(x, 0), 0, 1) is 0."""

from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node
from nearpeak.bounds.simplify.value_ranges import range_of


def _rule(graph: Graph, node: Node) -> int | None:
    low, high = range_of(graph, node)
    return graph.constant(low, node.shape, node.dtype) if low == high and abs(low) != float("inf") else None


REWRITE = Rewrite(
    kinds=("pointwise", "call", "add", "product", "join"),
    rule=_rule,
    text="a value whose range is a single point is a constant",
    sound="values are finite (A8): a comparison with NaN gives NaN",
)
