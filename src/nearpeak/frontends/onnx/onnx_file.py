"""Capture of ONNX files: every node with its shapes as a call, without views and shape arithmetic."""

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.workload import Workload
from nearpeak.errors import CaptureError
from nearpeak.frontends.onnx.model_shapes import OnnxGraph, imported_onnx, load_graph
from nearpeak.frontends.torch.workload_builder import WorkloadBuilder
from nearpeak.ops import OnnxSite, onnx_matchers

VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", "BitCast",
                   "Optional", "OptionalGetElement"})  # fmt: skip
"""Nodes that only rename their first input when the file is run for inference."""
_OPEN = frozenset({"NonZero", "Unique", "Compress", "NonMaxSuppression"})
"""Nodes with data-dependent output sizes, whose rules do not need them."""
_BODIES = {"If": 1, "Loop": 2, "Scan": 0}
"""Operators with bodies, and how many of their inputs, the first ones, decide what runs."""
_LARGEST_CONSTANT_COUNT = 64


def capture_onnx(path: Path | str, options: CaptureOptions = CaptureOptions()) -> Workload:
    """Return the forward step that the ONNX file at `path` describes.

    Shapes of inputs must agree with what the file fixes; the batch is the extent of an open first dimension.

    Raises:
        SpecError: the file is missing, or an input dimension stays open or is contradicted.
        CaptureError: the file is not a sound ONNX model.
        MissingExtraError: the package onnx is not installed.
    """
    path = Path(path)
    return workload_of(path, graph_of(path, options))


def graph_of(path: Path, options: CaptureOptions = CaptureOptions()) -> OnnxGraph:
    """Return the graph stored at `path` with its inputs fixed; operators without a rule are replaced by simpler ones.

    Raises:
        SpecError, CaptureError, MissingExtraError: as for `capture_onnx`.
    """
    return load_graph(path, options, known={*onnx_matchers(), *VIEWS})


def workload_of(path: Path, graph: OnnxGraph) -> Workload:
    """Return the forward step of a graph that was read from `path`."""
    walk = _Walk(path, graph)
    for node in graph.nodes:
        walk.visit(node)
    return walk.finished()


