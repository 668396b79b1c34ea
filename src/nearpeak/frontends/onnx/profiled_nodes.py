"""Cases of nodes in onnxruntime profiles, which record shapes but no attributes."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.workload import Call
from nearpeak.errors import NearpeakError
from nearpeak.frontends.onnx.onnx_file import VIEWS
from nearpeak.frontends.torch.workload_builder import WorkloadBuilder
from nearpeak.ops import OPS, OnnxSite, onnx_matchers

_FORMATS = {
    "float8e4m3fn": "fp8_e4m3", "float8e4m3fnuz": "fp8_e4m3fnuz", "float8e5m2": "fp8_e5m2",
    "float8e5m2fnuz": "fp8_e5m2fnuz", "float4e2m1": "fp4_e2m1",
}  # fmt: skip
"""Formats by the names of onnxruntime's profile, where they are not our own or an alias."""
_FUSED = {
    "FusedConv": "Conv", "NhwcFusedConv": "Conv", "FusedGemm": "Gemm", "FusedMatMul": "com.microsoft.FusedMatMul",
    "TransposeMatMul": "com.microsoft.FusedMatMul",
}  # fmt: skip
"""Fused nodes of onnxruntime, by the operator that dominates their time."""
_UNSAID = "what its attributes say is not recorded, and shapes do not tell"


class RecordedNode(NamedTuple):
    """One node as recorded: its operator type, and format and shape of each tensor."""

    name: str
    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: tuple[tuple[str, tuple[int, ...]], ...]


def recorded_nodes(rows: Sequence[RecordedNode]) -> list[tuple[Call, ...] | str]:
    """Return the calls of each node, or the reason why they are not known.

    A profile states shapes and no attributes: strides, padding, groups and transposed factors follow from the shapes
    of inputs and outputs where these leave one reading, dilation is taken for 1, and a weight that was packed, which
    is not among the inputs any more, from what it must have been.
    """
    builder = WorkloadBuilder(onnx_matchers())
    return [_calls(builder, row) for row in rows]


def node_format(kind: str) -> str | None:
    """Return the format that onnxruntime's profile calls `kind`; none if it is no number format.

    >>> node_format("float16"), node_format("float8e4m3fn"), node_format("string")
    ('fp16', 'fp8_e4m3', None)
    """
    try:
        return dtype_of(_FORMATS.get(kind, kind)).name
    except NearpeakError:
        return None


def _calls(builder: WorkloadBuilder, row: RecordedNode) -> tuple[Call, ...] | str:
    if row.name in VIEWS:
        return "it only renames its input"
    name = _FUSED.get(row.name, row.name)
    if name not in _readers():
        return f"{row.name}: {_UNSAID if name in onnx_matchers() else 'no rule for it'}"
    first = len(builder.calls)
    try:
        builder.add_call(_site(name, row), phase="forward", reads={}, writes=())
    except (NearpeakError, LookupError, ValueError, TypeError, AssertionError, ZeroDivisionError) as error:
        reason = str(error).splitlines()[0][:90] if str(error) else "its shapes do not fit together"
        return f"{row.name} cannot be read from its shapes: {reason}"
    finally:
        made = tuple(builder.calls[first:])
        del builder.calls[first:]
    return made


def _site(name: str, row: RecordedNode) -> OnnxSite:
    inputs, outputs = (
        tuple(Tensor(shape=shape, dtype=dtype_of(_FORMATS.get(kind, kind)).name) for kind, shape in side)
        for side in (row.inputs, row.outputs)
    )
    if not inputs or not outputs:
        raise ValueError("inputs or outputs were not recorded")
    operands, attributes = _readers()[name](inputs, outputs)
    single = {
        place: () for place, tensor in enumerate(operands) if place and tensor is not None and tensor.elements <= 1
    }
    return OnnxSite(name=name, inputs=operands, outputs=outputs, attributes=attributes, constants=single)


Tensors = tuple[Tensor, ...]
Read = tuple[tuple[Tensor | None, ...], Mapping[str, Any]]


def _plain(inputs: Tensors, _: Tensors) -> Read:
    """Read a node whose case follows from its shapes."""
    return inputs, {}


