"""A product with a multiple of the identity matrix is its other factor, scaled."""

from collections.abc import Mapping, Sequence
from math import prod

from nearpeak.bounds.simplify.affine_views import Factor, View
from nearpeak.bounds.simplify.product_sums import Product, Term, contracts, divided, opened, placed
from nearpeak.bounds.simplify.rewrites import Rewrite
from nearpeak.bounds.simplify.value_graph import Graph, Node, OperatorCall
from nearpeak.bounds.value_facts.call_operands import packet

_MAKERS = ("diag_embed", "tril", "triu")
"""Operators that leave a diagonal of what they are given: the first one alone, the others together."""


def _rule(graph: Graph, node: Node) -> int | None:
    if not contracts(node):
        return None
    assert isinstance(node.options, Product)
    for place, number in enumerate(node.inputs):
        source, groups = number, tuple(((axis, 1, size),) for axis, size in enumerate(graph[number].shape))
        if isinstance(graph[number].options, View) and not any(graph[number].options.starts):
            (source,), groups = graph[number].inputs, graph[number].options.groups
        scale = _scale(graph, source)
        if scale is None or (term := _without(graph, node, place, groups, graph[source].shape[0])) is None:
            continue
        return placed(graph, term._replace(factor=term.factor * scale), node.dtype)
    return None


def _scale(graph: Graph, number: int) -> float | None:
    """Return the number on the diagonal of a multiple of the identity matrix; none of others."""
    node = graph[number]
    stated = node.options
    if not isinstance(stated, OperatorCall) or len(node.shape) != 2 or node.shape[0] != node.shape[1]:
        return None
    if packet(stated.name) == "eye":
        return 1.0
    names, source = [], node
    while isinstance(source.options, OperatorCall) and (name := packet(source.options.name)) in _MAKERS:
        if source.options.value("offset") or source.options.value("diagonal"):
            return None
        names.append(name)
        source = graph[source.inputs[0]]
    is_diagonal = names == ["diag_embed"] or sorted(names) == ["tril", "triu"]
    return float(source.options) if is_diagonal and source.kind == "constant" else None


def _without(
    graph: Graph, node: Node, place: int, groups: Sequence[Sequence[Factor]], extent: int
) -> Term | None:  # fmt: skip
    """Return a product without an identity, whose rows and columns become one label; none where both are left.

    Args:
        groups: how the dimensions of that factor run through the matrix of so many rows.
    """
    term = opened(graph, node)
    _, index = term.operands[place]
    rest = (*term.operands[:place], *term.operands[place + 1 :])
    sides: list[list[tuple[int, int, int]]] = [[], []]
    for (_, ((label, _),)), group in zip(index, groups, strict=True):
        if len(group) > 1 or any(axis < 0 for axis, _, _ in group):
            return None
        for axis, step, size in group:
            sides[axis].append((step, size, label))
    rows, columns = (sorted(side, reverse=True) for side in sides)
    for side in (rows, columns):  # labels that do not run through the dimension together, each position once
        sizes = [size for _, size, _ in side]
        if prod(sizes) != extent or any(step != prod(sizes[place + 1 :]) for place, (step, _, _) in enumerate(side)):
            return None
    out = {label for axis in term.axes for label in axis}
    for left, gone in ((rows, columns), (columns, rows)):
        if not any(label in out for _, _, label in gone):
            extents = ({label: size for _, size, label in side} for side in (left, gone))
            return _joined(term._replace(operands=rest), *extents)
    return None


def _joined(term: Term, left: Mapping[int, int], gone: Mapping[int, int]) -> Term | None:
    """Return the term with two sequences of labels, extents by label, made one; none where extents do not meet."""
    if len(gone) == 1:
        return divided(term, next(iter(gone)), left)
    if len(left) == 1:
        return divided(term, next(iter(left)), gone)
    if list(left.values()) != list(gone.values()):
        return None
    for (label, extent), other in zip(left.items(), gone, strict=True):
        term = divided(term, other, {label: extent})
    return term


REWRITE = Rewrite(
    kinds=("product",),
    rule=_rule,
    text="a product with the identity matrix is its other factor",
    sound="values are finite (A8): zeros of the identity leave nothing of what they multiply",
    shown=False,
)
