"""Matrix product of narrow formats with scales: fp8 and fp4 per tensor, row or block, int8, weights alone quantised."""

from collections.abc import Callable
from operator import mul, sub
from typing import Any

from nearpeak.core.dtype import DType, dtype_of
from nearpeak.core.tensor import Tensor
from nearpeak.core.work import Work
from nearpeak.errors import NotModelledError
from nearpeak.ops._arithmetic import contraction
from nearpeak.ops._empty import free_when_empty
from nearpeak.ops._operator import AtenSite, Match, Numerics, OnnxSite, Operator, Value


@free_when_empty
def scaled_gemm(
    m: int,
    n: int,
    k: int,
    dtype: DType,
    b_dtype: DType | None = None,
    out_dtype: DType | None = None,
    a_scales: int = 1,
    b_scales: int = 1,
    b_zeros: int = 0,
    scale_dtype: str = "fp32",
    bias: bool = False,
) -> Work:
    """Return the least work of Y[m,n] = (scale A)[m,k] (scale (B - zero))[k,n] (+ bias[n]).

    Counts: 2 * m * n * k FLOP in the wider of the two formats; the bias adds one vector FLOP per output element.
    Scaling is not counted, as it may be folded into either operand or, for blocks, into the matrix unit.

    Args:
        b_dtype: format of B where it differs, as for quantised weights.
        out_dtype: format of Y and bias.
        a_scales: scale factors of A: 0 none, 1 per tensor, m per row, m * k / block per block.
        b_scales: likewise of B, n per column.
        b_zeros: zero points of B, stored like its scales.
        scale_dtype: fp32, bf16, fp8_e8m0 (mxfp8), fp8_e4m3 (nvfp4).

    Source: Micikevicius et al. 2022, arXiv:2209.05433, section 3; Rouhani et al. 2023, arXiv:2310.10537, section 4.

    >>> fp8, bf16 = DType(name="fp8_e4m3", bits_count=8), DType(name="bf16", bits_count=16)
    >>> scaled_gemm(16, 32, 64, fp8, out_dtype=bf16).read_bytes
    3080
    """
    weight, out = b_dtype or dtype, out_dtype or dtype
    wider = dtype if dtype.bits_count >= weight.bits_count else weight
    return Work(
        flop=contraction(wider, m * n * k, m * n if bias else None),
        read_bytes=dtype.bytes(m * k)
        + weight.bytes(k * n)
        + dtype_of(scale_dtype).bytes(a_scales + b_scales + b_zeros)
        + (out.bytes(n) if bias else 0),
        write_bytes=out.bytes(m * n),
    )


def _inputs(m: int, n: int, k: int, dtype: str, b_dtype: str, **arguments: Any) -> dict[str, Tensor]:
    tensors = {"a": Tensor(shape=(m, k), dtype=dtype), "b": Tensor(shape=(k, n), dtype=b_dtype)}
    for name, count in (("a_scale", "a_scales"), ("b_scale", "b_scales"), ("b_zero", "b_zeros")):
        if arguments[count]:
            tensors[name] = Tensor(shape=(arguments[count],), dtype=arguments["scale_dtype"])
    return tensors | ({"bias": Tensor(shape=(n,), dtype=arguments["out_dtype"])} if arguments["bias"] else {})


def _blockwise(matrix: Any, factors: Any, join: Callable[[Any, Any], Any]) -> Any:
    """Return the matrix joined with its factors: one for all, or equally many per row, each for a block of columns."""
    rows, columns = matrix.shape
    if len(factors) == 1:
        return join(matrix, factors)
    blocks, rest = divmod(len(factors), rows)
    if rest or columns % blocks:
        raise NotModelledError(f"scaled_gemm: no reference for {len(factors)} factors over {rows} rows of {columns}")
    return join(matrix.reshape(rows, blocks, -1), factors.reshape(rows, blocks, 1)).reshape(rows, columns)


def _product(arrays: dict[str, Any]) -> Any:
    """Return the product of the operands with zero points and scales applied, of NumPy arrays or tensors."""
    a, b = arrays["a"], arrays["b"].T
    a = _blockwise(a, arrays["a_scale"], mul) if "a_scale" in arrays else a
    b = _blockwise(b, arrays["b_zero"], sub) if "b_zero" in arrays else b
    b = _blockwise(b, arrays["b_scale"], mul) if "b_scale" in arrays else b
    y = a @ b.T
    return y + arrays["bias"] if "bias" in arrays else y


def _reference(arrays: dict[str, Any], **_: Any) -> dict[str, Any]:
    return {"y": _product(arrays)}


