"""Windows that overlap only a part of a padded tensor need only that part."""

from nearpeak.bounds.simplify.affine_views import View, meets, selected, view
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node


def _rule(graph: Graph, node: Node) -> int | None:
    source = graph[node.inputs[0]]
    if source.kind != "spread":
        return None
    assert isinstance(node.options, View)
    inner, places = source.inputs[0], list(source.options)
    for axis, (begin, step) in enumerate(places):
        extent = graph[inner].shape[axis]
        runs = [(times, n) for group in node.options.groups for source_axis, times, n in group if source_axis == axis]
        positions = meets(node.options.starts[axis] - begin, runs)
        inside = positions[positions % step == 0] // step
        hits = inside[(inside >= 0) & (inside < extent)]
        if not hits.size:
            return graph.constant(0.0, node.shape, node.dtype)
        low, high = int(hits.min()), int(hits.max()) + 1
        if high - low < graph[inner].shape[axis]:
            inner = selected(graph, inner, axis, low, high - low)
            places[axis] = (begin + step * low, step)
    if inner == source.inputs[0]:
        return None
    return view(
        graph, graph.add("spread", (inner,), source.shape, node.dtype, tuple(places)), *node.options
    )  # fmt: skip


REWRITE = Rewrite(
    kinds=("view",),
    of=("spread",),
    rule=_rule,
    text="windows that meet only a part of a tensor need only that part",
    sound="always: what no window meets is not used",
    shown=False,
)
