"""Shape inference of ONNX files: input dimensions fixed, shape arithmetic folded, weights never loaded."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import check_file
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.dtype import DTYPES
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.workload import LARGEST_TENSOR_BYTES
from nearpeak.errors import CaptureError, MissingExtraError, SpecError
from nearpeak.frontends.onnx.contrib_shapes import describe_contrib
from nearpeak.frontends.onnx.expansion_limits import (
    check_extents,
    check_functions,
    held_ranges,
    is_large,
    most_unrolled,
)  # fmt: skip
from nearpeak.frontends.onnx.input_shapes import fix_inputs
from nearpeak.frontends.onnx.loop_expansion import written_out

MOST_OPSET, LARGEST_TYPE = 10_000, 98
"""Version of the standard's operator set and number of an element type that no file has: both grow by a few a year."""
LARGEST_FOLDED_COUNT = 1024
"""Elements up to which the value of a constant is kept: enough for shapes, indices and axes."""

_DTYPES = {
    1: "fp32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "fp16",
    11: "fp64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bf16", 17: "fp8_e4m3",
    18: "fp8_e4m3fnuz", 19: "fp8_e5m2", 20: "fp8_e5m2fnuz", 21: "uint4", 22: "int4", 23: "fp4_e2m1",
    24: "fp8_e8m0", 25: "uint2", 26: "int2",
}  # fmt: skip
"""Canonical formats by number of onnx.TensorProto.DataType; formats without a row are not modelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxGraph:
    """A graph with all tensors and values that are known without running it."""

    nodes: tuple[Any, ...]
    """Nodes that remain after folding, in order."""
    tensors: Mapping[str, Tensor]
    """Tensors of known shape and format by name."""
    values: Mapping[str, Any]
    """NumPy values of small constants by name."""
    initializers: frozenset[str]
    """Names of stored tensors."""
    inputs: tuple[str, ...]
    """Names of the inputs that a caller passes."""
    outputs: tuple[str, ...]
    """Names of the outputs."""
    opset_count: int
    """Version of the standard operator set."""
    guesses: tuple[str, ...] = ()
    """Open dimensions that were given a usual extent."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Producer, operator set and package version, for the origin."""
    folded: Mapping[str, int] = field(default_factory=dict)
    """Nodes of shape arithmetic that were computed here, by operator type."""


def load_graph(path: Path, options: CaptureOptions, known: Container[str] = ()) -> OnnxGraph:
    """Return the graph stored at `path` with its inputs fixed to the shapes, values and batch that are stated.

    Args:
        known: operator types that stay whole; of the others those that the standard defines by simpler ones are
            replaced by these.

    Raises:
        SpecError: the file is missing, or an input dimension is contradicted or left open.
        CaptureError: the file is not a sound ONNX model.
    """
    onnx = imported_onnx()
    model = loaded_model(onnx, path)
    describe_contrib(onnx)
    before = [item.SerializeToString() for item in model.graph.input]
    inputs, guesses = fix_inputs(onnx, model.graph, options)
    if before != [item.SerializeToString() for item in model.graph.input]:
        del model.graph.value_info[:]  # shapes that held before the inputs were fixed
        for item in model.graph.output:
            if item.type.HasField("tensor_type"):
                item.type.tensor_type.ClearField("shape")
    _shed_weights(model, onnx, path)
    model = _spelled_out(onnx, model, known)
    folded: dict[str, int] = {}
    values: dict[str, Any] = {}
    while True:
        with held_ranges(model, values):
            inferred = _inferred(onnx, model, path)
        tensors = _tensors(inferred)
        if not _fold(onnx, model, tensors, values, folded):
            break
    return OnnxGraph(
        nodes=tuple(model.graph.node), tensors=tensors, values=values, inputs=inputs, folded=folded,
        initializers=frozenset(item.name for item in model.graph.initializer if item.name not in values)
        | frozenset(item.values.name for item in model.graph.sparse_initializer),
        outputs=tuple(item.name for item in model.graph.output),
        opset_count=_opset(model),
        guesses=guesses,
        versions={"producer": f"{model.producer_name} {model.producer_version}".strip(), "onnx": onnx.__version__,
                  "opset": str(_opset(model))},
    )  # fmt: skip


def imported_onnx() -> Any:
    """Return the onnx package; without it the error names the extra."""
    try:
        import onnx
        import onnx.inliner
        import onnx.reference
    except ImportError as error:
        raise MissingExtraError(
            f"onnx: not installed ({error}); install it with: pip install 'nearpeak[onnx]'"
        ) from None
    return onnx