def _torch_call(tensors: dict[str, Any], m: int, n: int, a_scales: int, b_scales: int, **arguments: Any) -> Any:
    import torch

    wide = torch.float64 if arguments["out_dtype"] == "fp64" else torch.float32
    out = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    out_dtype = out[arguments["out_dtype"]]
    fp8 = all(arguments[name].startswith("fp8") for name in ("dtype", "b_dtype"))
    if fp8 and (a_scales, b_scales) in ((1, 1), (m, n)):
        a, b = tensors["a"], tensors["b"].T.contiguous().T
        scales = (tensors["a_scale"].reshape(-1, 1), tensors["b_scale"].reshape(1, -1))
        return {"y": torch._scaled_mm(a, b, *scales, bias=tensors.get("bias"), out_dtype=out_dtype)}
    return {"y": _product({name: tensor.to(wide) for name, tensor in tensors.items()}).to(out_dtype)}


def _from_aten(site: AtenSite) -> Match:
    """Match scaled products; scales of blocks come as tensors of their own shape, or as lists."""
    a, b, out = site.args["self"], site.args["mat2"], site.outputs[0]
    if "fp4" in a.dtype or "fp4" in b.dtype:
        raise NotModelledError("scaled_gemm: PyTorch packs two fp4 numbers into one element; extents are not known")
    scales = [_listed(site.args[name]) for name in ("scale_a", "scale_b")]
    arguments: dict[str, Value] = {
        "m": a.shape[0], "n": b.shape[1], "k": a.shape[1], "dtype": a.dtype, "b_dtype": b.dtype,
        "out_dtype": out.dtype, "a_scales": _count(scales[0]), "b_scales": _count(scales[1]),
        "scale_dtype": scales[0][0].dtype, "bias": site.args.get("bias") is not None,
    }  # fmt: skip
    return Match(arguments=arguments)


def _listed(value: Any) -> list[Tensor]:
    return value if isinstance(value, list) else [value]


def _count(scales: list[Tensor]) -> int:
    return sum(tensor.distinct for tensor in scales)


def _weight_only(site: AtenSite) -> Match:
    """Match products with packed int4 weights, whose scales and zero points share a tensor, and with int8 weights."""
    a, out = site.args["self"], site.outputs[0]
    packed = site.args.get("qScaleAndZeros")
    factors = packed.distinct // 2 if packed is not None else site.args["scales"].distinct
    arguments: dict[str, Value] = {
        "m": a.shape[0], "n": out.shape[1], "k": a.shape[1], "dtype": a.dtype, "out_dtype": out.dtype,
        "b_dtype": "int8" if packed is None else "int4", "a_scales": 0, "b_scales": factors,
        "b_zeros": factors if packed is not None else 0,
        "scale_dtype": site.args["scales"].dtype if packed is None else packed.dtype,
    }  # fmt: skip
    return Match(arguments=arguments)


def _from_onnx(site: OnnxSite) -> Match:
    """Match MatMulNBits, the weight-only product of ONNX Runtime."""
    a, scales, out = site.inputs[0], site.inputs[2], site.outputs[0]
    assert a is not None
    assert scales is not None
    bits = site.attributes.get("bits", 4)
    if bits not in (4, 8):
        raise NotModelledError(f"scaled_gemm: no format of {bits} bits")
    zeros = len(site.inputs) > 3 and site.inputs[3] is not None
    arguments: dict[str, Value] = {
        "m": a.elements // a.shape[-1], "n": site.attributes["N"], "k": site.attributes["K"], "dtype": a.dtype,
        "out_dtype": out.dtype, "b_dtype": f"int{bits}", "a_scales": 0, "b_scales": scales.distinct,
        "b_zeros": scales.distinct if zeros else 0, "scale_dtype": scales.dtype,
    }  # fmt: skip
    return Match(arguments=arguments)


OPERATOR = Operator(
    forward=scaled_gemm,
    source="Micikevicius et al. 2022, arXiv:2209.05433, section 3; Rouhani et al. 2023, arXiv:2310.10537, section 4",
    numerics=Numerics(kind="contraction", reduction="k"),
    inputs=_inputs,
    reference=_reference,
    torch_call=_torch_call,
    aten={
        "aten._scaled_mm.default": _from_aten,
        "aten._scaled_mm_v2.default": _from_aten,
        "aten._weight_int4pack_mm.default": _weight_only,
        "aten._weight_int4pack_mm_for_cpu.default": _weight_only,
        "aten._weight_int8pack_mm.default": _weight_only,
    },
    onnx={"MatMulNBits": _from_onnx},
)
