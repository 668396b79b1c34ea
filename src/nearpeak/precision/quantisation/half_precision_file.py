"""ONNX files in 16 bits: every floating-point tensor of a model in bf16 or fp16."""

from typing import Any

import numpy as np

from nearpeak.errors import NotModelledError

_KEPT = {"Resize": (1, 2), "Upsample": (1,), "Range": (0, 1, 2), "NonMaxSuppression": (3, 4)}
"""Inputs that the standard wants in fp32, by operator type."""
_QUANTISED = ("QuantizeLinear", "DequantizeLinear", "MatMulInteger", "ConvInteger", "QLinearConv", "QLinearMatMul")


def in_half(onnx: Any, model: Any, dtype: str) -> Any:
    """Return a float model with all its fp32 tensors in 16 bits; the values of weights are rounded.

    Args:
        dtype: `bf16` or `fp16`.

    Raises:
        NotModelledError: it is quantised already.
    """
    quantised = sorted({node.op_type for node in model.graph.node} & set(_QUANTISED))
    if quantised:
        raise NotModelledError(f"is quantised already (it has {quantised[0]}); give the float model, or --executed")
    single, half = onnx.TensorProto.FLOAT, {"bf16": onnx.TensorProto.BFLOAT16, "fp16": onnx.TensorProto.FLOAT16}[dtype]
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    unchanged = {
        node.input[place] for node in graph.node for place in _KEPT.get(node.op_type, ()) if place < len(node.input)
    }  # fmt: skip
    for item in (*graph.input, *graph.output, *graph.value_info):
        if item.type.tensor_type.elem_type == single and item.name not in unchanged:
            item.type.tensor_type.elem_type = half
    tensors = [item for item in graph.initializer if item.name not in unchanged]
    for node in graph.node:
        is_kept = any(name in unchanged for name in node.output)
        for attribute in node.attribute:
            if attribute.HasField("t") and not is_kept:
                tensors.append(attribute.t)
            if attribute.name == "to" and attribute.i == single:
                attribute.i = half
    for tensor in tensors:
        if tensor.data_type == single:
            values = onnx.numpy_helper.to_array(tensor).astype(np.float32)
            if dtype == "fp16":
                with np.errstate(over="ignore"):
                    narrow = values.astype("<f2")
            else:
                narrow = (np.ascontiguousarray(values).view(np.uint32) >> 16).astype("<u2")  # upper half of each number
            raw = {"dims": tensor.dims, "data_type": half, "raw_data": narrow.tobytes()}
            tensor.CopyFrom(onnx.TensorProto(name=tensor.name, **raw))
    return made
