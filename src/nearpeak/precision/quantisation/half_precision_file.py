"""ONNX files in bf16: every floating-point tensor of a model in the narrower format."""

from typing import Any

import numpy as np

from nearpeak.errors import NotModelledError

_KEPT = {"Resize": (1, 2), "Upsample": (1,), "Range": (0, 1, 2), "NonMaxSuppression": (3, 4)}
"""Inputs that the standard wants in fp32, by operator type."""
_QUANTISED = ("QuantizeLinear", "DequantizeLinear", "MatMulInteger", "ConvInteger", "QLinearConv", "QLinearMatMul")


def in_bf16(onnx: Any, model: Any) -> Any:
    """Return a float model with all its fp32 tensors in bf16; the values of weights are rounded.

    Raises:
        NotModelledError: it is quantised already.
    """
    quantised = sorted({node.op_type for node in model.graph.node} & set(_QUANTISED))
    if quantised:
        raise NotModelledError(f"is quantised already (it has {quantised[0]}); give the float model, or --executed")
    single, half = onnx.TensorProto.FLOAT, onnx.TensorProto.BFLOAT16
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
            upper = (np.ascontiguousarray(values).view(np.uint32) >> 16).astype("<u2")  # the upper half of each number
            raw = {"dims": tensor.dims, "data_type": half, "raw_data": upper.tobytes()}
            tensor.CopyFrom(onnx.TensorProto(name=tensor.name, **raw))
    return made
