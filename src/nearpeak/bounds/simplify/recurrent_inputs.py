"""Recurrent layers split layer by layer: products of their inputs, open to rewrites, and calls for the recurrences."""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from nearpeak.bounds.simplify.affine_views import View, repeated, reshape, selected, view
from nearpeak.bounds.simplify.graph_builder import Lift, Ref, Site
from nearpeak.bounds.simplify.product_sums import product
from nearpeak.bounds.simplify.value_graph import Graph, OperatorCall, Slot

STEPS = "nearpeak.recurrent_steps.default"
"""Operator that does the steps of one layer in one direction: outputs beside the last cell state, [step, row, unit]."""
_IDLE_GATE = {"lstm": 1, "gru": 0}
"""Gate of one step from zero that only scales the state, by cell; of a GRU, only where no bias is scaled."""
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


class _Made(NamedTuple):
    """A layer in one direction as nodes."""

    whole: int
    """Outputs of all steps beside the last cell state, [step, row, unit]."""
    core: int
    """The node that does the steps: of one row, where all rows are alike."""
    products: int
    """Multiply-adds of the steps of all rows, without those of the inputs."""


class _Layer(NamedTuple):
    """A layer in one direction."""

    backward: bool
    """From the last step to the first."""
    params: tuple[int, ...]
    """Weights of inputs and of states, biases, weights of a projection."""
    states: tuple[int, ...]
    """First states, [row, unit] each."""


def _read(site: Site) -> list[int] | None:
    """Read a recurrent layer, or several above one another."""
    graph, params, states = site.graph, _tensors(site, "params"), _tensors(site, "hx")
    directions, layers = 2 if site.args.get("bidirectional") else 1, int(site.number("num_layers", 1))
    size = len(params) // max(1, directions * layers)
    if size < 2 or not states or not site.is_tensor("input") or len(graph[site.node("input")].shape) != 3:
        return None
    x = site.node("input")
    if site.args.get("batch_first"):
        x = _turned(graph, x)
    call, first = graph.call, _is_zero(graph, states)
    graph.separated.setdefault(call, 0)
    total, width = 0, graph[states[0]].shape[2]
    nodes: dict[int, int] = {}
    ends: list[list[int]] = [[], []]
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            place = layer * directions + direction
            heads = tuple(
                reshape(graph, selected(graph, state, 0, place, 1), graph[state].shape[1:]) for state in states
            )
            weights = tuple(params[place * size : (place + 1) * size])
            layer_nodes = _layer(site, x, _Layer(direction == 1, weights, heads), first)
            total += layer_nodes.products
            if graph[layer_nodes.core].kind == "call":
                nodes[layer_nodes.core] = layer_nodes.products // (
                    graph[layer_nodes.whole].shape[1] // graph[layer_nodes.core].shape[1]
                )
            steps, _, wide = graph[layer_nodes.whole].shape
            outputs.append(_part(graph, layer_nodes.whole, 2, 0, width))
            last = 0 if direction else steps - 1
            ends[0].append(_part(graph, outputs[-1], 0, last, 1))
            if wide > width:
                ends[1].append(_part(graph, _part(graph, layer_nodes.whole, 0, last, 1), 2, width, wide - width))
        x = outputs[0]
        if directions == 2:
            shape = (*graph[x].shape[:2], 2 * graph[x].shape[2])
            x = graph.add("join", tuple(outputs), shape, site.dtype, 2)
        if site.args.get("train") and site.number("dropout", 0.0) and layer + 1 < layers:
            drawn = OperatorCall("nearpeak.dropped.default", (("self", Slot(0)),), 0, call)
            x = graph.add("call", (x,), graph[x].shape, site.dtype, drawn)
            graph.parts[x] = (call, 0, 1)
            graph.owner.pop(x, None)
    for number, products in nodes.items():
        graph.parts[number] = (call, products, max(total + graph.separated[call], 1))
        graph.owner.pop(number, None)
    results = [_turned(graph, x) if site.args.get("batch_first") else x]
    for parts in ends[: len(site.shapes) - 1]:
        results.append(graph.add("join", tuple(parts), (len(parts), *graph[parts[0]].shape[1:]), site.dtype, 0))
    return results


