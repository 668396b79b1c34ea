"""Partition of an ONNX model into pieces that are models of their own and run in sequence."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

FEEDS: Mapping[str, Any] = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16,
    "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_,
}  # fmt: skip
"""Input formats with which a model can be run, by ONNX Runtime's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Nodes that run together."""

    keys: tuple[str, ...]
    """Keys of the nodes."""
    converted: bool
    """Whether the runner converts them."""
    model: bytes
    """Model of these nodes alone."""
    inputs: tuple[str, ...]
    """Tensors that come from other pieces or from outside."""
    outputs: tuple[str, ...]
    """Tensors that other pieces read, or results of the model."""


_MOST_ROUNDS = 32
"""Longest chain of nodes of unknown domains whose results get formats."""


def inferred(onnx: Any, model: Any) -> Any:
    """Return the model with the shapes and formats of its tensors.

    Results of a node of an unknown domain get the format of its first input: without one, no node that reads them could
    be tried.
    """
    for _ in range(_MOST_ROUNDS):
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        graph = model.graph
        formats = {
            tensor.name: tensor.type.tensor_type.elem_type
            for tensor in (*graph.input, *graph.output, *graph.value_info)
        }
        formats |= {tensor.name: tensor.data_type for tensor in graph.initializer}
        made = {
            name: next((formats[source] for source in node.input if source), onnx.TensorProto.FLOAT)
            for node in graph.node if all(formats.get(source) for source in node.input if source)
            for name in node.output if name and name not in formats
        }  # fmt: skip
        if not made:
            break
        graph.value_info.extend(onnx.helper.make_tensor_value_info(name, kind, None) for name, kind in made.items())
    return model


def pieces_of(onnx: Any, model: Any, groups: Sequence[tuple[bool, Sequence[Any]]]) -> tuple[Piece, ...]:
    """Return each group of nodes as a piece, in an order in which they can run.

    Args:
        groups: whether the nodes are converted, and the nodes, which have `key` and `proto`.
    """
    made = [_piece(onnx, model, converted, nodes) for converted, nodes in groups]
    known = {item.name for item in (*model.graph.input, *model.graph.initializer)}
    ordered: list[Piece] = []
    while made:
        ready = [piece for piece in made if known.issuperset(piece.inputs)]
        if not ready:
            return ()
        for piece in ready:
            made.remove(piece)
            known.update(piece.outputs)
        ordered += ready
    return tuple(ordered)


def _piece(onnx: Any, model: Any, converted: bool, nodes: Sequence[Any]) -> Piece:
    graph = model.graph
    made = {name for node in nodes for name in node.proto.output if name}
    read = dict.fromkeys(name for node in nodes for name in node.proto.input if name and name not in made)
    keys = {node.key for node in nodes}
    stored = {item.name: item for item in graph.initializer}
    inputs = tuple(name for name in read if name not in stored)
    ids = {id(node.proto) for node in nodes}
    elsewhere = {name for proto in graph.node if id(proto) not in ids for name in proto.input}
    results = {item.name for item in graph.output}
    outputs = tuple(name for node in nodes for name in node.proto.output if name in elsewhere | results)
    known = {item.name: item for item in (*graph.value_info, *graph.input, *graph.output)}
    part = onnx.helper.make_graph(
        [node.proto for node in nodes], "piece", [_info(onnx, known, name) for name in inputs],
        [_info(onnx, known, name) for name in outputs], [stored[name] for name in read if name in stored],
    )  # fmt: skip
    whole = onnx.helper.make_model(part, opset_imports=model.opset_import, ir_version=model.ir_version)
    return Piece(keys=tuple(keys), converted=converted, model=whole.SerializeToString(), inputs=inputs, outputs=outputs)


def _info(onnx: Any, known: Mapping[str, Any], name: str) -> Any:
    return known[name] if name in known else onnx.ValueInfoProto(name=name)


def feeds_of(session: Any) -> dict[str, Any] | None:
    """Return ones for every input of a session; none where a format is unknown."""
    feeds: dict[str, Any] = {}
    for tensor in session.get_inputs():
        kind = FEEDS.get(tensor.type)
        if kind is None:
            return None
        feeds[tensor.name] = np.ones([extent if isinstance(extent, int) else 1 for extent in tensor.shape], kind)
    return feeds


def in_pieces(sessions: Sequence[tuple[Piece, Any]], feeds: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
    """Return the call that runs all pieces in sequence and returns every tensor that crosses a boundary."""

    def run() -> dict[str, Any]:
        known = dict(feeds)
        for piece, session in sessions:
            inputs = {name: known[name] for name in piece.inputs}
            known |= dict(zip(piece.outputs, session.run(list(piece.outputs), inputs), strict=True))
        return known

    return run
