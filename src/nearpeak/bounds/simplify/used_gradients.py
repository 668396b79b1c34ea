"""Gradients of convolutions and recurrent layers that are used: the others take no products and read no operands."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from nearpeak.bounds.simplify.element_patterns import ElementSet, Patterns
from nearpeak.bounds.simplify.value_graph import Graph, Node, OperatorCall
from nearpeak.bounds.value_facts.call_operands import packet

_UNREAD = ((1,), (2,), (1, 2))
"""By gradient, of input, weight and bias: operands that it does not depend on, of upstream gradient, input, weight."""
_RECURRENT = ("lstm_backward", "gru_backward", "rnn_tanh_backward", "rnn_relu_backward")


class UsedPart(NamedTuple):
    """What is used of a call's gradients: what is not spared, times a share."""

    spared: int
    """Multiply-adds of gradients that nothing uses, at most."""
    used: int
    """Parts of the rest that something uses."""
    of: int
    """All parts."""


class _Reach(NamedTuple):
    """What of a recurrent layer upstream gradients reach."""

    steps: tuple[int, ...]
    """By direction: steps, from the first one that it takes."""
    rows: Any
    """Rows, a boolean array."""


def operands_of(graph: Graph, stated: OperatorCall, inputs: Sequence[int], place: int) -> tuple[int, ...]:
    """Return the operands of a call's result, zeros in place of those that it does not depend on."""
    wanted = _wanted(stated)
    unread = _UNREAD[wanted[place]] if place < len(wanted) else ()
    return tuple(
        graph.constant(0.0, *graph[number][2:4]) if position in unread else number
        for position, number in enumerate(inputs)
    )


def used_parts(graph: Graph, live: Sequence[int], filled: Mapping[int, ElementSet]) -> dict[int, UsedPart]:
    """Return by call of gradients what is used of its products, where that is not all.

    Args:
        filled: elements that may differ from 0, where that is known.
    """
    results: dict[int, list[Node]] = {}
    for number in live:
        if number in graph.owner and (_wanted(graph[number].options) or is_recurrent(graph[number])):
            results.setdefault(graph.owner[number], []).append(graph[number])
    parts = {}
    for call, nodes in results.items():
        wanted = _wanted(nodes[0].options)
        if wanted:
            used = sum(wanted[node.options.result] < 2 for node in nodes)
            parts[call] = UsedPart(0, used, sum(place < 2 for place in wanted))
        else:
            places = {node.options.result for node in nodes}
            parts[call] = UsedPart(_spared(graph, nodes[0], places), *_reached_share(graph, nodes[0], filled))
    return {call: part for call, part in parts.items() if part.spared or part.used < part.of}


def is_recurrent(node: Node) -> bool:
    """Say whether a node is a gradient of a recurrent layer."""
    return isinstance(node.options, OperatorCall) and packet(node.options.name) in _RECURRENT


