"""Neighbouring slices of one tensor, concatenated again, are that part of the tensor; so is a join of one."""

from itertools import accumulate

from nearpeak.bounds.simplify.affine_views import Factor, View, view
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node


def _rule(graph: Graph, node: Node) -> int | None:
    if len(node.inputs) == 1:
        return node.inputs[0]
    axis = node.options
    if len(set(node.inputs)) == 1:  # a tensor behind itself: its positions run again and again
        shape = graph[node.inputs[0]].shape
        groups = [((place, 1, extent),) for place, extent in enumerate(shape)]
        repeats: list[tuple[Factor, ...]] = [*groups]
        repeats[axis] = ((-1, 0, len(node.inputs)), *groups[axis])
        return view(graph, node.inputs[0], repeats, (0,) * len(shape))
    parts = [graph[number] for number in node.inputs]
    first = parts[0]
    if any(part.kind != "view" or part.inputs != first.inputs for part in parts):
        return None
    views: list[View] = [part.options for part in parts]
    if any(len(options.groups[axis]) != 1 for options in views):
        return None
    runs = [options.groups[axis][0] for options in views]
    source_axis, step, _ = runs[0]
    if source_axis < 0 or any(run[:2] != (source_axis, step) for run in runs) or not _neighbours(views, runs, axis):
        return None
    whole: list[tuple[Factor, ...]] = list(views[0].groups)
    whole[axis] = ((source_axis, step, node.shape[axis]),)
    return view(graph, first.inputs[0], whole, views[0].starts)


def _neighbours(views: list[View], runs: list[Factor], axis: int) -> bool:
    """Say whether each slice begins where the one before it ends, and all else agrees."""
    source_axis, step, _ = runs[0]
    ends = accumulate((step * extent for _, _, extent in runs), initial=views[0].starts[source_axis])
    begins = all(options.starts[source_axis] == begin for options, begin in zip(views, ends, strict=False))
    groups = {(*options.groups[:axis], *options.groups[axis + 1 :]) for options in views}
    starts = {(*options.starts[:source_axis], *options.starts[source_axis + 1 :]) for options in views}
    return begins and len(groups) == len(starts) == 1


REWRITE = Rewrite(
    kinds=("join",),
    rule=_rule,
    text="neighbouring slices that are concatenated again are the tensor they came from",
    sound="always",
)
