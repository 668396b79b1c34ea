"""Limits on what a few bytes of an ONNX file may expand to: nested functions, unrolled loops, ranges, extents."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import ceil, isfinite, prod
from typing import Any

from nearpeak.errors import CaptureError

MOST_NODES = 200_000
"""Nodes that a graph may have once its functions are written out; the largest exported models have some 50,000."""
_MOST_UNROLLED, _MOST_NESTED = 40_000, 2_000
"""Nodes of a graph up to which its loops are unrolled, further ones stay single nodes; and where loops hold loops: the
time of shape inference grows with their number times that of all names."""
MOST_RANGE_COUNT = 1 << 20
"""Values of a Range up to which shape inference may list them: it does so one by one."""
_GROWING = frozenset({
    "Range", "ConstantOfShape", "Expand", "Tile", "Pad", "Resize", "Upsample", "OneHot", "CenterCropPad", "HannWindow",
    "HammingWindow", "BlackmanWindow", "MelWeightMatrix", "DFT", "Col2Im", "ConvTranspose", "MaxUnpool", "AffineGrid",
    "RoiAlign", "GridSample",
})  # fmt: skip
"""Operators whose result may be of any size, whatever the size of what they read."""
_HELD = "HeldRange"
"""Type under which a Range of unknown length is hidden from shape inference, which knows no such operator."""


def nodes_of(nodes: Any) -> Iterator[Any]:
    """Yield nodes and those of the graphs within them."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        for attribute in node.attribute:
            waiting += attribute.g.node
            for graph in attribute.graphs:
                waiting += graph.node


def check_functions(model: Any, where: str) -> None:
    """Refuse a model whose functions would be written out to more than `MOST_NODES` nodes, or call themselves.

    Raises:
        CaptureError: they would.
    """
    functions = {(item.domain, item.name): item for item in model.functions}
    called = {key: [(n.domain, n.op_type) for n in nodes_of(item.node)] for key, item in functions.items()}
    counts: dict[tuple[str, str], int] = {}
    waiting: list[tuple[str, str]] = list(functions)
    open_keys: set[tuple[str, str]] = set()
    while waiting:
        key = waiting[-1]
        inner = [name for name in called[key] if name in functions]
        missing = [] if key in counts else [name for name in inner if name not in counts]
        if missing and key in open_keys and any(name in open_keys for name in missing):
            raise CaptureError(
                f"{where}: its function {key[1]!r} calls itself, which no ONNX model may; export it again"
            )
        if missing:
            open_keys.add(key)
            waiting += dict.fromkeys(missing)
            continue
        counts[key] = len(called[key]) + sum(counts[name] for name in inner)
        open_keys.discard(key)
        waiting.pop()
    total = sum(counts.get((node.domain, node.op_type), 1) for node in nodes_of(model.graph.node))
    if total > MOST_NODES:
        raise CaptureError(f"{where}: its functions expand to {total:.3g} nodes, over the limit of {MOST_NODES:,}")


def check_extents(model: Any, where: str) -> None:
    """Refuse stored tensors with negative extents.

    Raises:
        CaptureError: there is one.
    """
    for item in (*model.graph.initializer, *(sparse.values for sparse in model.graph.sparse_initializer)):
        if any(extent < 0 for extent in item.dims):
            shape = "×".join(map(str, item.dims))
            raise CaptureError(f"{where}: constant {item.name!r} has shape {shape}; extents are at least 0")


def most_unrolled(loop: Any) -> int:
    """Return how many nodes a graph may have for a loop of it to be unrolled."""
    body = next((item.g.node for item in loop.attribute if item.name == "body"), ())
    is_nested = any(inner.op_type in ("Loop", "Scan") for inner in nodes_of(body))
    return _MOST_NESTED if is_nested else _MOST_UNROLLED


def is_large(node: Any, tensors: Mapping[str, Any], values: Mapping[str, Any], most_count: int) -> bool:
    """Return whether a node's result may have more elements than `most_count`, as is known before it is computed.

    Args:
        tensors: tensors of known shape.
        values: known values of what the node reads.
    """
    if any(name in tensors and tensors[name].elements > most_count for name in node.output):
        return True
    if node.op_type not in _GROWING or all(name in tensors for name in node.output if name):
        return False
    if node.op_type == "Range":
        return not 0 <= range_count(node, values) <= most_count
    if node.op_type in ("ConstantOfShape", "Expand", "Tile"):
        factor = prod(max(1, abs(int(extent))) for extent in values[node.input[-1]].reshape(-1))
        return bool(factor * max(1, values[node.input[0]].size) > most_count)
    return True


def range_count(node: Any, values: Mapping[str, Any]) -> float:
    """Return the values of a Range; infinity where they are not known to end."""
    if not all(name in values and values[name].size == 1 for name in node.input):
        return float("inf")
    start, limit, step = (float(values[name].reshape(-1)[0]) for name in node.input)
    count = (limit - start) / step if step else float("inf")
    return float(max(0, ceil(count))) if isfinite(count) else float("inf")


@contextmanager
def held_ranges(model: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """Hide every Range from shape inference that is not known to be short."""
    held = [
        node for node in nodes_of(model.graph.node)
        if node.op_type == "Range" and range_count(node, values) > MOST_RANGE_COUNT
    ]  # fmt: skip
    for node in held:
        node.op_type = _HELD
    try:
        yield
    finally:
        for node in held:
            node.op_type = "Range"
