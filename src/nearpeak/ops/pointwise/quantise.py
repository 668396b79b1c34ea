"""Quantisation to narrow formats with current, delayed or static scales, per tensor, row, channel or block."""

from math import prod
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DTYPES, DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.array_arithmetic import ceil_div, maximum, where
from nearpeak.ops.shared.definition.axis_checks import required_at_most, required_one_of, required_positive
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.implementation_scales import as_of_own_scales
from nearpeak.ops.shared.narrow_arithmetic import blocks_of, narrowed, narrowed_by_torch, scale_of, scale_of_in_torch

_FP32 = DTYPES["fp32"]
SCALINGS = ("current", "delayed", "given")


@free_when_empty
def quantise(
    rows: int, columns: int, dtype: DType, out_dtype: DType = DTYPES["fp8_e4m3"], block_rows: int | None = None,
    block_columns: int | None = None, history: int = 0, scaling: str = "current", scale_dtype: str = "fp32",
    zero_dtype: str = "", tensor_scale: bool = False, transposed: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of q[rows,columns] = cast(x * scale), one scale per block.

    Counts: a product per element, one more FLOP for a zero point; conversion saturates and rounds for free. Finding
    scales: n - 1 comparisons for n elements of a block (about 3n/2 with zero points, which need both extremes) and a
    division. x is read once: a floor for current scaling, reached where x fits on chip between its two passes.

    Args:
        block_rows: rows that share a scale; all unless given; likewise block_columns. Rows: block_rows=1. mxfp8:
            block_rows=1 block_columns=32 scale_dtype=fp8_e8m0.
        history: earlier amax values per scale that delayed scaling takes the largest of.
        scaling: current (amax of x itself), delayed (the scale is read; amax, history and the next scale are kept) or
            given (static).
        zero_dtype: format of zero points; empty without.
        tensor_scale: an fp32 scale of the whole tensor in addition to those of blocks (nvfp4).
        transposed: a second copy, transposed, is written, with its own scales unless blocks are square.

    Source: Micikevicius et al. 2022, arXiv:2209.05433, section 3; Rouhani et al. 2023, arXiv:2310.10537, section 4.

    >>> work = quantise(4, 64, DTYPES["bf16"], block_rows=1, block_columns=32, scale_dtype="fp8_e8m0")
    >>> work.read_bytes, work.write_bytes
    (512, 264)
    """
    high, wide = rows if block_rows is None else block_rows, columns if block_columns is None else block_columns
    _check(rows, columns, high, wide, history, scaling)
    elements, scales = rows * columns, _scale_count(rows, columns, high, wide)
    copies = scales
    if transposed:  # a copy whose blocks are those of the matrix shares its scales
        shared = ((high == rows) & (wide == columns)) | (high == wide)
        copies = scales + where(shared, 0, _scale_count(columns, rows, high, wide))
    tensors = _FP32.bytes(1) if tensor_scale else 0
    parameter_bytes = (
        dtype_of(scale_dtype).bytes(copies) + (dtype_of(zero_dtype).bytes(copies) if zero_dtype else 0) + tensors
    )
    past = _FP32.bytes(scales) if scaling == "delayed" else 0
    read_parameters = parameter_bytes if scaling != "current" else 0
    both = elements + elements // 2 - 2 * scales if zero_dtype else elements - scales
    extremes = 0 if scaling == "given" else maximum(both, 0)
    comparisons = extremes + (maximum(scales - 1, 0) if tensor_scale and scaling == "current" else 0)
    return Work(
        flop={unit(dtype): elements * (2 if zero_dtype else 1) + comparisons + history * scales},
        special_count=0 * scales if scaling == "given" else scales + (1 if tensor_scale else 0),
        read_bytes=dtype.bytes(elements) + read_parameters + past * history,
        write_bytes=out_dtype.bytes(elements) * (2 if transposed else 1)
        + (0 if scaling == "given" else parameter_bytes)
        + past,
    )


def _check(rows: int, columns: int, high: int, wide: int, history: int, scaling: str) -> None:
    required_one_of("quantise", SCALINGS, scaling=scaling)
    if np.any(history) and scaling != "delayed":
        raise SpecError(f"quantise: history={history} needs scaling=delayed")
    required_at_most("quantise", {"rows": rows}, block_rows=high)
    required_at_most("quantise", {"columns": columns}, block_columns=wide)
    required_positive("quantise", block_rows=where(rows == 0, 1, high), block_columns=where(columns == 0, 1, wide))


def _scale_count(rows: int, columns: int, high: int, wide: int) -> int:
    """Return the blocks of a matrix; those at the edges may be cut."""
    return ceil_div(rows, maximum(high, 1)) * ceil_div(columns, maximum(wide, 1))


def _inputs(rows: int, columns: int, dtype: str, scaling: str, **arguments: Any) -> dict[str, Tensor]:
    tensors = {"x": Tensor(shape=(rows, columns), dtype=dtype)}
    if scaling == "current":
        return tensors
    if arguments["transposed"] or arguments["tensor_scale"]:
        raise NotModelledError("quantise: no reference for given scales of a transposed copy or of two levels")
    scales = _scale_count(rows, columns, arguments["block_rows"], arguments["block_columns"])
    tensors["scale"] = Tensor(shape=(scales,), dtype=arguments["scale_dtype"])
    if arguments["zero_dtype"]:
        tensors["zero"] = Tensor(shape=(scales,), dtype=arguments["zero_dtype"])
    if scaling == "delayed":
        tensors["history"] = Tensor(shape=(arguments["history"], scales), dtype="fp32")
    return tensors


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch

    return _outputs(tensors, torch, arguments)


def _outputs(tensors: dict[str, Any], library: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return all results, in NumPy or PyTorch; arithmetic is in fp32, as the formats' own rounding is the meaning."""
    x, scaling = tensors["x"], arguments["scaling"]
    outputs = _one(x, tensors, library, arguments)
    if not arguments["transposed"]:
        return outputs
    high, wide, rows, columns = (arguments[name] for name in ("block_rows", "block_columns", "rows", "columns"))
    if scaling != "current" or high == wide or (high, wide) == (rows, columns):
        swapped = {**arguments, "rows": columns, "columns": rows, "block_rows": wide, "block_columns": high}
        return outputs | {"q_transposed": _one(x.T, tensors, library, swapped)["q"]}
    swapped = {**arguments, "rows": columns, "columns": rows}
    copy = _one(x.T, tensors, library, swapped)
    return outputs | {f"{name}_transposed": copy[name] for name in ("q", "scale")}


def _one(x: Any, tensors: dict[str, Any], library: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return one quantised copy with its scales and zero points."""
    to, scale_dtype, zero_dtype = (arguments[name] for name in ("out_dtype", "scale_dtype", "zero_dtype"))
    blocks = (max(arguments["block_rows"], 1), max(arguments["block_columns"], 1))
    numpy = library is np
    narrow, scaled = (narrowed, scale_of) if numpy else (narrowed_by_torch, scale_of_in_torch)
    x = x.astype(np.float32) if numpy else x.float()
    low, top = blocks_of(x, *blocks, library)
    amax = library.maximum(-low, top)
    if arguments["scaling"] == "current":
        scale, zero, rest = scaled(amax, low, top, to, scale_dtype, zero_dtype, two_levels=arguments["tensor_scale"])
        return {"q": narrow(x, scale, zero, blocks, to, rest.get("tensor_scale")), "scale": scale.reshape(-1), **rest}
    scale, zero = (None if t is None else t.reshape(amax.shape) for t in (tensors["scale"], tensors.get("zero")))
    q = narrow(x, scale, zero, blocks, to, None)
    if arguments["scaling"] == "given":
        return {"q": q}
    history = tensors["history"]
    newest = history.max(0) if numpy else history.amax(0)
    newest = library.maximum(newest, amax.reshape(-1))
    after, _, _ = scaled(newest.reshape(amax.shape), low, top, to, scale_dtype, "", two_levels=False)
    return {"q": q, "scale": after.reshape(-1), "amax": amax.reshape(-1)}


def _match(x: Tensor, out: Tensor, channels: int, **more: Value) -> Match:
    """Return the case of one scale per channel; where the channels lie does not change the work."""
    channels = max(channels, 1)
    arguments: dict[str, Value] = {
        "rows": channels, "columns": x.elements // channels, "block_rows": min(1, channels), "dtype": x.dtype,
        "out_dtype": out.dtype, "scaling": "given",
    }  # fmt: skip
    return Match(arguments=arguments | more)


def parameters_of(site: AtenSite) -> tuple[Tensor | None, Tensor | None]:
    """Return the scales and zero points that a call reads; numbers travel with the launch."""
    names = (("scale", "scales"), ("zero_point", "zero_points"))
    parameters = [next((site.args[name] for name in pair if name in site.args), None) for pair in names]
    scale, zero = (value if isinstance(value, Tensor) else None for value in parameters)
    return scale, zero


def _from_aten(site: AtenSite) -> Match:
    """Match quantisation with given scales."""
    x = site.args["self"] if "self" in site.args else site.args["input"]
    scale, zero = parameters_of(site)
    return _match(
        x, site.outputs[0], 1 if scale is None else scale.elements,
        scale_dtype="fp32" if scale is None else scale.dtype, zero_dtype=zero.dtype if zero is not None else "",
    )  # fmt: skip


def _dynamic(site: AtenSite) -> Match:
    """Match quantisation per tensor whose scale and zero point are found on the way."""
    return _match(site.args["self"], site.outputs[0], 1, scaling="current", zero_dtype="int64")


def _chosen(site: AtenSite) -> Match:
    """Match the choice of scales and zero points: both extremes of each row."""
    x, scale = site.args["input"], site.outputs[0]
    rows = max(scale.elements, 1)
    arguments: dict[str, Value] = {"outputs": rows, "reduced": x.elements // rows, "dtype": x.dtype}
    return Match(op="reduce", arguments=arguments | {"function": "min_max", "out_dtype": scale.dtype})


def _from_onnx(site: OnnxSite) -> Match:
    """Match QuantizeLinear and DynamicQuantizeLinear."""
    x = site.tensor(0)
    if site.name == "DynamicQuantizeLinear":
        return _match(x, site.outputs[0], 1, scaling="current", zero_dtype="uint8")
    scale, zero = site.tensor(1), site.optional(2)
    zero_dtype = "" if zero is None else zero.dtype
    return _match(x, site.outputs[0], prod(scale.shape), scale_dtype=scale.dtype, zero_dtype=zero_dtype)


_GIVEN = (
    "aten.quantize_per_tensor.default", "aten.quantize_per_tensor.tensor_qparams", "aten.quantize_per_channel.default",
    *(f"quantized_decomposed.quantize_per_tensor.{end}" for end in ("default", "tensor", "tensor2")),
    *(f"quantized_decomposed.quantize_per_{end}.default" for end in ("channel", "token", "channel_group")),
)  # fmt: skip
_CHOICES = (
    "choose_qparams.tensor", "choose_qparams_symmetric.tensor", "choose_qparams_per_token.default",
    "choose_qparams_per_token_asymmetric.default", "_choose_qparams_per_token_asymmetric_impl.default",
)  # fmt: skip

OPERATOR = Operator(
    forward=quantise,
    family="pointwise",
    tolerance=Tolerance(
        kind="exact", below={"zero": "9"}, positive=("scale", "history"), rounds=("small_first:delayed",)
    ),
    inputs=_inputs,
    reference=lambda arrays, **arguments: _outputs(arrays, np, arguments),
    torch_call=_torch_call,
    as_right=as_of_own_scales,
    same={"block_rows": "rows", "block_columns": "columns"},
    aten={
        **dict.fromkeys(_GIVEN, _from_aten),
        "aten.quantize_per_tensor_dynamic.default": _dynamic,
        **{f"quantized_decomposed.{name}": _chosen for name in _CHOICES},
    },
    onnx=dict.fromkeys(("QuantizeLinear", "DynamicQuantizeLinear", "com.microsoft.QuantizeLinear"), _from_onnx),
)