def loaded_model(onnx: Any, path: Path) -> Any:
    """Return the stored model without external weights, its own functions written out; a damaged one is refused."""
    check_file(path)
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # the protobuf package in use decides which exception it is
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CaptureError(f"{path}: not an ONNX model, or cut short ({reason}); export it again") from None
    if not model.graph.node:
        raise CaptureError(f"{path}: holds no node, so it is not an ONNX model or it is empty; export it again")
    if not model.opset_import:
        raise CaptureError(f"{path}: states no operator set, so it is not an ONNX model; export it again")
    for item in model.opset_import:
        if item.domain in ("", "ai.onnx") and not 1 <= item.version <= MOST_OPSET:
            raise CaptureError(f"{path}: states operator set {item.version}, which does not exist; export it again")
    check_functions(model, str(path))
    check_extents(model, str(path))
    _check_constants(model, path)
    return onnx.inliner.inline_local_functions(model) if model.functions else model


def _check_constants(model: Any, path: Path) -> None:
    """Refuse stored tensors of no element type, or whose bytes do not fill their shape."""
    for item in model.graph.initializer:
        dtype = DTYPES.get(_DTYPES.get(item.data_type, ""))
        if item.data_type == 0 or item.data_type > LARGEST_TYPE:
            raise CaptureError(f"{path}: constant {item.name!r} is of element type {item.data_type}, which ONNX lacks")
        if dtype is not None and item.HasField("raw_data"):
            size, wanted = len(item.raw_data), -(-prod(item.dims) * dtype.bits_count // 8)
            if size != wanted:
                raise CaptureError(
                    f"{path}: constant {item.name!r} holds {size:,} bytes; its shape takes {wanted:,}; export it again"
                )


def _spelled_out(onnx: Any, model: Any, known: Container[str]) -> Any:
    """Return the model with operators that are not `known` replaced by the standard's function definitions."""
    opset, stated = _opset(model), {item.name for item in (*model.graph.input, *model.graph.value_info)}
    for item in model.graph.initializer:
        if item.name not in stated:  # definitions that depend on types look for them here
            model.graph.value_info.append(onnx.helper.make_tensor_value_info(item.name, item.data_type, item.dims))
    done: set[str] = set()
    while True:
        names = {node.op_type for node in model.graph.node if node.domain in ("", "ai.onnx")} - done
        schemas = [onnx.defs.get_schema(n, opset) for n in sorted(names) if n not in known and onnx.defs.has(n, opset)]
        defined = {s.name: s for s in schemas if s.has_function or s.has_context_dependent_function}
        if not defined:
            return model
        done.update(defined)
        for node in model.graph.node:  # definitions look only at attributes that the node states
            stated_names = {item.name for item in node.attribute}
            schema = defined.get(node.op_type)
            defaults = sorted(schema.attributes.items()) if schema else ()
            node.attribute.extend(
                a.default_value for n, a in defaults if n not in stated_names and a.default_value.type
            )
        chosen = [("", name) for name in defined]
        try:
            model = onnx.inliner.inline_selected_functions(model, chosen, inline_schema_functions=True)
        except RuntimeError:  # a definition that depends on a type which nothing states: the node stays as it is
            continue


def _opset(model: Any) -> int:
    return max((int(item.version) for item in model.opset_import if item.domain in ("", "ai.onnx")), default=0)


def _shed_weights(model: Any, onnx: Any, path: Path) -> None:
    """Drop the contents of large weights; load small constants from external data files."""
    graph = model.graph
    model.ir_version = max(model.ir_version, 4)  # before 4, inference ignores constants that are not inputs as well
    for domain in sorted({node.domain for node in graph.node} - {item.domain for item in model.opset_import}):
        model.opset_import.add(domain=domain, version=1)  # inference refuses a domain that the file forgot to state
    for item in graph.initializer:
        count = prod(item.dims)
        if count > LARGEST_FOLDED_COUNT and item.data_location != onnx.TensorProto.EXTERNAL:
            for name in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
                item.ClearField(name)
            item.data_location = onnx.TensorProto.EXTERNAL
        elif count <= LARGEST_FOLDED_COUNT and item.data_location == onnx.TensorProto.EXTERNAL:
            _load_beside(onnx, item, path)


def _load_beside(onnx: Any, item: Any, path: Path) -> None:
    try:
        onnx.external_data_helper.load_external_data_for_tensor(item, str(path.parent))
    except Exception as error:  # missing, too short or outside the folder: the package has one type for each
        reason = str(error).splitlines()[0]
        raise CaptureError(
            f"{path}: constant {item.name!r} is stored in an external file that cannot be read ({reason}); "
            f"keep the model's data files next to it"
        ) from None
    item.data_location = onnx.TensorProto.DEFAULT


def _inferred(onnx: Any, model: Any, path: Path) -> Any:
    """Return the model with the shapes and formats that follow from its inputs.

    The package has no rule for the shapes of GroupNormalization; InstanceNormalization has the same, and stands for it.
    """
    norms = [node for node in model.graph.node if node.op_type == "GroupNormalization" and not node.domain]
    for node in norms:
        node.op_type = "InstanceNormalization"
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:  # InferenceError, or what the C++ side throws on a malformed graph
        reason = " ".join(str(error).split())[:200]
        raise CaptureError(f"{path}: shapes cannot be inferred ({reason}); check the input shapes") from None
    finally:
        for node in norms:
            node.op_type = "GroupNormalization"


def _tensors(model: Any) -> dict[str, Tensor]:
    """Return all tensors of known shape and known format."""
    graph = model.graph
    stated_tensors = {item.name: (item.data_type, tuple(int(dim) for dim in item.dims)) for item in graph.initializer}
    for item in (*graph.input, *graph.value_info, *graph.output):
        tensor = item.type.tensor_type
        stated = item.type.HasField("tensor_type") and tensor.HasField("shape") and item.name not in stated_tensors
        if stated and all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in tensor.shape.dim):
            stated_tensors[item.name] = (tensor.elem_type, tuple(int(dim.dim_value) for dim in tensor.shape.dim))
    tensors = {
        name: Tensor(shape=shape, dtype=_DTYPES[number])
        for name, (number, shape) in stated_tensors.items()
        if number in _DTYPES
    }
    for name, known in tensors.items():
        if known.bytes > LARGEST_TENSOR_BYTES:
            shown = "×".join(map(str, known.shape))
            raise SpecError(
                f"tensor {name!r}: {shown} {known.dtype} is over 2^50 bytes; check --input-shape and --batch"
            )
    return tensors


