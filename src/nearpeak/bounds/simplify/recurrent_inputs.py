"""Recurrent layers split into the product of their inputs, open to rewrites, and one call for the recurrence."""

from math import prod

from nearpeak.bounds.simplify.affine_views import selected
from nearpeak.bounds.simplify.graph_builder import Lift, Ref, Site
from nearpeak.bounds.simplify.product_sums import product
from nearpeak.bounds.simplify.value_graph import OperatorCall, Slot

_IDLE_GATE = {"lstm": 1, "gru": 0}
"""Gate of one step from zero that only scales the state, by cell; of a GRU, only where no bias is scaled."""
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def _projected(site: Site) -> list[int] | None:
    """Read a recurrent layer; its lowest inputs are multiplied by their weights apart from the steps."""
    graph, params, states = site.graph, _tensors(site, "params"), _tensors(site, "hx")
    directions = 2 if site.args.get("bidirectional") else 1
    size = len(params) // max(1, directions * int(site.number("num_layers", 1)))
    if size < 2 or not states or not site.is_tensor("input") or len(graph[site.node("input")].shape) != 3:
        return None
    input_places = range(0, directions * size, size)
    weights = [_needed_rows(site, params[place], states) for place in input_places]
    labels = ["b", "s", "f"] if site.args.get("batch_first") else ["s", "b", "f"]
    inputs = [
        product(graph, ((site.node("input"), labels), (weight, "gf")), [*labels[:2], "g"], site.dtype)
        for weight in weights
    ]
    steps = prod(graph[site.node("input")].shape[:2])
    graph.separated[graph.call] = steps * sum(prod(graph[weight].shape) for weight in weights)
    rest = [number for place, number in enumerate(params) if place not in input_places]
    slots = iter(range(len(inputs) + len(states) + len(rest)))
    named = {
        name: tuple(Slot(next(slots)) for _ in numbers)
        for name, numbers in (("projected", inputs), ("hx", states), ("params", rest))
    }
    plain = {name: value for name, value in site.args.items() if name not in ("input", "hx", "params")}
    serial = graph.call if site.args.get("train") and site.number("dropout", 0.0) else -1
    arguments = tuple((named | plain).items())
    return [
        graph.add("call", (*inputs, *states, *rest), shape, site.dtype,
                  OperatorCall(f"nearpeak.{site.packet}_steps.default", arguments, place, serial))
        for place, shape in enumerate(site.shapes)
    ]  # fmt: skip


def _tensors(site: Site, name: str) -> list[int]:
    """Return the tensors of an argument that is one or a list of them."""
    value = site.args.get(name)
    items = value if isinstance(value, tuple) else (value,)
    return [item.node for item in items if isinstance(item, Ref)]


def _needed_rows(site: Site, weight: int, states: list[int]) -> int:
    """Return the weights of inputs without those of a gate that would only scale a state of zero."""
    graph, gate = site.graph, _IDLE_GATE.get(site.packet)
    steps = graph[site.node("input")].shape[1 if site.args.get("batch_first") else 0]
    from_zero = all(graph[state].kind == "constant" and graph[state].options == 0 for state in states)
    if gate is None or steps != 1 or not from_zero:
        return weight
    if site.packet == "gru" and site.args.get("has_biases"):
        return weight
    rows = graph[weight].shape[0]
    hidden = rows // _GATES[site.packet]
    pieces = [selected(graph, weight, 0, begin, hidden) for begin in range(0, rows, hidden) if begin != gate * hidden]
    shape = (rows - hidden, *graph[weight].shape[1:])
    return graph.add("join", tuple(pieces), shape, graph[weight].dtype, 0)


RECURRENT_LIFTS: dict[str, Lift] = dict.fromkeys(_GATES, _projected)
"""Readers by operator."""
