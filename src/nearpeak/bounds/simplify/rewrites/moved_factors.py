"""A flip or index selection of an outer product moves to the factors that vary along that dimension."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from nearpeak.bounds.simplify.affine_views import View, view
from nearpeak.bounds.simplify.operand_facts import says_more
from nearpeak.bounds.simplify.product_sums import Product, Term, merged, opened, placed, summed, view_term
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node, OperatorCall, Slot
from nearpeak.bounds.value_facts.call_operands import packet


class _Move(NamedTuple):
    """An operator that moves elements along dimensions of its first input, whatever they are."""

    axes: tuple[int, ...]
    """Dimensions along which it moves them."""
    extent: int
    """Positions that each of these has afterwards; 0 where they keep theirs."""
    apply: Callable[[int, Sequence[int]], int]
    """Moves another node along the given dimensions."""


def _rule(graph: Graph, node: Node) -> int | None:
    move = _reversal(graph, node) if node.kind == "turned" else _selection(graph, node)
    term = None if move is None else _outer_term(graph, node.inputs[0])
    if move is None or term is None or (move.extent and any(len(term.axes[axis]) != 1 for axis in move.axes)):
        return None
    labels = {label for axis in move.axes for label in term.axes[axis]}
    every = set(term.sizes)
    moves = [[label for _, steps in index for label, _ in steps] for _, index in term.operands]
    if any(len(set(axes_labels)) < len(axes_labels) for axes_labels in moves) or all(
        every == set(axes_labels) for axes_labels in moves
    ):
        return None
    operands = []
    for (number, index), axes_labels in zip(term.operands, moves, strict=True):
        groups = [((axis, step, term.sizes[label]),) for axis, (_, steps) in enumerate(index) for label, step in steps]
        factor = view(graph, number, groups, [start for start, _ in index])
        axes = [axis for axis, label in enumerate(axes_labels) if label in labels]
        factor = move.apply(factor, axes) if axes else factor
        operands.append((factor, tuple((0, ((label, 1),)) for label in axes_labels)))
    sizes = {label: move.extent if move.extent and label in labels else n for label, n in term.sizes.items()}
    return placed(graph, Term(tuple(operands), term.axes, sizes, term.factor), node.dtype)


def _outer_term(graph: Graph, number: int) -> Term | None:
    """Return a view or a product without a sum as a term; none where something is known of it as a whole."""
    node = graph[number]
    if isinstance(node.options, Product):
        return None if summed(node.options) or says_more(graph, number) else opened(graph, node)
    if not isinstance(node.options, View):
        return None
    term, source = view_term(graph, node.inputs[0], node.options), graph[node.inputs[0]]
    if not isinstance(source.options, Product) or summed(source.options) or says_more(graph, node.inputs[0]):
        return term
    return merged(graph, term, 0, opened(graph, source))


def _reversal(graph: Graph, node: Node) -> _Move:
    def apply(number: int, axes: Sequence[int]) -> int:
        shape, dtype = graph[number].shape, graph[number].dtype
        turned = tuple(axis for axis in axes if shape[axis] > 1)
        return graph.add("turned", (number,), shape, dtype, turned) if turned else number

    return _Move(node.options, 0, apply)


def _selection(graph: Graph, node: Node) -> _Move | None:
    """Return an operator that picks positions along one dimension by a list of them."""
    assert isinstance(node.options, OperatorCall)
    name, rank = packet(node.options.name), len(node.shape)
    if name not in ("index_select", "index", "embedding") or len(node.inputs) != 2 or node.options.result:
        return None
    index = node.inputs[1]
    places = node.options.value("indices")
    axis = node.options.value("dim") if name == "index_select" else 0
    if name == "index" and isinstance(places, tuple):
        axis = next((place for place, value in enumerate(places) if isinstance(value, Slot)), None)
    is_list = len(graph[index].shape) == 1 and graph[index].dtype in ("int64", "int32")
    if not isinstance(axis, int) or not is_list or not rank or len(graph[node.inputs[0]].shape) != rank:
        return None

    def apply(number: int, axes: Sequence[int]) -> int:
        (source_axis,) = axes
        source = graph[number]
        shape = (*source.shape[:source_axis], node.shape[axis % rank], *source.shape[source_axis + 1 :])
        picks = (*(None for _ in range(source_axis)), Slot(1))
        arguments = (("self", Slot(0)), ("indices", picks))
        return graph.add("call", (number, index), shape, source.dtype, OperatorCall("aten.index.Tensor", arguments))

    return _Move((axis % rank,), node.shape[axis % rank], apply)


REWRITE = Rewrite(
    kinds=("turned", "call"),
    of=("view", "product"),
    rule=_rule,
    text="positions of an outer product are moved in the factors that vary along them",
    sound="always: the operator moves elements, whatever they are",
    shown=False,
)
