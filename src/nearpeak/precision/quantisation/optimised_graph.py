"""Graph of an ONNX file as ONNX Runtime optimises it for this CPU, with the shape of every tensor."""

import tempfile
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import check_file
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.dtype import DTYPES
from nearpeak.errors import MeasureError, SpecError
from nearpeak.frontends.onnx.input_shapes import fix_inputs
from nearpeak.frontends.onnx.model_shapes import imported_onnx
from nearpeak.measurement.machine.onnx_session import runtime_or_refusal
from nearpeak.precision.quantisation.executed_products import Array, ExecutedGraph, GraphNode, executed_graph
from nearpeak.precision.quantisation.runtime_timing import random_feeds

_LAYOUTS = ["NchwcTransformer", "NhwcTransformer"]
"""Optimisers left out: they pad channels to whole vectors, and change no precision."""
_LARGEST_BYTES = 2**31
"""Size from which on a model cannot be one file (a limit of protocol buffers)."""


def executed_file(path: Path, options: CaptureOptions = CaptureOptions()) -> ExecutedGraph:
    """Return in which precision ONNX Runtime forms the products of a model on this CPU; executed in this process.

    Shapes are those of one run on random inputs of the sizes that `options` state.

    Raises:
        SpecError: the file is missing or no model, or an input's size stays open.
        MeasureError: the runtime refuses it.
    """
    onnx, runtime = imported_onnx(), runtime_or_refusal("precision --executed")
    nodes = read_nodes(onnx, runtime, fixed_model(path, options), str(path))
    engine = f"ONNX Runtime {runtime.__version__} on this CPU, its optimised graph"
    return executed_graph(path.name, engine, nodes)


def read_nodes(onnx: Any, runtime: Any, model: Any, where: str) -> list[GraphNode]:
    """Return the nodes of a model after optimisation, with shape and format of their tensors in one run.

    Args:
        where: name of the model, for messages.
    """
    with tempfile.TemporaryDirectory() as folder:
        graph = _optimised_model(onnx, runtime, model, Path(folder), where)
    return plain_nodes(onnx, runtime, graph)


def plain_nodes(onnx: Any, runtime: Any, model: Any) -> list[GraphNode]:
    """Return the nodes of a model as they stand in it, with shape and format of their tensors in one run."""
    return _graph_nodes(onnx, model, _shapes_of(onnx, runtime, model))


def fixed_model(path: Path, options: CaptureOptions) -> Any:
    """Return the model of a file with the sizes of its inputs fixed, weights included."""
    onnx = imported_onnx()
    check_file(path)
    try:
        model = onnx.load(str(path))
    except Exception as error:  # the protobuf package in use decides which exception it is
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SpecError(
            f"{path}: not an ONNX model, cut short, or without its weights ({reason}); export it again"
        ) from None
    if not model.graph.node:
        raise SpecError(f"{path}: holds no node, so it is not an ONNX model or it is empty; export it again")
    if model.ByteSize() >= _LARGEST_BYTES:
        raise SpecError(f"{path}: is over 2 GB with its weights; ONNX Runtime takes such a model from files only")
    before = [item.SerializeToString() for item in model.graph.input]
    fix_inputs(onnx, model.graph, options)
    if before != [item.SerializeToString() for item in model.graph.input]:
        del model.graph.value_info[:]  # shapes that held before the inputs were fixed
        for item in model.graph.output:
            item.type.tensor_type.ClearField("shape")
    return model


def _optimised_model(onnx: Any, runtime: Any, model: Any, folder: Path, where: str) -> Any:
    """Return the model after the runtime's optimisation for this CPU."""
    options = quiet_options(runtime)
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    try:
        runtime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"], disabled_optimizers=_LAYOUTS
        )
    except Exception as error:  # the runtime creates its error classes on import
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[0].split("failed:", 1)[-1].strip()[:200] if lines else type(error).__name__
        raise MeasureError(f"{where}: ONNX Runtime refuses it: {reason}") from None
    return onnx.load(options.optimized_model_filepath)


def quiet_options(runtime: Any, thread_count: int = 1) -> Any:
    """Return options of a session that prints nothing and has pinned threads."""
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = thread_count
    options.inter_op_num_threads = 1
    return options


def _graph_nodes(onnx: Any, model: Any, arrays: dict[str, Array]) -> list[GraphNode]:
    """Return the nodes of a model with what is known of their tensors."""
    stored = {
        item.name: _named(onnx.TensorProto.DataType.Name(item.data_type).lower(), item.dims)
        for item in model.graph.initializer
    }
    known = stored | arrays
    return [
        GraphNode(
            name=node.name or f"{node.op_type}[{place}]", operator=node.op_type, domain=node.domain,
            inputs=tuple(map(known.get, node.input)), outputs=tuple(map(known.get, node.output)),
            numbers={item.name: int(item.i) for item in node.attribute if item.type == onnx.AttributeProto.INT},
        )
        for place, node in enumerate(model.graph.node)
    ]  # fmt: skip


def _shapes_of(onnx: Any, runtime: Any, model: Any) -> dict[str, Array]:
    """Return shape and format of every tensor in one run of an optimised model; none where it does not run."""
    open_model = onnx.ModelProto()
    open_model.CopyFrom(model)
    outputs = {item.name for item in model.graph.output}
    made = [name for node in model.graph.node for name in node.output if name and name not in outputs]
    open_model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    options = quiet_options(runtime)
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = runtime.InferenceSession(
            open_model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )  # fmt: skip
        feeds = {
            name: runtime.OrtValue.ortvalue_from_numpy(value) for name, value in (random_feeds(session) or {}).items()
        }
        names = [item.name for item in session.get_outputs()]
        values = dict(zip(names, session.run_with_ort_values(names, feeds), strict=True))
    except Exception:  # inputs whose values matter, or of a format that NumPy lacks
        return {}
    return {  # the runtime calls a type `tensor(float)`
        name: _named(str(value.data_type())[len("tensor(") : -1], value.shape())
        for name, value in (feeds | values).items() if value.is_tensor()
    }  # fmt: skip


_FORMATS = {"float": "fp32", "float16": "fp16", "double": "fp64", "bfloat16": "bf16", "float8e4m3fn": "fp8_e4m3",
            "float8e5m2": "fp8_e5m2", "float4e2m1": "fp4_e2m1"}  # fmt: skip
"""Canonical formats by the names of ONNX, where they differ."""


def _named(name: str, shape: Any) -> Array:
    """Return an array of a format by its name in ONNX; one that has no canonical name keeps its own."""
    name = _FORMATS.get(name, name)
    row = DTYPES.get(name)
    return Array(tuple(int(extent) for extent in shape), name, 0 if row is None else row.bits_count)
