"""Executed precision of a converted model: products by number format, and quantisation left as passes of its own."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import NamedTuple

from nearpeak.core.records.record_codec import Schema

UNKNOWN = "unknown"
"""Format of a product that nothing states."""
QUANTISE = frozenset(("QuantizeLinear", "DynamicQuantizeLinear"))
DEQUANTISE = frozenset(("DequantizeLinear",))
_BODIES = ("If", "Loop", "Scan")
"""Operators with graphs of their own, which are not looked into."""
_EIGHT_BITS = {"int8": "int8", "uint8": "int8"}
_PERMITS_INTEGERS = 4
"""`accuracy_level` of weight-only products that permits 8-bit activations (ONNX Runtime, docs/ContribOperators.md)."""


class Array(NamedTuple):
    """Shape and number format of a tensor."""

    shape: tuple[int, ...]
    """Extents."""
    dtype: str
    """Canonical number format."""
    bits_count: int
    """Bits of an element."""

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)


class GraphNode(NamedTuple):
    """One node of an optimised graph; tensors of unknown shape are none."""

    name: str
    """Name of the node."""
    operator: str
    """Operator type."""
    domain: str
    """Domain of the operator set; empty for the standard's."""
    inputs: tuple[Array | None, ...]
    """Tensors read."""
    outputs: tuple[Array | None, ...]
    """Tensors written."""
    numbers: Mapping[str, int]
    """Whole numbers among its attributes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedProduct:
    """One product of a converted model."""

    name: str
    """Node or layer."""
    operator: str
    """Operator type or kind of layer."""
    precision: str
    """Number format in which it is formed; 8-bit integers of either sign are `int8`; `unknown` where nothing says."""
    mac_count: int | None
    """Multiply-adds; none where the shapes do not tell."""
    weight_bits_count: int | None = None
    """Bits of packed weights, where they alone are narrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedGraph:
    """What a runtime made of a model."""

    name: str
    """Model, profile or engine."""
    engine: str
    """Runtime, and what of it was read."""
    node_count: int
    """Nodes or layers."""
    products: tuple[ExecutedProduct, ...]
    """Products in order."""
    quantise_count: int
    """Quantisations left as passes of their own."""
    dequantise_count: int
    """Dequantisations left as passes of their own."""
    loose_bytes: int | None
    """Bytes that these read and write; none where a shape is unknown."""
    unlisted_count: Mapping[str, int]
    """Operators that the table of product operators does not know, with counts: they may form products."""

    @property
    def mac_count(self) -> int | None:
        """Multiply-adds of all products; none where those of one are unknown."""
        counts = [product.mac_count for product in self.products]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def precisions(self) -> Mapping[str, int]:
        """Products by precision."""
        names = [product.precision for product in self.products]
        return {name: names.count(name) for name in dict.fromkeys(names)}

    def share_ratio(self, precision: str) -> float | None:
        """Return the part of the multiply-adds in a precision; none where some are unknown or there are none.

        >>> graph = ExecutedGraph(name="g", engine="", node_count=1, products=(ExecutedProduct(name="c",
        ...     operator="QLinearConv", precision="int8", mac_count=9),), quantise_count=0, dequantise_count=0,
        ...     loose_bytes=0, unlisted_count={})
        >>> graph.share_ratio("int8"), graph.share_ratio("fp32")
        (1.0, 0.0)
        """
        total = self.mac_count
        if not total:
            return None
        return sum(item.mac_count or 0 for item in self.products if item.precision == precision) / total


EXECUTED_GRAPH = Schema(
    kind="nearpeak executed products", version=1, title="saved executed products",
    advice="write it with nearpeak precision --executed --json",
)  # fmt: skip
"""Kind and version of saved graphs."""


