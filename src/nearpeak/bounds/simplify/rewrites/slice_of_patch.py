"""A slice of a partly overwritten storage reads either the last tensor written into it or the content before that."""

from nearpeak.bounds.simplify.affine_views import View, stored
from nearpeak.bounds.simplify.patch_chain import extent_of
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node
from nearpeak.core.work.tensor import Layout


def _rule(graph: Graph, node: Node) -> int | None:
    source = graph[node.inputs[0]]
    assert isinstance(node.options, View)
    runs = [group[0] if group else (0, 0, 1) for group in node.options.groups]
    if any(len(group) > 1 for group in node.options.groups) or any(axis < 0 for axis, _, _ in runs):
        return None
    before, part = source.options
    strides = tuple(step for _, step, _ in runs)
    wanted = Layout(node.shape, strides, node.dtype, node.options.starts[0], 0)
    if part.dtype == node.dtype:
        inside = stored(graph, source.inputs[1], part, wanted)
        if inside is not None:
            return inside
    return (
        stored(graph, source.inputs[0], before, wanted)
        if before.dtype == node.dtype and extent_of(part).apart(extent_of(wanted))
        else None
    )


REWRITE = Rewrite(
    kinds=("view",),
    of=("patch",),
    rule=_rule,
    text="a slice of what was written last is a slice of that",
    sound="always",
    shown=False,
)