class _Walk:
    """Visits the nodes in order and fills the builder."""

    def __init__(self, path: Path, graph: OnnxGraph) -> None:
        self._path, self._graph = path, graph
        self._builder = WorkloadBuilder(onnx_matchers())
        self._places: dict[str, Tensor] = {}
        self._static = set(graph.initializers) | set(graph.values)
        self._known = self._static | set(graph.inputs)
        self._bodies: list[str] = []
        self._deciding: dict[str, None] = {}
        self._unknown: list[str] = []
        self._positions: dict[str, int] = {}
        for op, count in graph.folded.items():
            self._builder.skipped[op] = count

    def visit(self, node: Any) -> None:
        """Append the node as a call, or count it as skipped."""
        self._check_inputs(node)
        self._known.update(node.output)
        tensors, is_standard = self._graph.tensors, node.domain in ("", "ai.onnx")
        if node.op_type == "Cast" and node.input[0] in tensors and node.output[0] in tensors:
            is_view = tensors[node.input[0]].dtype == tensors[node.output[0]].dtype
        else:
            is_view = node.op_type in VIEWS and is_standard
        if is_view and node.input[0] in tensors:
            self._alias(node)
        elif self._is_weight(node):
            self._static.update(node.output)
            self._builder.skip(node.op_type)
        else:
            self._call(node)

    def finished(self) -> Workload:
        """Return the workload, its outputs marked."""
        for name in self._graph.outputs:
            number = self._linked(name).buffer if name in self._known else -1
            if number >= 0 and self._builder.buffers[number].kind == "activation":
                self._builder.relabel(number, "output", name)
        shapes = {name: self._graph.tensors[name] for name in self._graph.inputs if name in self._graph.tensors}
        origin = {"kind": "onnx", "file": self._path.name, **self._graph.versions}
        leading = {tensor.shape[0] for tensor in shapes.values() if tensor.shape}
        if len(leading) == 1:  # inputs that agree in their first extent share it as batch
            origin["batch"] = str(leading.pop())
        origin["inputs"] = ", ".join(f"{n} {'×'.join(map(str, t.shape))} {t.dtype}" for n, t in shapes.items())
        return self._builder.workload(self._path.stem, "forward", origin, self._assumptions())

    def _assumptions(self) -> list[str]:
        sentences = ["The file is run for inference: dropout passes its input on."]
        if self._graph.guesses:
            sentences.append(f"Open sizes guessed: {', '.join(self._graph.guesses)}.")
        if self._bodies:
            counted = ", ".join(f"{op} ({self._bodies.count(op)})" for op in sorted(set(self._bodies)))
            sentences.append(f"Which body runs, and how often, is decided by data; left uncovered: {counted}.")
        if self._deciding:
            options = " ".join(f"--input-value {name}=VALUE" for name in self._deciding)
            sentences.append(f"What decides a body is an input, whose value can be given: {options}.")
        if self._unknown:
            sentences.append(
                f"Shape or number format not known without running the file, so left uncovered: {len(self._unknown)} "
                f"nodes, the first at tensor {self._unknown[0]!r}."
            )
        return sentences

    def _check_inputs(self, node: Any) -> None:
        for name in node.input:
            if name and name not in self._known:
                raise CaptureError(
                    f"{self._path}: node {node.name or node.op_type!r} reads {name!r}, which nothing before it writes; "
                    f"the file is damaged, export it again"
                )

    def _is_weight(self, node: Any) -> bool:
        """Return whether the node only transforms weights without growing them, which runtimes do once."""
        if node.op_type in ("Constant", "ConstantOfShape"):
            return all(name in self._static for name in node.input)
        tensors = self._graph.tensors
        if not node.input or not all(name in self._static for name in node.input if name):
            return False
        if any(name not in tensors for name in (*node.input, *node.output) if name):
            return False
        read = sum(tensors[name].bytes for name in set(node.input) if name)
        return sum(tensors[name].bytes for name in node.output if name) <= read

    def _alias(self, node: Any) -> None:
        """Let the output of a view share the storage of its input."""
        self._builder.skip(node.op_type)
        if node.input[0] in self._static:
            self._static.add(node.output[0])
            return
        source = self._place(node.input[0])
        if node.output[0] in self._graph.tensors:
            self._places[node.output[0]] = replace(self._graph.tensors[node.output[0]], buffer=source.buffer)

    def _place(self, name: str) -> Tensor:
        """Return the tensor with its storage, numbered on first use."""
        if name not in self._places:
            tensor = self._graph.tensors[name]
            number = -1 if self._is_argument(name) else self._builder.add_buffer(tensor.bytes, self._kind(name), name)
            self._places[name] = replace(tensor, buffer=number)
        return self._places[name]

    def _linked(self, name: str) -> Tensor:
        """Return the tensor; one of unknown shape has a storage without bytes, which says who writes and reads it."""
        if name in self._graph.tensors or name in self._places:
            return self._place(name)
        number = self._builder.add_buffer(0, "input" if name in self._graph.inputs else "activation", name)
        return self._places.setdefault(name, Tensor(shape=(0,), dtype="uint8", buffer=number))

    def _is_argument(self, name: str) -> bool:
        """Return whether the tensor is a list of indices, axes or bounds that a kernel takes by value."""
        return name in self._graph.values and self._graph.tensors[name].dtype in ("int64", "int32", "bool")

    def _kind(self, name: str) -> str:
        if name in self._graph.inputs:
            return "input"
        if name not in self._static:
            return "activation"
        return "constant" if self._graph.tensors[name].elements <= 1 else "weight"

    def _call(self, node: Any) -> None:
        module, source = self._names(node)
        cause = self._cause(node)
        inputs = tuple(self._place(name) if name in self._graph.tensors else None for name in node.input)
        outputs = tuple(self._place(name) for name in node.output if name in self._graph.tensors)
        self._note_zero_states(node)
        shapeless = [name for name in node.input if name and name not in self._graph.tensors]
        others = map(self._linked, (*shapeless, *(name for name in outer_names(node) if name in self._known)))
        made = [self._linked(name) for name in node.output if name and name not in self._graph.tensors]
        opset = self._graph.opset_count
        is_addition = node.op_type == "Sum" and len(node.input) == 2  # as older exporters write it
        site = OnnxSite(
            name=cause or ("Add" if is_addition else str(node.op_type)), inputs=inputs, outputs=outputs,
            attributes=attributes_of(node, opset), constants=self._constants(node),
        )  # fmt: skip
        self._builder.add_call(
            _modern_softmax(site, opset), phase="forward", module=module, source=source,
            writes=(*outputs, *made),
            reads={
                **{str(position): tensor for position, tensor in enumerate(inputs) if tensor is not None},
                **{f"other {position}": tensor for position, tensor in enumerate(others)},
            },
        )  # fmt: skip

    def _note_zero_states(self, node: Any) -> None:
        """Note the first states of a recurrent layer that the file states to be zero."""
        for name in node.input[5:7] if node.op_type in ("LSTM", "GRU", "RNN") else ():
            if name in self._graph.values and not self._graph.values[name].any():
                self._builder.note_value(self._place(name).buffer, 0.0)

    def _cause(self, node: Any) -> str:
        """Return the name under which the node is uncovered, empty when it may be matched."""
        if node.op_type in _BODIES:
            self._bodies.append(node.op_type)
            deciding = node.input[: _BODIES[node.op_type]]
            self._deciding |= dict.fromkeys(name for name in deciding if name in self._graph.inputs)
            return str(node.op_type)
        if node.domain not in ("", "ai.onnx"):
            return self._foreign(node)
        results = () if node.op_type in _OPEN else node.output
        unknown = [name for name in (*node.input, *results) if name and name not in self._graph.tensors]
        self._unknown.extend(unknown[:1])
        return f"{node.op_type} (shape not known)" if unknown else ""

    def _foreign(self, node: Any) -> str:
        """Return the name of a node of another domain, which has a rule only with the shapes around it known."""
        name = f"{node.domain}.{node.op_type}"
        ends = (*node.input[:1], *node.output[:1])
        unknown = [end for end in ends if end and end not in self._graph.tensors]
        if name not in onnx_matchers() or not unknown:
            return name
        self._unknown.extend(unknown[:1])
        return f"{name} (shape not known)"

    def _constants(self, node: Any) -> dict[int, tuple[Any, ...]]:
        return {
            position: tuple(self._graph.values[name].reshape(-1).tolist())
            for position, name in enumerate(node.input)
            if name in self._graph.values and self._graph.values[name].size <= _LARGEST_CONSTANT_COUNT
        }

    def _names(self, node: Any) -> tuple[str, str]:
        """Return module path and source of the node."""
        position = self._positions[node.op_type] = self._positions.get(node.op_type, -1) + 1
        return module_of(node.name), f"{self._path.name}#{node.name or f'{node.op_type}[{position}]'}"


