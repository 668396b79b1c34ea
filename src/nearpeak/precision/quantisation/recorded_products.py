"""Executed precision from files of other runs: profiles of ONNX Runtime and layer descriptions of TensorRT."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nearpeak.core.work.dtype import DTYPES
from nearpeak.errors import SpecError
from nearpeak.frontends.onnx.profiled_nodes import node_format
from nearpeak.precision.quantisation.executed_products import (
    UNKNOWN,
    Array,
    ExecutedGraph,
    ExecutedProduct,
    GraphNode,
    executed_graph,
)
from nearpeak.traces.reading.json_document import document_of

_DATA_TYPES = (
    ("INT8", "int8"), ("INT4", "int4"), ("FP8", "fp8_e4m3"), ("FP4", "fp4_e2m1"), ("BF16", "bf16"),
    ("BFLOAT16", "bf16"), ("FP16", "fp16"), ("HALF", "fp16"), ("FP32", "fp32"), ("FLOAT", "fp32"),
    ("INT32", "int32"), ("INT64", "int64"),
)  # fmt: skip
"""Parts of TensorRT's names of formats, in capitals, and canonical formats; the first that fits counts."""
_CONVOLUTIONS = ("Convolution", "Deconvolution")
_PRODUCTS = ("MatrixMultiply", "FullyConnected", "Gemm")
_PASSES = ("Reformat", "Scale", "Quantize", "Dequantize")
_REGIONS = ("kgen", "Myelin", "ForeignNode", "PluginV2", "PluginV3", "PluginV2DynamicExt", "Loop", "Conditional")
"""Kinds of layers that hold whatever a compiler or a plug-in put there."""


def executed_recording(path: Path) -> ExecutedGraph:
    """Return in which precision the products of a profile or of an engine ran.

    Raises:
        SpecError: the file is neither a profile of ONNX Runtime nor a layer description of TensorRT.
    """
    data, _ = document_of(path)
    if isinstance(data, Mapping) and isinstance(data.get("Layers"), list):
        return _engine(path.name, [layer for layer in data["Layers"] if isinstance(layer, Mapping)])
    events = data.get("traceEvents", []) if isinstance(data, Mapping) else data
    nodes = list(_recorded(events if isinstance(events, list) else []))
    if not nodes:
        raise SpecError(
            f"{path}: is neither an ONNX Runtime profile nor a layer description of trtexec (--exportLayerInfo with "
            f"--profilingVerbosity=detailed); for traces of PyTorch there is 'nearpeak amp {path.name}'"
        )
    return executed_graph(path.name, "ONNX Runtime's profile", nodes)


def _recorded(events: Iterable[Any]) -> Iterable[GraphNode]:
    """Yield each node of a profile once, as its kernel first ran."""
    seen = set[str]()
    for event in events:
        if not isinstance(event, Mapping) or not str(event.get("name", "")).endswith("_kernel_time"):
            continue
        arguments = event.get("args") or {}
        name = str(event["name"]).removesuffix("_kernel_time")
        key = f"{name} {arguments.get('node_index', '')}"
        if key in seen or not arguments.get("op_name"):
            continue
        seen.add(key)
        inputs, outputs = (_profile_arrays(arguments.get(f"{side}_type_shape")) for side in ("input", "output"))
        yield GraphNode(name, str(arguments["op_name"]), "", inputs, outputs, {})


def _profile_arrays(rows: Any) -> tuple[Array | None, ...]:
    """Return the tensors that a profile lists as `[{"float": [1, 3]}, …]`."""
    pairs = [next(iter(row.items()), None) if isinstance(row, Mapping) else None for row in rows or []]
    return tuple(None if pair is None else _array(node_format(str(pair[0])), pair[1]) for pair in pairs)


def _array(dtype: str | None, shape: Any) -> Array | None:
    if dtype is None or not isinstance(shape, list):
        return None
    return Array(tuple(int(extent) for extent in shape), dtype, DTYPES[dtype].bits_count)