def needed_operand(
    graph: Graph, node: Node, place: int, filled: Mapping[int, ElementSet], patterns: Patterns
) -> ElementSet:
    """Return which elements of an operand the gradients of a recurrent layer need, given its upstream gradients."""
    stated = node.options
    reached, ways = _reach(graph, node, filled), 2 if stated.value("bidirectional") else 1
    before = place == stated.value("output").position
    steps = graph[node.inputs[stated.value("output").position]].shape[bool(stated.value("batch_first"))]
    places = [slot.position for slot in stated.value("params")]
    if (ways == 2 and stated.value("num_layers") > 1) or (min(reached.steps) and place in places):
        return None
    if place in places:
        idle = not reached.steps[places.index(place) * ways // len(places)]
        return patterns.empty(len(graph[node.inputs[place]].shape)) if idle else None
    if not before and place != stated.value("input").position:
        return None
    if min(reached.steps) == steps and reached.rows.all():
        return None

    def build() -> Any:
        positions = np.arange(steps)  # of outputs, each step reads the state before it
        read = [positions[:: -1 if way else 1] < reached.steps[way] - before for way in range(ways)]
        by_unit = np.stack(read if before else [np.any(read, axis=0)], axis=1)
        units = graph[node.inputs[place]].shape[2] // ways if before and ways == 2 else 1
        elements = by_unit.repeat(units, axis=1)[:, None, :] & reached.rows[None, :, None]
        return elements.swapaxes(0, 1) if stated.value("batch_first") else elements

    upstream = (filled.get(node.inputs[slot.position]) for slot in stated.value("grads"))
    return patterns.once(("gradients", node, place, *upstream), build)


def _wanted(stated: object) -> tuple[int, ...]:
    """Return which gradients a call of a convolution's gradients was asked for; none of other calls."""
    if not isinstance(stated, OperatorCall) or packet(stated.name) != "convolution_backward":
        return ()
    mask = stated.value("output_mask")
    return tuple(place for place, is_wanted in enumerate(mask) if is_wanted) if isinstance(mask, tuple) else ()


def _reach(graph: Graph, node: Node, filled: Mapping[int, ElementSet]) -> _Reach:
    """Return what of a recurrent layer its upstream gradients reach; of those of last states, all steps."""
    stated, first = node.options, bool(node.options.value("batch_first"))
    shape = graph[node.inputs[stated.value("output").position]].shape
    ways = 2 if stated.value("bidirectional") else 1
    steps, rows = [0] * ways, np.zeros(shape[not first], dtype=bool)
    for slot in stated.value("grads"):
        number = node.inputs[slot.position]
        bits, of_output = filled.get(number), not slot.position and graph[number].shape == shape
        array = np.ones((1, 1, 1), dtype=bool) if bits is None else bits.array
        array = array.swapaxes(0, 1) if first and of_output else array
        rows |= array.any(axis=(0, 2))
        width = array.shape[2] // ways
        for way in range(ways):
            part = array[..., way * width : (way + 1) * width] if width and of_output else array
            by_step = np.broadcast_to(part.any(axis=(1, 2)) if of_output else part.any(), shape[first])
            last = np.flatnonzero(by_step[::-1] if way else by_step)
            steps[way] = max(steps[way], int(last[-1]) + 1 if len(last) else 0)
    return _Reach(tuple(steps), rows)


def _reached_share(graph: Graph, node: Node, filled: Mapping[int, ElementSet]) -> tuple[int, int]:
    """Return how many of how many products upstream gradients reach; from a state of zero, one step may take none."""
    reached, stated = _reach(graph, node, filled), node.options
    steps = graph[node.inputs[stated.value("output").position]].shape[bool(stated.value("batch_first"))]
    less = int(steps > 1 and _from_zero(graph, node))
    count = sum(max(0, many - less) for many in reached.steps)
    return count * int(reached.rows.sum()), len(reached.steps) * (steps - less) * reached.rows.size


def _from_zero(graph: Graph, node: Node) -> bool:
    states = [graph[node.inputs[slot.position]] for slot in node.options.value("hx")]
    return all(state.kind == "constant" and state.options == 0 for state in states)


def _spared(graph: Graph, node: Node, used: set[int]) -> int:
    """Return the multiply-adds that only results take which nothing uses, at most.

    Args:
        used: positions of the results that something uses.
    """
    stated = node.options
    with_input, states, params = bool(stated.value("input_requires_grad")), stated.value("hx"), stated.value("params")
    ways, layers = 2 if stated.value("bidirectional") else 1, stated.value("num_layers")
    shape = graph[node.inputs[stated.value("output").position]].shape
    batch, rows = shape[not stated.value("batch_first")], prod(shape[:2])
    first, size = with_input + len(states), len(params) // (ways * layers)
    of_input, of_states = with_input and 0 in used, any(place in used for place in range(with_input, first))
    places = [[range(first, first + len(params))[(layer * ways + way) * size :][:size] for way in range(ways)]
              for layer in range(layers)]  # fmt: skip
    total, below, from_zero = 0, of_input, _from_zero(graph, node)
    for layer in range(layers):
        for group in places[layer]:
            chained = below or of_states or not used.isdisjoint(group)
            for at, place in enumerate(group):
                shape = graph[node.inputs[params[place - first].position]].shape
                if len(shape) < 2:
                    continue
                passed = (below or (layer and of_states) or (not layer and not with_input)) if not at else chained
                total += (rows - batch * (at == 1 and from_zero)) * prod(shape) * ((place not in used) + (not passed))
                if at == 1 and passed and not of_states and not from_zero:
                    total += batch * prod(shape)
        below = below or any(not used.isdisjoint(group) for group in places[layer])
    return total