def _conv(inputs: Tensors, outputs: Tensors) -> Read:
    """Read a convolution: its strides are the ratios of input to output extents."""
    x, weight, out = inputs[0], inputs[1], outputs[0]
    if len(weight.shape) != len(x.shape):
        raise ValueError("its weight was packed and is not recorded")
    strides = [max(1, round(n / max(1, m))) for n, m in zip(x.shape[2:], out.shape[2:], strict=True)]
    sizes = zip(x.shape[2:], weight.shape[2:], out.shape[2:], strides, strict=True)
    pads = [_padding(*sides) for sides in sizes]
    before = [pad // 2 for pad in pads]
    return inputs[:3], {
        "strides": strides, "pads": [*before, *(pad - half for pad, half in zip(pads, before, strict=True))],
        "group": x.shape[1] // weight.shape[1],
    }  # fmt: skip


def _padding(extent: int, taps: int, result: int, stride: int) -> int:
    """Return the total padding of both sides: of all that fit the output, the extent-preserving one, else an even one.

    >>> _padding(16, 3, 8, 2), _padding(16, 3, 14, 1), _padding(16, 4, 15, 1)
    (2, 0, 2)
    """
    least = max(0, (result - 1) * stride + taps - extent)
    most = max(least, (result - 1) * stride + taps - extent + stride - 1)
    extent_preserving = 2 * ((taps - 1) // 2)
    return extent_preserving if least <= extent_preserving <= most else min(most, least + least % 2)


def _product(inputs: Tensors, outputs: Tensors) -> Read:
    """Read a product: factors are transposed as the output shape requires; a packed weight is taken as [k, n]."""
    a, out = inputs[0], outputs[0]
    rows, columns = (out.shape[-2] if len(out.shape) > 1 else 1), out.shape[-1]
    turned = len(a.shape) > 1 and a.shape[-1] == rows != a.shape[-2]
    depth = a.shape[-2] if turned else a.shape[-1]
    recorded = False  # whether the second input is the right factor; otherwise it is the bias
    if len(inputs) > 1 and len(inputs[1].shape) == 1:
        recorded = columns != inputs[1].shape[0] == depth
    elif len(inputs) > 1:
        recorded = sorted(inputs[1].shape[-2:]) == sorted((depth, columns))
    b = inputs[1] if recorded else Tensor(shape=(depth, columns), dtype=a.dtype)
    right = len(b.shape) > 1 and b.shape[-2:] == (columns, depth) and columns != depth
    return (a, b, *inputs[1 + recorded :]), {"transA": int(turned), "transB": int(right)}


def _normalised(inputs: Tensors, _: Tensors) -> Read:
    """Read a normalisation: over as many of the last dimensions as its weight has."""
    return inputs, {"axis": -max(1, len(inputs[1].shape))}


def _pooled(inputs: Tensors, _: Tensors) -> Read:
    return inputs[:1], {}


_SHAPED = (
    "BatchNormalization", "Cast", "CastLike", "Concat", "CumSum", "DequantizeLinear", "DynamicQuantizeLinear", "Expand",
    "Gather", "GatherND", "InstanceNormalization", "LogSoftmax", "Mean", "Pad", "QuantizeLinear",
    "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "ReduceSumSquare", "Slice", "Softmax", "Split", "Sum", "Tile", "TopK", "Transpose", "Trilu", "Where",
)  # fmt: skip
"""Nodes, besides elementwise ones, whose attributes are not needed or follow from shapes."""


@cache
def _readers() -> dict[str, Callable[[Tensors, Tensors], Read]]:
    """Return how nodes are read from their shapes, by operator type."""
    plain = [name for name in OPS["elementwise"].onnx if name != "BitShift"]
    return {
        **dict.fromkeys((*plain, *_SHAPED), _plain), "Conv": _conv,
        **dict.fromkeys(("Gemm", "MatMul", "com.microsoft.FusedMatMul"), _product),
        **dict.fromkeys(("LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization"), _normalised),
        **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _pooled),
    }  # fmt: skip
