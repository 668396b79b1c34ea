"""Parts of recurrent layers whose results are used: first steps, some rows, some units of the last step."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nearpeak.bounds.simplify.element_patterns import ElementSet, Patterns
from nearpeak.bounds.simplify.recurrent_inputs import STEPS
from nearpeak.bounds.simplify.value_graph import Graph, Node, OperatorCall

_OUTPUT_GATE = 3
"""Gate of an LSTM that the cell state does not need."""


class _Used(NamedTuple):
    """What of a layer's steps is needed."""

    steps: int
    """Steps from the first one on that something depends on."""
    rows: Any
    """Rows that are needed, a boolean array."""
    units: Any
    """Units of which the last of these steps is needed, a boolean array."""
    gates: Any
    """By gate and unit: whether the last of these steps needs it, a boolean array."""


def is_steps(node: Node) -> bool:
    """Say whether a node does the steps of a recurrent layer."""
    return isinstance(node.options, OperatorCall) and node.options.name == STEPS


def used_share(graph: Graph, number: int, needed: ElementSet) -> tuple[int, int]:
    """Return how many of how many products of a layer's steps are needed for a set of its elements."""
    node = graph[number]
    if needed is None:
        return 1, 1
    used, width = _used(graph, node, needed.array), graph[node.inputs[1]].shape[1]
    carrying = used.steps - bool(node.options.value("from_zero"))
    of = node.shape[0] - bool(node.options.value("from_zero"))
    if carrying <= 0 or not used.rows.any():
        return 0, 1
    whole = _gate_count(graph, node) * node.options.value("hidden") * width
    most = (carrying - 1) * whole + int(used.gates.sum()) * width
    return most * int(used.rows.sum()), max(1, of * whole * used.rows.size)


def used_products(
    graph: Graph, live: Sequence[int], needed: Mapping[int, ElementSet], formed: Mapping[int, int]
) -> dict[int, tuple[int, int]]:
    """Return by recurrent call the products of all its layers and those that are needed, where these are fewer.

    Args:
        formed: multiply-adds of each product.
    """
    used: dict[int, tuple[int, int]] = {}
    for number in live:
        if is_steps(graph[number]):
            call, products, total = graph.parts[number]
            count, of = used_share(graph, number, needed.get(number))
            used[call] = (total, used.get(call, (0, 0))[1] + products * count // of)
    for number, products in formed.items():
        call = graph.owner.get(number, -1)
        if call in used:
            used[call] = (used[call][0], used[call][1] + products)
    return {call: counts for call, counts in used.items() if counts[1] < counts[0]}


def needed_operand(graph: Graph, number: int, needed: ElementSet, place: int, patterns: Patterns) -> ElementSet:
    """Return which elements of an input of a layer's steps are needed for a set of elements of its result."""
    node = graph[number]
    wanted = np.ones((1, 1, 1), dtype=bool) if needed is None else needed.array
    states = node.options.value("states")

    def build() -> Any:
        used, shape = _used(graph, node, wanted), graph[node.inputs[place]].shape
        if not used.rows.any() or not used.steps:
            return np.zeros((1,) * len(shape), dtype=bool)
        if place == 0:
            return _of_inputs(node, used, shape)
        if place > states:
            return _of_weights(node, used, shape, carries=place == states + 1)
        units = used.units[None] | (used.steps > 1)
        return used.rows[:, None] & units if place == 2 else used.rows[:, None]

    return patterns.once(("recurrent", number, needed, place), build)


def _of_inputs(node: Node, used: _Used, shape: tuple[int, ...]) -> Any:
    """Return the elements of the projected inputs: all gates of the steps before the last one, but for an idle one."""
    gates, idle = used.gates, node.options.value("idle")
    if idle >= 0 and shape[0] == 1:
        gates = np.delete(gates, idle, axis=0)
    is_idle = idle >= 0 and shape[0] > 1
    elements = np.zeros((shape[0], 1, 1 if gates.all() and not is_idle else shape[2]), dtype=bool)
    elements[: used.steps] = True
    elements[used.steps - 1] = gates.all() or gates.reshape(1, -1)
    if is_idle:
        hidden = node.options.value("hidden")
        elements[0, :, idle * hidden : (idle + 1) * hidden] = False
    elements = elements[::-1] if node.options.value("backward") else elements
    return elements if used.rows.all() else elements & used.rows[None, :, None]


def _of_weights(node: Node, used: _Used, shape: tuple[int, ...], *, carries: bool) -> Any:
    """Return the rows of weights and biases that are needed; after a single step, those of gates that are."""
    single = used.steps == 1
    if carries and single and node.options.value("from_zero"):
        return np.zeros((1,) * len(shape), dtype=bool)
    whole = not single or shape[0] != used.gates.size
    return (np.ones(1, dtype=bool) if whole else used.gates).reshape(-1, *(1 for _ in shape[1:]))


def _gate_count(graph: Graph, node: Node) -> int:
    carry = graph[node.inputs[1 + node.options.value("states")]].shape[0]
    count: int = carry // node.options.value("hidden")
    return count


def _used(graph: Graph, node: Node, needed: Any) -> _Used:
    """Return what a boolean array of needed elements takes."""
    stated, (steps, rows, wide) = node.options, node.shape
    hidden, width = stated.value("hidden"), graph[node.inputs[1]].shape[1]
    by_step = np.broadcast_to(needed.any(axis=(1, 2)), steps)
    by_row = np.broadcast_to(needed.any(axis=(0, 2)), rows)
    order = by_step[::-1] if stated.value("backward") else by_step
    count = int(np.flatnonzero(order)[-1]) + 1 if order.any() else 0
    last = min(steps - count, steps - 1) if stated.value("backward") else count - 1
    plane = needed[last if needed.shape[0] > 1 else 0].any(axis=0)
    units = np.broadcast_to(plane, wide)
    outputs = units[:width] if width == hidden else np.full(hidden, units[:width].any())
    cells = units[width:] if wide > width else np.zeros(hidden, dtype=bool)
    gates = np.tile(outputs | cells, (_gate_count(graph, node), 1))
    if wide > width:
        gates[_OUTPUT_GATE] = outputs
    if count == 1 and stated.value("idle") >= 0:
        gates[stated.value("idle")] = False
    return _Used(count, by_row, outputs | cells, gates)
