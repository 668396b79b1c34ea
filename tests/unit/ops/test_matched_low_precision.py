"""Calls on quantised tensors, captured without memory, cost what their scheme says, scales to the byte."""

import warnings

import pytest
import torch
from torch.nn import functional
from torch.nn.functional import ScalingType, SwizzleType

from nearpeak.core.work.tensor import Tensor
from nearpeak.errors import SpecError
from nearpeak.frontends.torch.module_capture import capture_torch
from nearpeak.ops import OPS, OnnxSite, case, onnx_matchers, work_of

FP8, MX, FP4, BF16 = torch.float8_e4m3fn, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2, torch.bfloat16
ONE, ROW, BY_16, BY_32, BY_128, SQUARE = (
    [getattr(ScalingType, name)]
    for name in ("TensorWise", "RowWise", "BlockWise1x16", "BlockWise1x32", "BlockWise1x128", "BlockWise128x128")
)
SWIZZLED = [SwizzleType.SWIZZLE_32_4_4, SwizzleType.NO_SWIZZLE]


def captured(function, *shapes):
    """The calls of `function` on tensors of the given shapes and formats."""
    warnings.simplefilter("ignore")
    inputs = lambda: (tuple(torch.empty(shape, dtype=dtype) for shape, dtype in shapes), {})  # noqa: E731
    return capture_torch(lambda: function, inputs, name="call").calls


def fp32(*shape):
    return (shape, torch.float32)


def first(a, b, s, t):
    return torch._scaled_mm(a, b.t(), s, t, out_dtype=BF16)


def second(recipe_a, recipe_b, order=lambda scale: scale):
    def call(a, b, s, t):
        return functional.scaled_mm(a, b.t(), [order(s)], recipe_a, [order(t)], recipe_b, output_dtype=BF16)

    return call


def two_levels(a, b, s, t, g, h):
    recipe = [*BY_16, *ONE]
    return functional.scaled_mm(
        a, b.t(), [s, g], recipe, [t, h], recipe, swizzle_a=SWIZZLED, swizzle_b=SWIZZLED, output_dtype=BF16
    )


SIZE = {"m": 100, "n": 128, "k": 96}
WIDE = {"m": 128, "n": 512, "k": 512}
CALLS = [
    ("fp8_tensor", SIZE, first, [((100, 96), FP8), ((128, 96), FP8), fp32(), fp32()]),
    ("fp8_row", SIZE, first, [((100, 96), FP8), ((128, 96), FP8), fp32(100, 1), fp32(1, 128)]),
    # Swizzled scales fill tiles of 128 rows by 4 columns; what pads them need not be read.
    ("mxfp8", SIZE, first, [((100, 96), FP8), ((128, 96), FP8), ((128 * 4,), MX), ((128 * 4,), MX)]),
    ("fp8_row", SIZE, second(ROW, ROW), [((100, 96), FP8), ((128, 96), FP8), fp32(100, 1), fp32(1, 128)]),
    ("fp8_block", WIDE, second(BY_128, SQUARE, torch.t),
     [((128, 512), FP8), ((512, 512), FP8), fp32(4, 128), fp32(4, 4)]),
    ("nvfp4", WIDE, two_levels,
     [((128, 256), FP4), ((512, 256), FP4), ((128 * 32,), FP8), ((512 * 32,), FP8), fp32(), fp32()]),
]  # fmt: skip


@pytest.mark.parametrize(("scheme", "size", "call", "shapes"), CALLS)
def test_scaled_product_costs_what_its_scheme_says(scheme, size, call, shapes):
    (found,) = captured(call, *shapes)
    work = work_of(case("scaled_gemm", dtype=scheme, **size))
    assert work_of(found.case) == work
    assert sum(use.bytes for use in found.reads) == work.read_bytes
    assert sum(use.bytes for use in found.writes) == work.write_bytes


OFFSETS = ((4,), torch.int32)


def grouped(a, b, s, t, o):
    return torch._scaled_grouped_mm(a, b.transpose(-2, -1), s, t, offs=o, out_dtype=BF16)


def grouped_later(a, b, s, t, o):
    return functional.scaled_grouped_mm(a, b.transpose(-2, -1), [s], ROW, [t], ROW, offs=o, output_dtype=BF16)


@pytest.mark.parametrize("call", [grouped, grouped_later])
def test_grouped_scaled_products_read_one_expert_at_least(call):
    (found,) = captured(call, ((64, 32), FP8), ((4, 16, 32), FP8), fp32(64), fp32(4, 16), OFFSETS)
    assert found.case == case("grouped_gemm", m=64, n=16, k=32, groups=4, dtype="fp8_row")
    assert (
        sum(use.bytes for use in found.reads) == work_of(found.case).read_bytes == 64 * 32 + 16 * 32 + 4 * (64 + 16 + 4)
    )


def test_grouped_scaled_product_of_columns_is_split_along_the_sum():
    (found,) = captured(grouped, ((16, 64), FP8), ((32, 64), FP8), fp32(4 * 16), fp32(4 * 32), OFFSETS)
    assert found.case == case("grouped_gemm", m=16, n=32, k=64, groups=4, split="k", dtype="fp8_row")


