"""Expected time of an optimised ONNX graph on one thread of a CPU, before it is run: products, passes, node by node."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from nearpeak.precision.quantisation.executed_products import (
    DEQUANTISE,
    UNKNOWN,
    Array,
    GraphNode,
    product_of,
    product_table,
)

_TILE_ROWS = 4
"""Rows below which products of packed 8-bit weights have no kernel of their own."""


@cache
def runtime_costs() -> Mapping[str, Any]:
    """Return the costs of the runtime's kernels, in seconds, bytes and FLOP per second."""
    return tomllib.loads(Path(__file__).with_name("runtime_costs.toml").read_text(encoding="utf-8"))


def expected_s(nodes: Sequence[GraphNode]) -> float | None:
    """Return the expected time of all nodes in sequence; none where the shape of one is unknown.

    >>> array = Array((1024, 1024), "fp32", 32)
    >>> product = GraphNode("p", "MatMul", "", (array, array), (array,), {})
    >>> integer = product._replace(operator="QLinearMatMul")
    >>> 2 < (expected_s([product]) or 0) / (expected_s([integer]) or 1) < 4
    True
    """
    times = [node_s(node) for node in nodes]
    return None if None in times else sum(time for time in times if time is not None)


def node_s(node: GraphNode) -> float | None:
    """Return the expected time of one node; none where its result's shape is unknown."""
    costs = runtime_costs()
    result = node.outputs[0] if node.outputs else None
    if result is None:
        return None
    if not product_table().get(node.operator, ("", ""))[0]:
        elements = costs["element_s"]
        each = (
            elements[_pass_kind(node)]
            if node.operator in DEQUANTISE
            else elements.get(node.operator, elements["other"])
        )
        return float(costs["node_s"] + each * result.elements)
    product = product_of(node)
    if product.mac_count is None:
        return None
    flop_s = 2 * product.mac_count / _rate(node, product.precision, result)
    first = node.inputs[0] if node.operator == "DynamicQuantizeMatMul" else None
    scaled_s = 0.0 if first is None else costs["element_s"]["DynamicQuantizeLinear"] * first.elements
    return float(costs["node_s"] + max(flop_s, weights_s(node)) + scaled_s)


def _pass_kind(node: GraphNode) -> str:
    """Return the kind of a dequantisation: one with a scale for each column has no vector kernel."""
    scale, source = (*node.inputs, None, None)[1], node.inputs[0]
    if scale is None or source is None or scale.elements <= 1:
        return "DequantizeLinear"
    return "DequantizeColumns" if len(source.shape) == 2 else "DequantizeRows"


def _rate(node: GraphNode, precision: str, result: Array) -> float:
    """Return the FLOP/s of the kernel that a product gets."""
    costs = runtime_costs()
    rates, slow = costs["flop_per_s"], costs["slow_flop_per_s"]
    first = node.inputs[0]
    if node.operator == "MatMulInteger" and first is not None and first.dtype == "int8":
        return float(slow["signed"])
    rows = result.elements // max(1, result.shape[-1] if result.shape else 1)
    if node.numbers.get("bits") == 8 and rows < _TILE_ROWS:
        return float(slow["narrow"])
    rate = rates.get(node.operator, rates.get(precision, rates["fp32"] if precision == UNKNOWN else rates["fp16"]))
    return float(min(rate, slow["grouped"]) if node.numbers.get("group", 1) > 1 else rate)


def weights_s(node: GraphNode) -> float:
    """Return the time in which the largest operand comes from memory, or from a cache that holds it."""
    costs = runtime_costs()
    sizes = [-(-array.elements * array.bits_count // 8) for array in node.inputs[1:] if array is not None]
    largest = max(sizes, default=0)
    is_cached = largest <= costs["cached_bytes"]
    return float(largest / costs["cached_bytes_per_s" if is_cached else "memory_bytes_per_s"])