def executed_graph(name: str, engine: str, nodes: Sequence[GraphNode]) -> ExecutedGraph:
    """Return which products the nodes of an optimised graph form in which precision."""
    table = product_table()
    loose = [node for node in nodes if node.operator in QUANTISE | DEQUANTISE]
    sizes = [_passed_bytes(node) for node in loose]
    unlisted = [
        f"{node.domain}.{node.operator}".lstrip(".") for node in nodes
        if node.operator in _BODIES or (node.domain not in ("", "ai.onnx") and node.operator not in table)
    ]  # fmt: skip
    return ExecutedGraph(
        name=name, engine=engine, node_count=len(nodes),
        products=tuple(product_of(node) for node in nodes if table.get(node.operator, ("", ""))[0]),
        quantise_count=sum(node.operator in QUANTISE for node in loose),
        dequantise_count=sum(node.operator in DEQUANTISE for node in loose),
        loose_bytes=None if None in sizes else sum(size for size in sizes if size is not None),
        unlisted_count={operator: unlisted.count(operator) for operator in dict.fromkeys(unlisted)},
    )  # fmt: skip


@cache
def product_table() -> Mapping[str, tuple[str, str]]:
    """Return rule of multiply-adds and precision by operator type; both empty for operators that form no product.

    >>> product_table()["QLinearConv"], product_table()["QLinearAdd"]
    (('convolution', 'int8'), ('', ''))
    """
    text = Path(__file__).with_name("product_operators.toml").read_text(encoding="utf-8")
    table: dict[str, tuple[str, str]] = {}
    for rule, kinds in tomllib.loads(text).items():
        for kind, names in kinds.items():
            table |= dict.fromkeys(names, ("", "") if rule == "no_product" else (rule, kind))
    return table


def product_of(node: GraphNode) -> ExecutedProduct:
    """Return the product that a node of the table forms."""
    rule, kind = product_table()[node.operator]
    first = node.inputs[0] if node.inputs else None
    precision = "int8" if kind == "int8" else UNKNOWN if first is None else _EIGHT_BITS.get(first.dtype, first.dtype)
    bits = None
    if kind == "wide_input":
        bits = node.numbers.get("bits") or (4 if node.operator in ("MatMulBnb4", "MatMulFpQ4") else None)
        precision = UNKNOWN if node.numbers.get("accuracy_level", 0) >= _PERMITS_INTEGERS else precision
    return ExecutedProduct(
        name=node.name, operator=node.operator, precision=precision, mac_count=_mac_count(rule, node),
        weight_bits_count=bits,
    )  # fmt: skip


_FILTERS = {"QLinearConv": 3, "QLinearConvTranspose": 3}
"""Position of the filters where they are not the second input."""


def _mac_count(rule: str, node: GraphNode) -> int | None:
    """Return the multiply-adds of a product; none where a shape that they follow from is unknown."""
    place = _FILTERS.get(node.operator, 1)
    first, other = (node.inputs[at] if at < len(node.inputs) else None for at in (0, place))
    result = node.outputs[0] if node.outputs else None
    if rule == "product" and first is not None and result is not None:
        turned = node.numbers.get("transA", 0)
        depth = node.numbers.get("K") or (first.shape[-2 if turned else -1] if first.shape else 1)
        return result.elements * depth
    if first is None or other is None or (rule == "convolution" and result is None):
        return None
    if rule in ("convolution", "transposed_convolution"):
        if len(other.shape) != len(first.shape):  # filters that were packed are not listed
            return None
        made = result if rule == "convolution" and result is not None else first
        return made.elements * prod(other.shape[1:])
    if rule == "recurrence" and node.inputs[2:] and node.inputs[2] is not None:
        return prod(first.shape[:2]) * (other.elements + node.inputs[2].elements)
    return None


def _passed_bytes(node: GraphNode) -> int | None:
    """Return the bytes of elements that a quantisation or dequantisation reads and writes."""
    read, written = (side[0] if side else None for side in (node.inputs, node.outputs))
    if read is None or written is None:
        return None
    return sum(-(-array.elements * array.bits_count // 8) for array in (read, written))
