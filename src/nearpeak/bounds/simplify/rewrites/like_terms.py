"""Equal summands are counted once: x - x = 0, x + 0 = x, and x minus its mean over a dimension of one element is 0."""

from nearpeak.bounds.simplify.affine_views import View, view
from nearpeak.bounds.simplify.product_sums import Product, added, scaled
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node


def _rule(graph: Graph, node: Node) -> int | None:
    counts: dict[int, float] = {}
    fixed = 0.0
    for number in node.inputs:
        summand = graph[number]
        if summand.kind == "constant":
            fixed += summand.options
            continue
        core, factor = _split(graph, number)
        counts[core] = counts.get(core, 0.0) + factor
    if all(counts.values()) and len(counts) + (fixed != 0) == len(node.inputs):
        return None
    left = [scaled(graph, core, factor) for core, factor in counts.items() if factor != 0]
    if fixed or not left:
        left.append(graph.constant(fixed, node.shape, node.dtype))
    return added(graph, left, node.dtype)


def _split(graph: Graph, number: int) -> tuple[int, float]:
    """Return what is multiplied by a number alone, and the number."""
    node = graph[number]
    if isinstance(node.options, View):
        core, factor = _split(graph, node.inputs[0])
        same = core == node.inputs[0]
        return (number if same else view(graph, core, node.options.groups, node.options.starts)), factor
    if isinstance(node.options, Product) and node.options.labels == (node.options.out,):
        return node.inputs[0], node.options.factor
    return number, 1.0


REWRITE = Rewrite(
    kinds=("add",),
    rule=_rule,
    text="equal summands are counted once: x - x = 0, x + 0 = x",
    sound="values are finite (A8): infinity minus infinity is no number",
)
