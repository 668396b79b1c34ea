"""Graph of a model for planning a conversion: its nodes, their links, and the calls that they become."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearpeak.conversion.convex_pieces import Links, Positions
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.workload import Workload
from nearpeak.errors import SpecError
from nearpeak.frontends.onnx.model_shapes import imported_onnx, loaded_model
from nearpeak.frontends.onnx.onnx_file import VIEWS, attributes_of, graph_of, outer_names, workload_of

_STANDARD = ("", "ai.onnx")
_RANDOM = ("Bernoulli", "Multinomial", "Dropout")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelGraph:
    """All that a plan of a conversion needs to know of a file."""

    model: str
    """Name of the file."""
    opset: str
    """Version of the standard's operator set; empty for operators of PyTorch."""
    protos: tuple[Any, ...]
    """ONNX nodes as stored, the model's own functions written out; none for operators of PyTorch."""
    keys: tuple[str, ...]
    """Name of each node, or its type and position among those of its type."""
    kinds: tuple[str, ...]
    """Operator type of each node, with its domain where that is not the standard's."""
    inputs: tuple[tuple[str, ...], ...]
    """Operands of each node by name, empty where one is left out."""
    outputs: tuple[tuple[str, ...], ...]
    """Results of each node by name."""
    links: Links
    """For each node, the nodes whose results it reads, bodies of control flow included."""
    attributes: tuple[Mapping[str, Any], ...]
    """Attributes of each node, the standard's defaults written out."""
    is_static: tuple[bool, ...]
    """For each node, whether its results are known without the model's inputs."""
    stored: frozenset[str]
    """Initialisers, parameters, and results of constants."""
    values: Mapping[str, Any]
    """NumPy values of small tensors that are known without running the model."""
    tensors: Mapping[str, Tensor]
    """Tensors of known shape and format."""
    results: frozenset[str]
    """Outputs of the model."""
    workload: Workload
    """The calls of one run."""
    calls: tuple[Positions, ...]
    """For each node, the positions of its calls in the workload."""

    @property
    def opset_count(self) -> int:
        """Version of the standard's operator set as a number."""
        return int(self.opset)


def model_graph(path: Path, options: CaptureOptions = CaptureOptions()) -> ModelGraph:
    """Return the graph of the ONNX file at `path`, with all shapes that follow from its inputs.

    Raises:
        SpecError: the file is missing, or an input dimension stays open.
        CaptureError: the file is not a sound ONNX model.
        MissingExtraError: the package onnx is not installed.
    """
    onnx = imported_onnx()
    if path.suffix != ".onnx":
        raise SpecError(f"{path}: is not an ONNX file (.onnx)")
    stored_model = loaded_model(onnx, path)
    graph = graph_of(path, options)
    has_calls = any(node.op_type not in VIEWS for node in graph.nodes)  # a file of views alone is no step to capture
    workload = workload_of(path, graph) if has_calls else Workload(name=path.stem, step="forward", calls=())
    protos = tuple(stored_model.graph.node)
    initializers = {item.name for item in stored_model.graph.initializer}
    initializers |= {item.values.name for item in stored_model.graph.sparse_initializer}
    constants = {name for node in protos if node.op_type == "Constant" for name in node.output}
    makers = {name: number for number, node in enumerate(protos) for name in node.output if name}
    return ModelGraph(
        model=path.name, opset=str(graph.opset_count), protos=protos, keys=tuple(_keys(protos)),
        kinds=tuple(node.op_type if node.domain in _STANDARD else f"{node.domain}.{node.op_type}" for node in protos),
        inputs=tuple(tuple(node.input) for node in protos), outputs=tuple(tuple(node.output) for node in protos),
        links=tuple(tuple(dict.fromkeys(makers[n] for n in _read(node) if n in makers)) for node in protos),
        attributes=tuple(attributes_of(node, graph.opset_count) for node in protos),
        is_static=tuple(_statics(protos, initializers, graph.values)),
        stored=frozenset(initializers | constants), values=graph.values, tensors=graph.tensors,
        results=frozenset(graph.outputs), workload=workload,
        calls=tuple(map(tuple, _calls(protos, makers, graph.tensors, workload))),
    )  # fmt: skip


def _keys(protos: tuple[Any, ...]) -> Iterator[str]:
    positions: dict[str, int] = {}
    names: dict[str, int] = {}
    for node in protos:
        position = positions[node.op_type] = positions.get(node.op_type, -1) + 1
        key = node.name or f"{node.op_type}[{position}]"
        names[key] = names.get(key, 0) + 1
        yield key if names[key] == 1 else f"{key} ({names[key]})"


def _read(node: Any) -> Iterator[str]:
    yield from node.input
    yield from outer_names(node)


def _statics(protos: tuple[Any, ...], initializers: set[str], values: Mapping[str, Any]) -> Iterator[bool]:
    """Yield for each node whether nothing of its results depends on the model's inputs."""
    known = initializers | set(values)
    for node in protos:
        read, made = [name for name in _read(node) if name], [name for name in node.output if name]
        random = node.op_type.startswith("Random") or node.op_type in _RANDOM
        is_static = bool(made) and (known.issuperset(made) or (not random and known.issuperset(read)))
        if is_static:
            known.update(made)
        yield is_static


def _calls(
    protos: tuple[Any, ...], makers: Mapping[str, int], tensors: Mapping[str, Tensor], workload: Workload
) -> list[list[int]]:
    """Return the calls of each node, found by the tensors that they write.

    Calls that a node's definition consists of write tensors that the file does not name, until the last of them.
    """
    calls: list[list[int]] = [[] for _ in protos]
    waiting: list[int] = []
    last = -1
    for position, call in enumerate(workload.calls):
        if not call.writes and last >= 0 and not waiting:
            calls[last].append(position)
            continue
        waiting.append(position)
        names = [workload.buffers[use.buffer].name for use in call.writes]
        node = next((makers[name] for name in names if name in makers), -1)
        while node >= 0 and _is_view(protos[node], tensors):
            node = makers.get(next(iter(protos[node].input), ""), -1)
        if node >= 0:
            calls[node] += waiting
            waiting, last = [], node
    if waiting and last >= 0:
        calls[last] += waiting
    return calls


def _is_view(node: Any, tensors: Mapping[str, Tensor]) -> bool:
    """Return whether the node only renames its first operand, so that a call writes under the new name."""
    if node.op_type != "Cast":
        return node.op_type in VIEWS and node.domain in _STANDARD
    ends = [tensors.get(name) for name in (node.input[0], node.output[0])]
    return None not in ends and len({end.dtype for end in ends if end is not None}) == 1