def _turned(graph: Graph, number: int) -> int:
    """Return a tensor with its first two dimensions exchanged."""
    a, b, c = graph[number].shape
    return view(graph, number, [[(1, 1, b)], [(0, 1, a)], [(2, 1, c)]], (0, 0, 0))


def _part(graph: Graph, number: int, axis: int, begin: int, extent: int) -> int:
    return selected(graph, number, axis, begin, extent) if extent != graph[number].shape[axis] else number


def _is_zero(graph: Graph, states: Sequence[int]) -> bool:
    return all(graph[state].kind == "constant" and graph[state].options == 0 for state in states)


def _layer(site: Site, x: int, layer: _Layer, from_zero: bool) -> _Made:
    """Return a layer in one direction."""
    graph, cell = site.graph, site.packet
    steps, rows, inputs = graph[x].shape
    weight, carry = layer.params[:2]
    gates, width = graph[carry].shape
    hidden, biased = gates // _GATES[cell], bool(site.args.get("has_biases"))
    idle = _IDLE_GATE.get(cell) if from_zero and (cell == "lstm" or not biased) else None
    if idle is not None and steps == 1:
        begins = (begin for begin in range(0, gates, hidden) if begin != idle * hidden)
        pieces = tuple(selected(graph, weight, 0, begin, hidden) for begin in begins)
        weight = graph.add("join", pieces, (gates - hidden, inputs), graph[weight].dtype, 0)
    projected = product(graph, ((x, "sbf"), (weight, "gf")), "sbg", site.dtype)
    spared = hidden * inputs if idle is not None and steps > 1 else 0  # by the first step
    graph.separated[graph.call] += rows * (steps * prod(graph[weight].shape) - spared)
    projection = width * hidden if len(layer.params) in (3, 5) else 0
    products = rows * (steps * (gates * width + projection) - from_zero * gates * width)
    whole = (steps, rows, width + (hidden if cell == "lstm" else 0))
    if from_zero and not biased and graph[projected].kind == "constant" and graph[projected].options == 0:
        zeros = graph.constant(0.0, whole, site.dtype)
        return _Made(zeros, zeros, products)
    states, alike = layer.states, rows > 1 and _repeats(graph, projected, 1)
    if alike and all(_repeats(graph, state, 0) for state in states):
        projected, rows = selected(graph, projected, 1, 0, 1), 1
        states = tuple(selected(graph, state, 0, 0, 1) for state in states)
    arguments = (
        ("self", Slot(0)), ("cell", cell), ("backward", layer.backward), ("from_zero", from_zero), ("hidden", hidden),
        ("states", len(states)), ("idle", -1 if idle is None else idle),
    )  # fmt: skip
    core = graph.add("call", (projected, *states, *layer.params[1:]), (steps, rows, whole[2]), site.dtype,
                     OperatorCall(STEPS, arguments))  # fmt: skip
    return _Made(repeated(graph, core, whole), core, products)


def _repeats(graph: Graph, number: int, axis: int) -> bool:
    """Say whether a node holds the same values at every position along a dimension."""
    node = graph[number]
    if node.kind == "constant":
        return True
    return isinstance(node.options, View) and all(source < 0 for source, _, _ in node.options.groups[axis])


def _tensors(site: Site, name: str) -> list[int]:
    """Return the tensors of an argument that is one or a list of them."""
    value = site.args.get(name)
    items = value if isinstance(value, tuple) else (value,)
    return [item.node for item in items if isinstance(item, Ref)]


RECURRENT_LIFTS: dict[str, Lift] = dict.fromkeys(_GATES, _read)
"""Readers by operator."""
