"""Choice of the nodes of a float model to quantise for speed: cheapest by expected times, conversions counted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from nearpeak.core.work.dtype import DTYPES
from nearpeak.precision.quantisation.executed_products import Array, GraphNode, product_table
from nearpeak.precision.quantisation.expected_runtime import node_s, runtime_costs
from nearpeak.precision.quantisation.minimum_cut import cheapest_states

_INTEGER: Mapping[str, str] = {
    "Conv": "QLinearConv", "MatMul": "QLinearMatMul", "Gemm": "QGemm", "Add": "QLinearAdd", "Mul": "QLinearMul",
    "Sigmoid": "QLinearSigmoid", "LeakyRelu": "QLinearLeakyRelu", "Softmax": "QLinearSoftmax", "Where": "QLinearWhere",
    "Concat": "QLinearConcat", "AveragePool": "QLinearAveragePool", "GlobalAveragePool": "QLinearGlobalAveragePool",
    "ReduceMean": "QLinearReduceMean",
    **{name: name for name in ("Relu", "Clip", "MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze",
                               "Identity", "Split", "Slice", "Gather", "Pad", "Resize", "Dropout", "Expand")},
}  # fmt: skip
"""Integer operator that a float one becomes; those that only move or compare elements stay themselves."""
_BYTE = DTYPES["uint8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerChoice:
    """Precision of each node of a model that is expected to be fastest in sum."""

    quantised: tuple[str, ...]
    """Names of the nodes in 8-bit integers."""
    plain: tuple[str, ...]
    """Names of those in fp32 although integers have a kernel for them."""
    plain_s: float
    """Expected time of all nodes in fp32."""
    quantised_s: float
    """Expected time with every node in integers that has a kernel there."""
    chosen_s: float
    """Expected time of the choice; never above either."""
    products: Mapping[str, str]
    """Precision of each product by name."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """Nodes that a quantiser must leave as they are; none where all that can be are quantised."""
        return self.plain


def layer_choice(model: Any, nodes: Sequence[GraphNode]) -> LayerChoice | None:
    """Return the cheapest choice between fp32 and int8 for the nodes of a float model; none where shapes are unknown.

    Args:
        model: the ONNX model that `nodes` are of, in its order.
    """
    times = [_times(node) for node in nodes]
    if any(first is None for first, _ in times):
        return None
    costs = [(first or 0.0, inf if second is None else second) for first, second in times]
    edges = _edges(model, nodes)
    states = cheapest_states(costs, edges)
    most = tuple(second < inf for _, second in costs)
    names = [node.name for node in nodes]
    return LayerChoice(
        quantised=tuple(name for name, state in zip(names, states, strict=True) if state),
        plain=tuple(name for name, state, able in zip(names, states, most, strict=True) if able and not state),
        plain_s=sum_s(costs, edges, (False,) * len(nodes)), quantised_s=sum_s(costs, edges, most),
        chosen_s=sum_s(costs, edges, states),
        products={
            node.name: "int8" if state else "fp32" for node, state in zip(nodes, states, strict=True)
            if product_table().get(node.operator, ("", ""))[0]
        },
    )  # fmt: skip


def sum_s(
    costs: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int, float]], states: Sequence[bool]
) -> float:
    """Return the time of all nodes in their states, with the conversions between neighbours that differ."""
    nodes = sum(cost[state] for cost, state in zip(costs, states, strict=True))
    return nodes + sum(cost for a, b, cost in edges if states[a] != states[b])


def _times(node: GraphNode) -> tuple[float | None, float | None]:
    """Return the expected time of a node in fp32 and in integers, none where there is no kernel."""
    plain_s = node_s(node)
    kind = _INTEGER.get(node.operator)
    if kind is None or plain_s is None:
        return plain_s, None
    narrow = tuple(None if array is None else _narrow(array) for array in node.inputs)
    inputs = (narrow[0], None, None, *narrow[1:]) if kind == "QLinearConv" else narrow
    return plain_s, node_s(node._replace(operator=kind, inputs=inputs))


def _narrow(array: Array) -> Array:
    return array if array.dtype != "fp32" else Array(array.shape, _BYTE.name, _BYTE.bits_count)


def _edges(model: Any, nodes: Sequence[GraphNode]) -> list[tuple[int, int, float]]:
    """Return makers and readers of each tensor, and the time of converting it between them."""
    makers = {name: (place, at) for place, node in enumerate(model.graph.node) for at, name in enumerate(node.output)}
    costs = runtime_costs()
    each_s = costs["element_s"]["QuantizeLinear"]
    edges = []
    for place, node in enumerate(model.graph.node):
        for name in dict.fromkeys(node.input):
            if name in makers:
                maker, at = makers[name]
                array = nodes[maker].outputs[at]
                edges.append((maker, place, costs["node_s"] + each_s * (0 if array is None else array.elements)))
    return edges