aten = torch.ops.aten
A = ((4, 128), BF16)
WEIGHTS = [
    ("int8_weight_only", torch._weight_int8pack_mm, [A, ((64, 128), torch.int8), ((64,), BF16)]),
    ("int8_weight_only", aten._mixed_dtypes_linear, [A, ((64, 128), torch.int8), ((64,), BF16)]),
    *(
        (f"int4_weight_only{end}", lambda a, w, s, size=size: aten._weight_int4pack_mm(a, w, size, s),
         [A, ((8, 4, 32, 1), torch.int32), ((128 // size, 64, 2), BF16)])
        for end, size in (("", 128), ("_64", 64), ("_32", 32))
    ),
    ("int4_weight_only_32", lambda a, w, s: aten._weight_int4pack_mm_for_cpu(a, w, 32, s),
     [A, ((64, 64), torch.uint8), ((4, 64, 2), BF16)]),
]  # fmt: skip


@pytest.mark.parametrize(("scheme", "call", "shapes"), WEIGHTS)
def test_product_with_quantised_weights_costs_what_its_scheme_says(scheme, call, shapes):
    (found,) = captured(call, *shapes)
    work = work_of(case("scaled_gemm", m=4, n=64, k=128, dtype=scheme))
    assert work_of(found.case) == work
    assert sum(use.bytes for use in found.reads) == work.read_bytes


def test_zero_points_count_in_their_own_format():
    shapes = [A, ((64, 16), torch.int32), ((4, 64), BF16), ((4, 64), torch.int8)]
    (found,) = captured(lambda a, w, s, z: aten._weight_int4pack_mm_with_scales_and_zeros(a, w, 32, s, z), *shapes)
    assert work_of(found.case).read_bytes == 2 * 4 * 128 + 64 * 128 // 2 + 2 * 256 + 256


def test_packed_zero_points_of_onnx_weights_take_half_a_byte():
    inputs = (
        Tensor(shape=(3, 128), dtype="fp16"), Tensor(shape=(64, 4, 16), dtype="uint8"),
        Tensor(shape=(64 * 4,), dtype="fp16"), Tensor(shape=(64, 2), dtype="uint8"),
    )  # fmt: skip
    attributes = {"N": 64, "K": 128, "bits": 4, "block_size": 32}
    output = Tensor(shape=(3, 64), dtype="fp16")
    op, matcher = onnx_matchers()["com.microsoft.MatMulNBits"]
    match = matcher(OnnxSite(name="com.microsoft.MatMulNBits", inputs=inputs, outputs=(output,), attributes=attributes))
    assert work_of(OPS[op].case(**match.arguments)).read_bytes == sum(tensor.bytes for tensor in inputs)


@pytest.mark.parametrize("rows", [1, 8])
def test_decomposed_quantisation_reads_and_writes_what_its_case_says(rows):
    from torch.ao.quantization.fx import _decomposed  # noqa: F401  # defines the operators

    ops = torch.ops.quantized_decomposed

    def both(x, s, z):
        if rows == 1:
            q = ops.quantize_per_tensor.tensor(x, s, z, -128, 127, torch.int8)
            return ops.dequantize_per_tensor.tensor(q, s, z, -128, 127, torch.int8)
        q = ops.quantize_per_channel(x, s, z, 0, -128, 127, torch.int8)
        return ops.dequantize_per_channel(q, s, z, 0, -128, 127, torch.int8)

    calls = captured(both, fp32(8, 16), fp32(rows), ((rows,), torch.int64))
    assert [call.case.op for call in calls] == ["quantise", "dequantise"]
    for call in calls:
        assert work_of(call.case).read_bytes == sum(use.bytes for use in call.reads)
        assert work_of(call.case).write_bytes == sum(use.bytes for use in call.writes)


def node(kind, *inputs, outputs):
    op, matcher = onnx_matchers()[kind]
    match = matcher(OnnxSite(name=kind, inputs=inputs, outputs=outputs, attributes={}))
    return work_of(OPS[match.op or op].case(match.phase, **match.arguments))


def test_quantisation_nodes_of_onnx_count_scales_and_zero_points():
    x, q = Tensor(shape=(8, 16), dtype="fp32"), Tensor(shape=(8, 16), dtype="uint8")
    scale, zero = Tensor(shape=(8,), dtype="fp32"), Tensor(shape=(8,), dtype="uint8")
    assert node("QuantizeLinear", x, scale, zero, outputs=(q,)).read_bytes == x.bytes + scale.bytes + zero.bytes
    assert node("DequantizeLinear", q, scale, outputs=(x,)).read_bytes == q.bytes + scale.bytes
    one, byte = Tensor(shape=(), dtype="fp32"), Tensor(shape=(), dtype="uint8")
    assert node("DynamicQuantizeLinear", x, outputs=(q, one, byte)).write_bytes == q.bytes + one.bytes + byte.bytes


@pytest.mark.parametrize("name", ["uint16", "uint32", "uint64", "float8_e4m3fnuz", "float8_e5m2fnuz", "complex32"])
def test_rarer_formats_are_captured_at_their_size(name):
    dtype = getattr(torch, name)
    (found,) = captured(torch.clone, ((4, 8), dtype))
    assert [use.bytes for use in (*found.reads, *found.writes)] == [32 * dtype.itemsize] * 2


def test_a_scheme_is_refused_where_a_format_is_meant():
    with pytest.raises(SpecError, match="gemm: dtype=fp8_block is a scheme of quantised products"):
        case("gemm", m=1, n=1, k=1, dtype="fp8_block")
    with pytest.raises(SpecError, match="scaled_gemm: out_dtype=nvfp4 is a scheme; only dtype may be one"):
        case("scaled_gemm", m=1, n=1, k=1, dtype="bf16", out_dtype="nvfp4")
    with pytest.raises(SpecError, match="leave out the counts of scales"):
        work_of(case("scaled_gemm", m=1, n=1, k=1, dtype="nvfp4", a_scales=3))