def module_of(name: str) -> str:
    """Return the module path that the scopes of a node's name state.

    >>> module_of("/layer1/layer1.0/conv1/Conv"), module_of("Conv_12")
    ('layer1.0.conv1', '')
    """
    path: list[str] = []
    for scope in [part for part in name.split("/") if part][:-1]:
        nested = bool(path) and scope.startswith(f"{path[-1]}.")  # exporters repeat the parent in a child of a list
        path = [*path[:-1], scope] if nested else [*path, scope]
    return ".".join(path)


def outer_names(node: Any) -> list[str]:
    """Return the tensors that the bodies of a node read from around them."""
    names: dict[str, None] = {}
    waiting = [(item.g, frozenset[str]()) for item in node.attribute if item.HasField("g")]
    while waiting:
        body, inner = waiting.pop()
        inner = inner.union(
            (item.name for item in (*body.input, *body.initializer)), (n for part in body.node for n in part.output)
        )
        read = (*(name for part in body.node for name in part.input), *(item.name for item in body.output))
        names |= dict.fromkeys(name for name in read if name and name not in inner)
        waiting += [(item.g, inner) for part in body.node for item in part.attribute if item.HasField("g")]
    return list(names)


def attributes_of(node: Any, opset: int) -> dict[str, Any]:
    """Return the node's attributes as Python values, the standard's defaults written out."""
    onnx = imported_onnx()
    attributes: dict[str, Any] = {}
    if node.domain in ("", "ai.onnx") and onnx.defs.has(node.op_type, opset):
        schema = onnx.defs.get_schema(node.op_type, opset)
        defaults = {name: item.default_value for name, item in schema.attributes.items()}
        attributes = {name: _python(onnx, item) for name, item in defaults.items() if item.type}
    attributes |= {item.name: _python(onnx, item) for item in node.attribute}
    return {name: value for name, value in attributes.items() if value is not None}


def _python(onnx: Any, attribute: Any) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, (list, tuple)) or hasattr(value, "__iter__"):
        items = tuple(item.decode(errors="replace") if isinstance(item, bytes) else item for item in value)
        return items if all(isinstance(item, (int, float, str)) for item in items) else None
    return None


def _modern_softmax(site: OnnxSite, opset: int) -> OnnxSite:
    """Return a softmax of operator sets before 13, which flattens from its axis on, as today's softmax."""
    if opset >= 13 or site.name not in ("Softmax", "LogSoftmax", "Hardmax") or site.inputs[0] is None:
        return site
    shape, axis = site.inputs[0].shape, int(site.attributes.get("axis", 1)) % max(1, len(site.inputs[0].shape))
    columns = prod(shape[axis:])
    flat = (site.inputs[0].elements // columns if columns else 0, columns)
    return replace(
        site, attributes={**site.attributes, "axis": 1}, inputs=(replace(site.inputs[0], shape=flat),),
        outputs=(replace(site.outputs[0], shape=flat),),
    )  # fmt: skip