def _engine(name: str, layers: Sequence[Mapping[str, Any]]) -> ExecutedGraph:
    kinds = [  # without a detailed description that of the kernel
        str(layer.get("ParameterType", ""))
        or str(layer.get("LayerType", "")).removeprefix("Cask").replace("Gemm", "", 1).strip() or UNKNOWN
        for layer in layers
    ]  # fmt: skip
    passes = [_pass(layer) for layer, kind in zip(layers, kinds, strict=True) if kind.startswith(_PASSES)]
    sizes = [size for turned, size in passes if turned]
    regions = [str(layer.get("LayerType", "")) for layer, kind in zip(layers, kinds, strict=True) if _is_region(kind)]
    return ExecutedGraph(
        name=name, engine="TensorRT, layers of the built engine", node_count=len(layers),
        products=tuple(
            _product(layer, kind) for layer, kind in zip(layers, kinds, strict=True)
            if kind.startswith(_CONVOLUTIONS) or any(part in kind for part in _PRODUCTS)
        ),
        quantise_count=sum(turned == "quantise" for turned, _ in passes),
        dequantise_count=sum(turned == "dequantise" for turned, _ in passes),
        loose_bytes=None if None in sizes else sum(size for size in sizes if size is not None),
        unlisted_count={kind: regions.count(kind) for kind in dict.fromkeys(regions)},
    )  # fmt: skip


def _is_region(kind: str) -> bool:
    return kind == UNKNOWN or kind.startswith(_REGIONS)


def _product(layer: Mapping[str, Any], kind: str) -> ExecutedProduct:
    inputs, outputs = _tensors(layer, "Inputs"), _tensors(layer, "Outputs")
    first = inputs[0] if inputs else None
    return ExecutedProduct(
        name=str(layer.get("Name", "")), operator=kind, precision=UNKNOWN if first is None else first.dtype,
        mac_count=_mac_count(layer, kind, inputs, outputs[0] if outputs else None),
    )  # fmt: skip


def _mac_count(layer: Mapping[str, Any], kind: str, inputs: Sequence[Array | None], result: Array | None) -> int | None:
    """Return the multiply-adds of a layer; none where its description does not tell."""
    weights = layer.get("Weights")
    count = weights.get("Count") if isinstance(weights, Mapping) else None
    maps = layer.get("OutMaps")
    if kind.startswith(_CONVOLUTIONS):
        first = inputs[0] if inputs else None
        if not (isinstance(count, int) and isinstance(maps, int) and maps):
            return None
        if kind.startswith("De"):
            groups = layer.get("Groups", 1)
            channels = first.shape[1] if first is not None and len(first.shape) > 1 else 0
            return first.elements * count // channels if first is not None and channels and groups else None
        return None if result is None else result.elements * count // maps
    if len(inputs) < 2 or result is None or inputs[0] is None or inputs[1] is None or len(result.shape) < 2:
        return None
    batch = math.prod(result.shape[:-2])
    squared = inputs[0].elements * inputs[1].elements // max(1, result.elements * batch)
    depth = math.isqrt(squared)
    return result.elements * depth if depth * depth == squared else None


def _pass(layer: Mapping[str, Any]) -> tuple[str, int | None]:
    """Return which way a layer changes between 8 bits and real numbers, empty for neither, and its bytes."""
    inputs, outputs = _tensors(layer, "Inputs"), _tensors(layer, "Outputs")
    before, after = (side[0] if side else None for side in (inputs, outputs))
    if before is None or after is None:
        return "", None
    narrow = [array.dtype in ("int8", "int4") for array in (before, after)]
    turned = {(False, True): "quantise", (True, False): "dequantise"}.get((narrow[0], narrow[1]), "")
    return turned, sum(-(-array.elements * array.bits_count // 8) for array in (before, after))


def _tensors(layer: Mapping[str, Any], side: str) -> tuple[Array | None, ...]:
    """Return the tensors of a layer's description; none where a format is not stated."""
    tensors, rows = list[Array | None](), layer.get(side)
    for row in rows if isinstance(rows, list) else []:
        stated = row if isinstance(row, Mapping) else {}
        text = str(stated.get("Format/Datatype", "")).upper()
        dtype = next((name for part, name in _DATA_TYPES if part in text), None)
        tensors.append(_array(dtype, stated.get("Dimensions")))
    return tuple(tensors)
