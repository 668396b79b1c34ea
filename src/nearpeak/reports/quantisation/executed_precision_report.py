"""Report of the executed precision of a converted model: its products by format, and loose quantisation passes."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from nearpeak.precision.quantisation.executed_products import EXECUTED_GRAPH, UNKNOWN, ExecutedGraph
from nearpeak.reports.document import WHY, Block, Details, Document, Heading, Items, Table, Text, columns
from nearpeak.reports.figure_text import clean, percent
from nearpeak.units import counted, show

TOP_COUNT = 6
"""Products that a terminal shows."""


def headline_of(graph: ExecutedGraph) -> str:
    """Return in one line which part of the products is formed in which format.

    >>> graph = ExecutedGraph(name="a.onnx", engine="", node_count=1, products=(), quantise_count=0,
    ...     dequantise_count=0, loose_bytes=0, unlisted_count={})
    >>> headline_of(graph)
    'a.onnx: forms no product'
    """
    if not graph.products:
        return f"{graph.name}: forms no product"
    names = sorted(graph.precisions, key=lambda name: -(graph.share_ratio(name) or 0.0))
    if graph.mac_count is None:
        return f"{graph.name}: {_counts(graph, names)}"
    parts = [f"{percent(graph.share_ratio(name) or 0.0)} {_in(name)}" for name in names]
    of_what = "known products'" if graph.unlisted_count else "products'"
    return f"{graph.name}: of the {of_what} arithmetic {', '.join(parts)}"


def _counts(graph: ExecutedGraph, names: Sequence[str]) -> str:
    counts = ", ".join(f"{graph.precisions[name]} {_in(name)}" for name in names)
    return f"of {counted(len(graph.products), 'product')} {counts}"


def _in(name: str) -> str:
    return "in a format that nothing states" if name == UNKNOWN else f"in {name}"


def document_of(graph: ExecutedGraph, version: str = "") -> Document:
    """Return the executed precision as a document."""
    return Document(
        title=headline_of(graph), kicker="Executed precision", subject=graph.engine, blocks=tuple(_blocks(graph)),
        foot=f"nearpeak {version}",
    )  # fmt: skip


def _blocks(graph: ExecutedGraph) -> Iterator[Block]:
    if graph.products and graph.mac_count is not None:
        yield _counts(graph, list(graph.precisions))
    elif graph.products:
        yield Text("which part of the arithmetic that is, shapes do not tell for all products", "warn")
    loose = graph.quantise_count + graph.dequantise_count
    moved = "of unknown size" if graph.loose_bytes is None else f"which move {show(graph.loose_bytes, 'B')}"
    passes = f"{graph.quantise_count} quantise, {graph.dequantise_count} dequantise"
    if loose:
        yield f"left as passes of their own: {passes}, {moved}"
    else:
        yield "no quantisation is left as a pass of its own"
    for operator, count in graph.unlisted_count.items():
        yield Text(f"undecided: {counted(count, 'node')} of {clean(operator)} may form products", "warn")
    packed = [item for item in graph.products if item.weight_bits_count is not None]
    for bits in sorted({item.weight_bits_count or 0 for item in packed}):
        count = sum(item.weight_bits_count == bits for item in packed)
        yield f"{counted(count, 'product')} with weights alone in {bits} bits: stored so, not formed so"
    rows = [
        (clean(item.name), clean(item.operator), item.precision,
         None if item.mac_count is None else show(2 * item.mac_count, "FLOP"))
        for item in graph.products
    ]  # fmt: skip
    if rows:
        heads = columns("<product", "operator", "formed in", "#arithmetic")
        yield Table(columns=heads, rows=rows, brief_count=TOP_COUNT)
    yield Details(WHY, (Heading("What this rests on", 3), Items(tuple(_provenance(graph)))))


def _provenance(graph: ExecutedGraph) -> Iterator[str]:
    yield f"read from: {graph.engine}; {counted(graph.node_count, 'node')}"
    yield "share: multiply-adds of products in the format over those of all products; other operators are not counted"
    yield "a loose pass reads its elements in one format and writes them in the other"


def to_json(graph: ExecutedGraph) -> str:
    """Return the executed precision as one JSON object."""
    names = dict.fromkeys(item.precision for item in graph.products)
    record = EXECUTED_GRAPH.head() | asdict(graph)
    shares = {name: graph.share_ratio(name) for name in names}
    return json.dumps(record | {"mac_count": graph.mac_count, "share_ratio": shares}, indent=2)
