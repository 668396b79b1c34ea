"""Known properties of call operands on the nodes of the value graph: all zero, one-hot, exact in a narrower format."""

from collections.abc import Sequence
from typing import Any

from nearpeak.bounds.simplify.affine_views import View
from nearpeak.bounds.simplify.element_moves import seen
from nearpeak.bounds.simplify.product_sums import Product, summed
from nearpeak.bounds.simplify.value_graph import Graph, OperatorCall
from nearpeak.bounds.value_facts.call_operands import FactSite, Operand, packet
from nearpeak.bounds.value_facts.carriers import carrier_of, level_of, narrower
from nearpeak.bounds.value_facts.operator_rules import product_carriers

_MOVES = ("view", "turned", "spread", "strided")
"""Kinds of node whose elements are those of their input, or 0."""


def note_facts(graph: Graph, number: int, operand: Operand, site: FactSite) -> int:
    """Keep what is known of an operand with its node, and return the node: a constant where all of it is 0."""
    node, fact = graph[number], operand.fact
    if operand.layout is None or node.kind == "constant":
        return number
    if fact.is_zero:
        return graph.constant(0.0, node.shape, node.dtype)
    if fact.selects:
        axes = tuple(
            axis for axis, (stride, extent) in enumerate(zip(operand.layout.strides, operand.layout.shape, strict=True))
            if stride in fact.selects and extent > 1
        )  # fmt: skip
        _note_selection(graph, number, axes)
    if level_of(fact.carrier) < level_of(carrier_of(operand.layout.dtype)) and product_carriers(site):
        source = source_of(graph, number)
        graph.carriers[source] = narrower(fact.carrier, graph.carriers.get(source, fact.carrier))
    return number


def _note_selection(graph: Graph, number: int, axes: tuple[int, ...]) -> None:
    """Note along which dimensions few elements differ from 0, of the node and, of a whole view, of its source."""
    if not axes:
        return
    node = graph[number]
    graph.picked[number] = axes
    if isinstance(node.options, View):
        moved = {
            group[0][0] for place, group in enumerate(node.options.groups) if place in axes and len(group) == 1
        }  # fmt: skip
        if moved and -1 not in moved and graph[node.inputs[0]].kind != "patch":
            graph.picked.setdefault(node.inputs[0], tuple(sorted(moved)))


def picked_dimensions(graph: Graph, number: int) -> tuple[int, ...]:
    """Return the dimensions of a node along which few elements differ from 0, at positions that data choose."""
    if number in graph.picked:
        return graph.picked[number]
    node = graph[number]
    if not isinstance(node.options, View):
        return ()
    axes = graph.picked.get(node.inputs[0], ())
    return tuple(
        place for place, group in enumerate(node.options.groups) if any(axis in axes for axis, _, n in group if n > 1)
    )


def adds_up(graph: Graph, number: int) -> bool:
    """Say whether products with a node take no multiplication of unknown numbers: it picks, or weights are known."""
    return bool(picked_dimensions(graph, number)) or is_weights(graph, number)


def is_weights(graph: Graph, number: int) -> bool:
    """Say whether a node is a matrix of weights that resizes an image, or a view of one."""
    return (source_of(graph, number), "weights") in graph.facts


def says_more(graph: Graph, number: int) -> bool:
    """Say whether something is known of an element-wise product that does not follow from its factors."""
    if number in graph.picked:
        return True
    node = graph[number]
    factors = list(zip(node.inputs, node.options.labels, strict=True)) if isinstance(node.options, Product) else []
    for says in ("zero", "no_product"):
        fact = graph.facts.get((number, says))
        if fact is None:
            continue
        known = (_along(_filled(graph, source), labels, node.options.out) for source, labels in factors)
        if not any(filled is not None and not (filled & ~fact.array).any() for filled in known):
            return True
    return False


def _filled(graph: Graph, number: int) -> Any:
    """Return which elements of a node are not known to be 0, as a boolean array; none where nothing is known."""
    fact, node = graph.facts.get((number, "zero")), graph[number]
    if fact is not None:
        return fact.array
    source = _filled(graph, node.inputs[0]) if isinstance(node.options, View) else None
    return None if source is None else seen(source, node.options)


def _along(array: Any, labels: Sequence[int], out: Sequence[int]) -> Any:
    """Return a boolean array of a factor along the dimensions of the product; none where there is none."""
    if array is None or not set(labels) <= set(out):
        return None
    extents = dict(zip(labels, array.shape, strict=True))
    order = [labels.index(label) for label in out if label in extents]
    return array.transpose(order).reshape([extents.get(label, 1) for label in out])


def carrier_of_node(graph: Graph, number: int) -> str:
    """Return the narrowest format that is known to carry the values of a factor."""
    return graph.carriers.get(source_of(graph, number), carrier_of(graph[number].dtype))


def source_of(graph: Graph, number: int) -> int:
    """Return the node whose elements a node moves."""
    while graph[number].kind in _MOVES:
        number = graph[number].inputs[0]
    return number


def may_hold_nowhere(graph: Graph, number: int) -> bool:
    """Say whether a node, or a factor of it, compares data with one whole number: no element may be equal to it."""
    node = graph[number]
    if isinstance(node.options, Product):
        return not summed(node.options) and any(may_hold_nowhere(graph, source) for source in node.inputs)
    if node.kind in _MOVES:
        return may_hold_nowhere(graph, node.inputs[0])
    if not isinstance(node.options, OperatorCall) or node.kind != "pointwise":
        return False
    name = packet(node.options.name)
    if name == "eq" and isinstance(node.options.value("other"), (int, float)):
        compared = graph[source_of(graph, node.inputs[0])]
        return compared.dtype in ("int64", "int32") and (compared.kind == "given" or bool(compared.inputs))
    return name == "_to_copy" and may_hold_nowhere(graph, node.inputs[0])
