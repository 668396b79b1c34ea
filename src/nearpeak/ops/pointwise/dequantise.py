"""Dequantisation: quantised numbers widened to floating point."""

from operator import mul, sub
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DTYPES, DType, dtype_of
from nearpeak.core.work.scheme import Operand
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.pointwise.quantise import parameters_of
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.array_arithmetic import ceil_div, maximum, where
from nearpeak.ops.shared.definition.axis_checks import required_at_most, required_positive
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.scaled_factors import spread
from nearpeak.ops.shared.torch_names import torch_dtype

_FP32 = DTYPES["fp32"]


@free_when_empty
def dequantise(
    rows: int, columns: int, dtype: DType, out_dtype: DType = DTYPES["bf16"], block_rows: int | None = None,
    block_columns: int | None = None, scale_dtype: str = "fp32", zero_dtype: str = "", tensor_scale: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of y[rows,columns] = (q - zero) * scale, one scale per block.

    Counts: a product per element and, with zero points, a subtraction; conversion is no FLOP.

    Args:
        block_rows: rows that share a scale; all unless given; likewise block_columns.
        zero_dtype: format of zero points; empty without.
        tensor_scale: an fp32 scale of the whole tensor in addition to those of blocks (nvfp4).

    Source: Micikevicius et al. 2022, arXiv:2209.05433, section 3; Rouhani et al. 2023, arXiv:2310.10537, section 4.

    >>> dequantise(4, 64, DTYPES["fp4_e2m1"], block_rows=1, block_columns=32, scale_dtype="fp8_e8m0").read_bytes
    136
    """
    high, wide = rows if block_rows is None else block_rows, columns if block_columns is None else block_columns
    required_at_most("dequantise", {"rows": rows}, block_rows=high)
    required_at_most("dequantise", {"columns": columns}, block_columns=wide)
    required_positive("dequantise", block_rows=where(rows == 0, 1, high), block_columns=where(columns == 0, 1, wide))
    scales = ceil_div(rows, maximum(high, 1)) * ceil_div(columns, maximum(wide, 1))
    parameter_bytes = dtype_of(scale_dtype).bytes(scales) + (dtype_of(zero_dtype).bytes(scales) if zero_dtype else 0)
    # Scales of blocks are widened once each, not once per element.
    widened = where(scales > 1, scales, 0) if tensor_scale else 0
    return Work(
        flop={unit(out_dtype): rows * columns * (2 if zero_dtype else 1) + widened},
        read_bytes=dtype.bytes(rows * columns) + parameter_bytes + (_FP32.bytes(1) if tensor_scale else 0),
        write_bytes=out_dtype.bytes(rows * columns),
    )


def _inputs(
    rows: int, columns: int, dtype: str, block_rows: int, block_columns: int, scale_dtype: str, **arguments: Any
) -> dict[str, Tensor]:
    scales = ceil_div(rows, max(block_rows, 1)) * ceil_div(columns, max(block_columns, 1))
    tensors = {
        "q": Tensor(shape=(rows, columns), dtype=dtype),
        "scale": Tensor(shape=(scales,), dtype=scale_dtype),
        "zero": Tensor(shape=(scales,), dtype=arguments["zero_dtype"] or "int8"),
        "tensor_scale": Tensor(shape=(1,), dtype="fp32"),
    }
    left_out = {"zero"} - {"zero" if arguments["zero_dtype"] else ""}
    left_out |= set() if arguments["tensor_scale"] else {"tensor_scale"}
    return {name: tensor for name, tensor in tensors.items() if name not in left_out}


def _reference(arrays: dict[str, Any], block_rows: int, block_columns: int, **_: Any) -> dict[str, Any]:
    operand = Operand(dtype="", row_count=max(block_rows, 1), column_count=max(block_columns, 1))
    y = arrays["q"].astype(np.float64)
    y = spread(y, arrays["zero"], sub, operand) if "zero" in arrays else y
    y = spread(y, arrays["scale"], mul, operand)
    return {"y": y * arrays["tensor_scale"] if "tensor_scale" in arrays else y}


def _torch_call(
    tensors: dict[str, Any], rows: int, columns: int, block_rows: int, block_columns: int, **arguments: Any
) -> dict[str, Any]:
    import torch

    out = torch_dtype(torch, arguments["out_dtype"])
    wide = torch.float64 if out == torch.float64 else torch.float32
    block_rows, block_columns = max(block_rows, 1), max(block_columns, 1)

    def whole(per_block: Any) -> Any:
        grid = per_block.to(wide).reshape(ceil_div(rows, block_rows), ceil_div(columns, block_columns))
        return grid.repeat_interleave(block_rows, 0)[:rows].repeat_interleave(block_columns, 1)[:, :columns]

    y = tensors["q"].to(wide)
    y = y - whole(tensors["zero"]) if "zero" in tensors else y
    y = y * whole(tensors["scale"])
    return {"y": (y * tensors["tensor_scale"] if "tensor_scale" in tensors else y).to(out)}


def _match(q: Tensor, out: Tensor, channels: int, **more: Value) -> Match:
    """Return the case of one scale per channel; where the channels lie does not change the work."""
    channels = max(channels, 1)
    arguments: dict[str, Value] = {
        "rows": channels, "columns": q.elements // channels, "block_rows": min(1, channels), "dtype": q.dtype,
        "out_dtype": out.dtype,
    }  # fmt: skip
    return Match(arguments=arguments | more)


def _from_aten(site: AtenSite) -> Match:
    """Match dequantisation; PyTorch's quantised tensors carry their scales with them."""
    q = site.args["self"] if "self" in site.args else site.args["input"]
    scale, zero = parameters_of(site)
    return _match(
        q, site.outputs[0], 1 if scale is None else scale.elements,
        scale_dtype="fp32" if scale is None else scale.dtype, zero_dtype="" if zero is None else zero.dtype,
    )  # fmt: skip


def _from_onnx(site: OnnxSite) -> Match:
    """Match DequantizeLinear."""
    q, scale, zero = site.tensor(0), site.tensor(1), site.optional(2)
    zero_dtype = "" if zero is None else zero.dtype
    return _match(q, site.outputs[0], scale.elements, scale_dtype=scale.dtype, zero_dtype=zero_dtype)


_CLAIMED = (
    "aten.dequantize.self", "aten.dequantize.tensor",
    *(f"quantized_decomposed.dequantize_per_tensor.{end}" for end in ("default", "tensor", "tensor2")),
    *(f"quantized_decomposed.dequantize_per_{end}.default" for end in ("channel", "token", "channel_group")),
)  # fmt: skip

OPERATOR = Operator(
    forward=dequantise,
    family="pointwise",
    tolerance=Tolerance(kind="pointwise", positive=("scale",)),
    inputs=_inputs,
    reference=_reference,
    torch_call=_torch_call,
    same={"block_rows": "rows", "block_columns": "columns"},
    aten=dict.fromkeys(_CLAIMED, _from_aten),
    onnx=dict.fromkeys(("DequantizeLinear", "com.microsoft.DequantizeLinear"), _from_onnx),
)
