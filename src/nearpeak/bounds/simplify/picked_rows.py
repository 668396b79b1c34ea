"""Gathers of rows of a computed tensor as products with one-hot matrices, which merge with the products before."""

from collections.abc import Sequence
from math import prod

from nearpeak.bounds.simplify.affine_views import View, reshape, view
from nearpeak.bounds.simplify.graph_builder import Lift, Ref, Site
from nearpeak.bounds.simplify.linear_algebra import is_float
from nearpeak.bounds.simplify.product_sums import product
from nearpeak.bounds.simplify.value_graph import OperatorCall, Slot

ONE_HOT_ROWS = "nearpeak.one_hot.default"
"""Operator that makes one-hot rows of positions."""


def _picked(site: Site) -> list[int] | None:
    """Read index, index_select and embedding by positions along dimensions that follow each other."""
    name = "weight" if site.packet == "embedding" else "self"
    graph = site.graph
    shape = graph[site.node(name)].shape
    places, first = _places(site, name) if shape else ((), 0)
    if not places or not all(map(is_float, (site.dtype, graph[site.node(name)].dtype))):
        return None
    axes = range(first, first + len(places))
    picks = site.shapes[0][first : len(site.shapes[0]) - (len(shape) - len(places) - first)]
    rows = prod(shape[axis] for axis in axes)
    source = graph[site.node(name)]
    groups = [source.options.groups[axis] for axis in axes] if isinstance(source.options, View) else []
    if groups and all(group and all(place < 0 for place, _, _ in group) for group in groups):  # all rows are alike
        assert isinstance(source.options, View)
        alike = [*source.options.groups[:first], *(((-1, 0, n),) for n in picks), *source.options.groups[axes.stop :]]
        return [view(graph, source.inputs[0], alike, source.options.starts)]
    if not rows:
        return None
    table = reshape(graph, site.node(name), (*shape[:first], rows, *shape[axes.stop :]))
    call = OperatorCall(
        ONE_HOT_ROWS,
        (("indices", tuple(map(Slot, range(len(places))))), ("extents", tuple(shape[axis] for axis in axes))),
    )
    chosen = graph.add("call", places, (*picks, rows), site.dtype, call)
    graph.picked[chosen] = (len(picks),)
    before, after, along = ([f"{side}{axis}" for axis in range(count)] for side, count in (
        ("b", first), ("a", len(shape) - axes.stop), ("p", len(picks))))  # fmt: skip
    return [product(graph, ((chosen, [*along, "r"]), (table, [*before, "r", *after])), [*before, *along, *after],
                    site.dtype)]  # fmt: skip


def _gathered(site: Site) -> list[int] | None:
    """Read gather: along one dimension, elements by position, of which there are fewer than in the tensor."""
    graph, number = site.graph, site.node("self")
    shape, picks = graph[number].shape, site.shapes[0]
    fewer = shape and prod(picks) < prod(shape) and len(picks) == len(shape)
    if not fewer or not all(map(is_float, (site.dtype, graph[number].dtype))):
        return None
    dim = int(site.number("dim", 0)) % len(shape)
    call = OperatorCall(ONE_HOT_ROWS, (("indices", (Slot(0),)), ("extents", shape), ("dim", dim)))
    chosen = graph.add("call", (site.node("index"),), (*picks, prod(shape)), site.dtype, call)
    graph.picked[chosen] = (len(picks),)
    along = [f"p{axis}" for axis in range(len(picks))]
    table = reshape(graph, number, (prod(shape),))
    return [product(graph, ((chosen, [*along, "r"]), (table, "r")), along, site.dtype)]


def _places(site: Site, name: str) -> tuple[tuple[int, ...], int]:
    """Return the tensors of positions, and the first of the dimensions that they pick from; none where others do."""
    if site.packet != "index":
        index = "index" if site.packet == "index_select" else "indices"
        axis = int(site.number("dim", 0)) if site.packet == "index_select" else 0
        named: Sequence[object] = (None,) * (axis % len(site.graph[site.node(name)].shape)) + (site.args.get(index),)
    else:
        indices = site.args.get("indices")
        named = indices if isinstance(indices, tuple) else ()
    used = [place for place, value in enumerate(named) if isinstance(value, Ref)]
    nodes = tuple(value.node for value in named if isinstance(value, Ref))
    follow = bool(used) and used[-1] - used[0] == len(used) - 1
    whole = all(site.graph[node].dtype in ("int64", "int32") for node in nodes)
    return (nodes, used[0]) if follow and whole else ((), 0)


PICKED_LIFTS: dict[str, Lift] = {
    **dict.fromkeys(("index", "index_select", "embedding"), _picked), "gather": _gathered,
}  # fmt: skip
"""Readers by operator."""