def _fold(onnx: Any, model: Any, tensors: Mapping[str, Tensor], values: dict[str, Any], folded: dict[str, int]) -> bool:
    """Fold nodes with small known inputs into constants; return whether the graph changed."""
    for item in model.graph.initializer:
        if item.name not in values and prod(item.dims) <= LARGEST_FOLDED_COUNT:
            values[item.name] = onnx.numpy_helper.to_array(item)
    remaining, nodes = list[Any](), list[Any]()
    for node in model.graph.node:
        has_room = node.op_type not in ("Loop", "Scan") or len(nodes) < most_unrolled(node)
        nodes += _decided(onnx, model, node, values, tensors) if has_room else [node]
    changed = len(nodes) != len(model.graph.node)
    for node in nodes:
        results = _folded_outputs(onnx, node, tensors, values, _opset(model))
        if results is None:
            remaining.append(node)
            continue
        changed = True
        folded[node.op_type] = folded.get(node.op_type, 0) + 1
        for name, value in results.items():
            values[name] = value
            model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    del model.graph.node[:]
    model.graph.node.extend(remaining)
    return changed


def _decided(onnx: Any, model: Any, node: Any, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> list[Any]:
    """Return the nodes of the branch that a known condition selects, or of an unrolled loop; else the node."""
    graph = model.graph
    if node.op_type in ("Loop", "Scan"):
        return written_out(onnx, graph, node, values, tensors, _opset(model))
    if node.op_type != "If" or node.input[0] not in values:
        return [node]
    wanted = "then_branch" if values[node.input[0]].item() else "else_branch"
    branch = next(item.g for item in node.attribute if item.name == wanted)
    graph.initializer.extend(branch.initializer)
    names = zip(branch.output, node.output, strict=True)
    return [*branch.node, *(onnx.helper.make_node("Identity", [inner.name], [outer]) for inner, outer in names)]


def _folded_outputs(
    onnx: Any, node: Any, tensors: Mapping[str, Tensor], values: Mapping[str, Any], opset: int
) -> dict[str, Any] | None:
    """Return the small outputs of a node that depends only on known values or a known shape."""
    import numpy as np

    if node.domain not in ("", "ai.onnx") or any(attribute.HasField("g") for attribute in node.attribute):
        return None
    if node.op_type in ("Shape", "Size") and node.input[0] in tensors:
        limits = {item.name: int(item.i) for item in node.attribute}
        extents = tensors[node.input[0]].shape[limits.get("start") : limits.get("end")]
        shape = np.array(extents, dtype=np.int64)
        return {node.output[0]: shape if node.op_type == "Shape" else np.array(shape.prod(), dtype=np.int64)}
    random = node.op_type.startswith("Random") or node.op_type in ("Bernoulli", "Multinomial", "Dropout")
    if random or any(name and name not in values for name in node.input):
        return None
    if is_large(node, tensors, values, LARGEST_FOLDED_COUNT):
        return None
    return _computed(onnx, node, values, opset)


def _computed(onnx: Any, node: Any, values: Mapping[str, Any], opset: int) -> dict[str, Any] | None:
    import numpy as np

    helper, inputs = onnx.helper, [name for name in dict.fromkeys(node.input) if name]
    infos = [helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None) for name in inputs]
    outs = [helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None) for name in node.output if name]
    graph = helper.make_graph([node], "fold", infos, outs)
    small = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        with np.errstate(all="ignore"):
            results = onnx.reference.ReferenceEvaluator(small).run(None, {name: values[name] for name in inputs})
    except Exception:  # an operator that the reference lacks stays an ordinary node
        return None
    named = dict(zip((name for name in node.output if name), results, strict=True))
    usable = all(isinstance(value, (np.ndarray, np.generic)) and value.size <= LARGEST_FOLDED_COUNT
                 for value in named.values())  # fmt: skip
    return {name: np.asarray(value) for name, value in named.items()} if usable else None
