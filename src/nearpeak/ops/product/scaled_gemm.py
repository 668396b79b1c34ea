"""Matrix product of quantised factors with scales: fp8 and fp4 per tensor, row or block, int8, weight-only."""

from math import prod
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError
from nearpeak.ops.shared.arithmetic import contraction
from nearpeak.ops.shared.definition.array_arithmetic import maximum, unless_empty
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.scaled_factors import (
    Factors,
    factors_of,
    formats_of,
    recipe_of,
    scales_needed,
    unpacked,
    unscaled,
)
from nearpeak.ops.shared.torch_names import torch_dtype


@free_when_empty
def scaled_gemm(
    m: int, n: int, k: int, dtype: DType, b_dtype: DType | None = None, out_dtype: DType | None = None,
    a_scales: int = 1, b_scales: int = 1, b_zeros: int = 0, tensor_scales: int = 0, scale_dtype: str = "fp32",
    zero_dtype: str = "", bias: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of Y[m,n] = (scale A)[m,k] (scale (B - zero))[k,n] (+ bias[n]).

    Counts: 2 * m * n * k FLOP in the wider of the two formats; the bias adds one vector FLOP per output element.
    Scaling is not counted, as it may be folded into either operand or, for blocks, into the matrix unit. Layouts that
    swizzle or pad the scales change nothing that must be read.

    Args:
        dtype: format of A, or a scheme that says everything about scales: fp8_tensor, fp8_row, fp8_block (1 x 128
            and 128 x 128), fp8_block_1x128, mxfp8, mxfp4, nvfp4, int8_tensor, int8_row, int8_weight_only,
            int4_weight_only (groups of 128), int4_weight_only_64, int4_weight_only_32, mxfp4_weight_only.
        b_dtype: format of B where it differs, as for quantised weights.
        out_dtype: format of Y and bias; bf16 for schemes.
        a_scales: scale factors of A: 0 none, 1 per tensor, m per row, m * k / block per block.
        b_scales: likewise of B, n per column.
        b_zeros: zero points of B.
        tensor_scales: fp32 scales of whole tensors in addition to those of blocks, as nvfp4 has.
        scale_dtype: fp32, bf16, fp8_e8m0 (mxfp8), fp8_e4m3 (nvfp4).
        zero_dtype: format of the zero points; that of the scales unless given.

    Source: Micikevicius et al. 2022, arXiv:2209.05433, section 3; Rouhani et al. 2023, arXiv:2310.10537, section 4.

    >>> fp8, bf16 = DType(name="fp8_e4m3", bits_count=8), DType(name="bf16", bits_count=16)
    >>> scaled_gemm(16, 32, 64, fp8, out_dtype=bf16).read_bytes
    3080
    >>> scaled_gemm(16, 32, 64, dtype_of("mxfp8")).read_bytes - 3072
    96
    """
    a, b, out = formats_of(dtype, b_dtype, out_dtype)
    stated = _stated(a_scales, b_scales, b_zeros, tensor_scales, scale_dtype, zero_dtype)
    factors = factors_of(dtype, m, n, k, stated, stated is not _DEFAULT)
    return Work(
        flop=contraction(_wider(a, b), m * n * k, m * n if bias else None),
        read_bytes=a.bytes(m * k) + b.bytes(k * n) + factors.bytes + (out.bytes(n) if bias else 0),
        write_bytes=out.bytes(m * n),
    )


@free_when_empty
def _backward(
    m: int, n: int, k: int, dtype: DType, b_dtype: DType | None = None, out_dtype: DType | None = None,
    a_scales: int = 1, b_scales: int = 1, b_zeros: int = 0, tensor_scales: int = 0, scale_dtype: str = "fp32",
    zero_dtype: str = "", bias: bool = False, grad_a: bool = True, grad_b: bool = True,
) -> Work:  # fmt: skip
    """Return the least work of the gradients of A, B and bias, straight through the rounding.

    Counts: 2 * m * n * k FLOP per factor's gradient, in the wider of the factors' formats, as the result's gradient
    may be quantised like them; one vector FLOP per element that the bias's gradient sums. The other factor, the
    result's gradient and all scales are read once; gradients are written in the result's format.

    Args:
        grad_b: false for weights that stay as they are, as adapters leave them.
    """
    a, b, out = formats_of(dtype, b_dtype, out_dtype)
    stated = _stated(a_scales, b_scales, b_zeros, tensor_scales, scale_dtype, zero_dtype)
    factors = factors_of(dtype, m, n, k, stated, stated is not _DEFAULT)
    read = out.bytes(m * n) + (b.bytes(k * n) if grad_a else 0) + (a.bytes(m * k) if grad_b else 0)
    written = (out.bytes(m * k) if grad_a else 0) + (out.bytes(k * n) if grad_b else 0)
    sums = n * maximum(m - 1, 0) if bias else None
    any_product = grad_a or grad_b
    return Work(
        flop=contraction(_wider(a, b), (grad_a + grad_b) * m * n * k, sums),
        read_bytes=unless_empty(m * n, read + (unless_empty(k, factors.bytes) if any_product else 0)),
        write_bytes=written + (out.bytes(n) if bias else 0),
    )


def _wider(a: DType, b: DType) -> DType:
    return a if a.bits_count >= b.bits_count else b


_DEFAULT = Factors(a_count=1, b_count=1, zero_count=0, tensor_count=0, dtype="fp32", zero_dtype="")


def _stated(a: int, b: int, zeros: int, tensors: int, dtype: str, zero_dtype: str) -> Factors:
    """Return what the case says of its factors; columns that are the defaults throughout become those."""
    counts = ((a, 1), (b, 1), (zeros, 0), (tensors, 0))
    if (dtype, zero_dtype) == ("fp32", "") and not any(np.any(count != default) for count, default in counts):
        return _DEFAULT
    return Factors(a_count=a, b_count=b, zero_count=zeros, tensor_count=tensors, dtype=dtype, zero_dtype=zero_dtype)


def _inputs(m: int, n: int, k: int, dtype: str, **arguments: Any) -> dict[str, Tensor]:
    formats = formats_of(*(dtype_of(name) for name in (dtype, arguments["b_dtype"], arguments["out_dtype"])))
    names = ("a_scales", "b_scales", "b_zeros", "tensor_scales", "scale_dtype", "zero_dtype")
    fields = ("a_count", "b_count", "zero_count", "tensor_count", "dtype", "zero_dtype")
    stated = Factors(**dict(zip(fields, (arguments[name] for name in names), strict=True)))
    factors = factors_of(dtype_of(dtype), m, n, k, stated, False)
    tensors = {
        "a": Tensor(shape=(m, k), dtype=formats[0].name),
        "b": Tensor(shape=(k, n), dtype=formats[1].name),
        "a_scale": Tensor(shape=(factors.a_count,), dtype=factors.dtype),
        "b_scale": Tensor(shape=(factors.b_count,), dtype=factors.dtype),
        "b_zero": Tensor(shape=(factors.zero_count,), dtype=factors.zero_dtype or factors.dtype),
        "tensor_scale": Tensor(shape=(factors.tensor_count,), dtype="fp32"),
    }
    tensors = {name: tensor for name, tensor in tensors.items() if name in ("a", "b") or tensor.elements}
    return tensors | ({"bias": Tensor(shape=(n,), dtype=formats[2].name)} if arguments["bias"] else {})


def _product(arrays: dict[str, Any], dtype: str) -> Any:
    """Return the product of the operands with zero points and scales applied, of NumPy arrays or tensors."""
    a, b = unscaled(arrays, dtype)
    y = a @ b.T
    y = y * arrays["tensor_scale"].prod() if "tensor_scale" in arrays else y
    return y + arrays["bias"] if "bias" in arrays else y


def _backward_reference(arrays: dict[str, Any], dtype: str, grad_a: bool, grad_b: bool, **_: Any) -> dict[str, Any]:
    a, b = unscaled(arrays, dtype)
    grad = arrays["grad_y"] * (arrays["tensor_scale"].prod() if "tensor_scale" in arrays else 1)
    ones = {"a": np.ones(a.shape), "b": np.ones(b.T.shape)}
    of_a, of_b = unscaled({**arrays, **ones, "b_zero": np.zeros(1)}, dtype)
    gradients = {"grad_a": grad @ b * of_a} if grad_a and arrays["a"].dtype == float else {}
    gradients |= {"grad_b": (grad.T @ a * of_b).T} if grad_b and arrays["b"].dtype == float else {}
    return gradients | ({"grad_bias": arrays["grad_y"].sum(0)} if "bias" in arrays else {})


def _torch_call(tensors: dict[str, Any], m: int, n: int, dtype: str, **arguments: Any) -> Any:
    import torch

    out_dtype = torch_dtype(torch, arguments["out_dtype"])
    a, b, bias = tensors["a"], tensors["b"], tensors.get("bias")
    scales: list[Any] = [tensors.get(name) for name in ("a_scale", "b_scale")]
    counts = tuple(0 if scale is None else len(scale) for scale in scales)
    plain = counts in ((1, 1), (m, n)) and not {"b_zero", "tensor_scale"} & set(tensors)
    if plain and a.dtype == b.dtype == torch.float8_e4m3fn and _scaled_product_runs(torch, a, b, counts, out_dtype):
        columns = b.T.contiguous().T  # the only layout that the call takes
        rows = [scales[0].reshape(-1, 1), scales[1].reshape(1, -1)]
        if not a.is_cuda and out_dtype.itemsize == 1:
            # With one scale each, oneDNN on processors with AMX rounds to fp8 twice and makes NaN of what is beyond it.
            rows = [rows[0].expand(m, 1).contiguous(), rows[1].expand(1, n).contiguous()]
        return {"y": torch._scaled_mm(a, columns, *rows, bias=bias, out_dtype=out_dtype)}
    if plain and a.dtype == b.dtype == torch.int8 and bias is None and not a.is_cuda:
        whole = torch._int_mm(a, b).float()
        return {"y": (whole * scales[0].reshape(-1, 1) * scales[1].reshape(1, -1)).to(out_dtype)}
    if (
        counts == (0, n)
        and (a.dtype, b.dtype) == (torch.bfloat16, torch.int8)
        and "b_zero" not in tensors
        and not a.is_cuda
        and a.shape[1] % _PACKED_DEPTH == 0
    ):
        return {"y": torch._weight_int8pack_mm(a, b.T.contiguous(), scales[1])}
    wide = torch.float64 if out_dtype == torch.float64 else torch.float32
    return {"y": _product({name: tensor.to(wide) for name, tensor in tensors.items()}, dtype).to(out_dtype)}


def _from_aten(site: AtenSite) -> Match:
    """Match scaled products; scales come as one tensor each, or as lists with a recipe for each."""
    a, b, out = unpacked(site.args["self"], 1), unpacked(site.args["mat2"], 0), site.outputs[0]
    extents = {"a": (a.shape[0], a.shape[1]), "b": (b.shape[1], a.shape[1])}
    counts, tensor_scales = {"a": 0, "b": 0}, 0
    touched: dict[str, int] = {}
    formats: list[str] = []
    for side, (rows, columns) in extents.items():
        for index, (name, scale, recipe) in enumerate(_scales(site, side, rows)):
            needed = scales_needed(scale, recipe, rows, columns)
            touched |= {name: dtype_of(scale.dtype).bytes(needed)} if needed < scale.distinct else {}
            formats += [scale.dtype] if index == 0 else []
            if index:
                tensor_scales += needed
            else:
                counts[side] = needed
    arguments: dict[str, Value] = {
        "m": a.shape[0], "n": b.shape[1], "k": a.shape[1], "dtype": a.dtype, "b_dtype": b.dtype,
        "out_dtype": out.dtype, "a_scales": counts["a"], "b_scales": counts["b"], "tensor_scales": tensor_scales,
        "scale_dtype": formats[0], "bias": site.args.get("bias") is not None,
    }  # fmt: skip
    return Match(arguments=arguments, touched_bytes=touched)


def _scales(site: AtenSite, side: str, rows: int) -> list[tuple[str, Tensor, int | None]]:
    """Return the scale tensors of one operand by argument name, each with its recipe."""
    scales = site.args[f"scale_{side}"]
    if not isinstance(scales, list):
        return [(f"scale_{side}", scales, recipe_of(scales, rows))]
    recipes = site.args.get(f"recipe_{side}") or [recipe_of(scale, rows) for scale in scales]
    return [
        (f"scale_{side}[{i}]", scale, recipe) for i, (scale, recipe) in enumerate(zip(scales, recipes, strict=True))
    ]


def _weight_only(site: AtenSite) -> Match:
    """Match products with int8 weights and with packed int4 weights, whose scales may share a tensor with zeros."""
    a, out, args = site.args["self"], site.outputs[0], site.args
    if "qGroupSize" not in args:
        return _weights(a, out, "int8", args["scales"].distinct, args["scales"].dtype)
    packed = args.get("qScaleAndZeros")
    if packed is not None:
        return _weights(a, out, "int4", packed.distinct // 2, packed.dtype, b_zeros=packed.distinct // 2)
    scale, zero = args["qScale"], args["qZeros"]
    return _weights(a, out, "int4", scale.distinct, scale.dtype, b_zeros=zero.distinct, zero_dtype=zero.dtype)


def _weights(a: Tensor, out: Tensor, b_dtype: str, scales: int, scale_dtype: str, **more: Value) -> Match:
    arguments: dict[str, Value] = {
        "m": prod(a.shape[:-1]), "n": out.shape[-1], "k": a.shape[-1], "dtype": a.dtype, "out_dtype": out.dtype,
        "b_dtype": b_dtype, "a_scales": 0, "b_scales": scales, "scale_dtype": scale_dtype,
    }  # fmt: skip
    return Match(arguments=arguments | more)


def _mixed(site: AtenSite) -> Match:
    """Match products of activations with int8 or packed int4 weights, scaled per output column."""
    a, weight, scale = site.args["input"], site.args["weight"], site.args["scale"]
    bits = "int8" if weight.dtype == "int8" else "int4"
    return _weights(a, site.outputs[0], bits, scale.distinct, scale.dtype, bias=site.args.get("bias") is not None)


def _dynamic(site: AtenSite) -> Match:
    """Match products whose int4 weights, scales and bias are packed into one tensor; A becomes int8 on the way."""
    a, n, k = site.args["inp"], site.args["out_features"], site.args["in_features"]
    groups = n * max(1, k // site.args["block_size"])
    match = _weights(a, site.outputs[0], "int4", groups, "fp32" if site.args["block_size"] == k else "bf16")
    packed = dtype_of("int4").bytes(n * k)
    return Match(arguments={**match.arguments, "dtype": "int8"}, touched_bytes={"packed_weights": packed})


def _from_onnx(site: OnnxSite) -> Match:
    """Match MatMulNBits, the weight-only product of ONNX Runtime."""
    a, scales, out = site.tensor(0), site.tensor(2), site.outputs[0]
    bits = site.attributes.get("bits", 4)
    if bits not in (4, 8):
        raise NotModelledError(f"scaled_gemm: no format of {bits} bits")
    zero = site.optional(3)
    match = _weights(a, out, f"int{bits}", scales.distinct, scales.dtype)
    arguments = {**match.arguments, "n": site.attributes["N"], "k": site.attributes["K"]}
    if zero is not None:  # bytes hold as many packed numbers as fit; others are stored like the scales
        packed = f"uint{bits}" if zero.dtype == "uint8" else zero.dtype
        arguments |= {"b_zeros": scales.distinct, "zero_dtype": packed}
    return Match(arguments=arguments)


_PACKED_DEPTH = 16
"""What the depth of PyTorch's product of packed int8 weights must be a multiple of: with others it reads beyond its
rows on CPUs, and answers NaN or ends the process (PyTorch 2.13, seen on x86-64 with k of 2, 8, 24 and 40)."""


def _scaled_product_runs(torch: Any, a: Any, b: Any, counts: tuple[int, ...], out_dtype: Any) -> bool:
    """Return whether PyTorch's scaled product takes these factors where they lie.

    On GPUs it wants compute capability 8.9, extents of whole multiples of 16, and for scales by rows 9.0 and results in
    bf16 (PyTorch 2.13, aten/src/ATen/native/cuda/Blas.cpp); elsewhere the product is composed.
    """
    if not a.is_cuda or torch.version.hip:
        return True
    by_rows, capability = counts != (1, 1), torch.cuda.get_device_capability(a.device)
    aligned = all(extent % 16 == 0 for extent in b.shape)
    return aligned and capability >= ((9, 0) if by_rows else (8, 9)) and (not by_rows or out_dtype == torch.bfloat16)


OPERATOR = Operator(
    forward=scaled_gemm,
    family="product",
    backward=_backward,
    tolerance=Tolerance(kind="contraction", reduction="k", positive=("a_scale", "b_scale"), alignment_bytes=64),
    inputs=_inputs,
    reference=lambda arrays, dtype, **_: {"y": _product(arrays, dtype)},
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    schemes=True,
    aten={
        **dict.fromkeys(("aten._scaled_mm.default", "aten._scaled_mm_v2.default"), _from_aten),
        **{
            f"aten._weight_{name}.default": _weight_only
            for name in ("int4pack_mm", "int4pack_mm_for_cpu", "int4pack_mm_with_scales_and_zeros", "int8pack_mm")
        },
        "aten._dyn_quant_matmul_4bit.default": _dynamic,
        "aten._mixed_dtypes_linear.default": _mixed,
    },
    onnx={"com.microsoft.MatMulNBits": _from_onnx},
)
