"""Formats of blocks and whole numbers: against ml_dtypes, the operator of quantisation in PyTorch, and integer code."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from nearpeak.cli import application
from nearpeak.errors import IncorrectError, NearpeakError, SpecError
from nearpeak.ops import OPS, case
from nearpeak.ops.shared.number_formats import FORMATS, INTS, IntFormat
from nearpeak.simulation.emulation.accumulator import HOPPER_FP8, Accumulator, multiply
from nearpeak.simulation.emulation.block_formats import BLOCKS, table_of
from nearpeak.simulation.emulation.emulated_case import emulated, emulation

ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes comes with JAX and ONNX")


def draws(seed, shape):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-4, 4, (shape[0], 1))).astype(np.float32)


@pytest.mark.parametrize(("name", "peer"), [
    ("int4", ml_dtypes.int4), ("uint4", ml_dtypes.uint4), ("int2", ml_dtypes.int2), ("uint2", ml_dtypes.uint2),
    ("int8", np.int8), ("uint8", np.uint8), ("int16", np.int16), ("uint16", np.uint16),
])  # fmt: skip
def test_every_code_of_whole_numbers_is_read_and_written_as_ml_dtypes_does(name, peer):
    form = INTS[name]
    codes = np.arange(2**form.bits_count, dtype=np.uint16 if form.bits_count > 8 else np.uint8)
    wanted = codes.view(peer) if form.bits_count in (8, 16) else codes.astype(np.int64).astype(peer)
    numbers = form.decode(codes)
    np.testing.assert_array_equal(numbers, wanted.astype(np.float64))
    np.testing.assert_array_equal(form.encode(numbers), codes)
    assert (numbers.min(), numbers.max()) == (form.lowest, form.largest)


@pytest.mark.parametrize(("name", "peer"), [
    ("mxfp8", ml_dtypes.float8_e4m3fn), ("mxfp8_e5m2", ml_dtypes.float8_e5m2), ("mxfp6_e2m3", ml_dtypes.float6_e2m3fn),
    ("mxfp6_e3m2", ml_dtypes.float6_e3m2fn), ("mxfp4", ml_dtypes.float4_e2m1fn),
])  # fmt: skip
def test_microscaling_follows_its_definition_element_by_element(name, peer):
    x, form = draws(3, (6, 70)), BLOCKS[name]
    found = form.quantised(x)
    top = FORMATS[form.element.name].largest
    for row in range(6):
        for block in range(3):
            part = x[row, 32 * block : 32 * block + 32]
            exponent = Fraction(float(abs(part).max())), int(np.floor(np.log2(top)))
            scale = 2.0 ** (int(np.floor(np.log2(float(exponent[0])))) - exponent[1])
            assert found.scales[row, block] == scale
            wanted = np.clip(part.astype(np.float64) / scale, -top, top).astype(peer).astype(np.float64)
            np.testing.assert_array_equal(found.elements[row, 32 * block : 32 * block + 32], wanted)
    exponents = np.log2(found.scales) + 127
    np.testing.assert_array_equal(FORMATS["fp8_e8m0"].encode(found.scales), exponents.astype(int))


@pytest.mark.parametrize(("name", "words"), [
    ("nvfp4", {
        "to": "fp4_e2m1", "block_rows": 1, "block_columns": 16, "scale_dtype": "fp8_e4m3", "tensor_scale": True,
    }),
    ("mxfp8", {"to": "fp8_e4m3", "block_rows": 1, "block_columns": 32, "scale_dtype": "fp8_e8m0"}),
    ("mxfp4", {"to": "fp4_e2m1", "block_rows": 1, "block_columns": 32, "scale_dtype": "fp8_e8m0"}),
    ("fp8_block", {"to": "fp8_e4m3", "block_rows": 1, "block_columns": 128}),
    ("int8_row", {"to": "int8", "block_rows": 1, "block_columns": 256}),
    ("fp8_tensor", {"to": "fp8_e4m3", "block_rows": 8, "block_columns": 256}),
])  # fmt: skip
def test_blocks_are_those_that_pytorch_quantises(name, words):
    torch = pytest.importorskip("torch", reason="the operator of quantisation runs in PyTorch")
    names = {"to": "out_dtype"}
    signature = OPS["quantise"].signatures["forward"]
    given_words = {
        (names.get(key, key) if key not in signature.names() else key): value for key, value in words.items()
    }
    one = case("quantise", rows=8, columns=256, dtype="fp32", **given_words)
    x = draws(5, (8, 256))
    arguments = dict(one.axes) | dict(one.dtypes) | dict(one.attributes)
    wanted = OPS["quantise"].torch_call({"x": torch.tensor(x)}, **(signature.defaults | arguments))
    found, element = BLOCKS[name].quantised(x), BLOCKS[name].element
    scale = next(value for key, value in wanted.items() if key == "scale")
    np.testing.assert_array_equal(found.scales.reshape(-1).astype(np.float32), scale.float().numpy().reshape(-1))
    codes = next(value for key, value in wanted.items() if key in ("y", "q"))
    if words["to"] == "fp4_e2m1":
        packed = element.encode(found.elements)
        np.testing.assert_array_equal(packed[:, ::2] | (packed[:, 1::2] << 4), codes.view(torch.uint8).numpy())
    else:
        np.testing.assert_array_equal(found.elements, codes.double().numpy())


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(2, 16), st.integers(2, 8))
def test_sums_of_aligned_products_are_those_of_integer_arithmetic(seed, bits, group):
    rng = np.random.default_rng(seed)
    e4m3 = FORMATS["fp8_e4m3"]
    a, b = e4m3.rounded(rng.standard_normal((2, 24))), e4m3.rounded(rng.standard_normal((24, 2)))
    kept = Accumulator(significant_bits_count=bits, group_count=group, rounding="toward_zero")
    found = multiply(a, b, kept)
    for i in range(2):
        for j in range(2):
            assert found[i, j] == float(_aligned(a[i], b[:, j], bits, group))


def _aligned(a, b, bits, group):
    """Return the sum in whole numbers: every term cut where the largest has its last bit, then the sum likewise."""
    total = Fraction(0)
    for start in range(0, len(a), group):
        terms = [
            Fraction(float(x)) * Fraction(float(y))
            for x, y in zip(a[start : start + group], b[start : start + group], strict=True)
        ]
        total = _cut([*terms, total], bits)
    return total


def _cut(terms, bits):
    largest = max(abs(term) for term in terms)
    if not largest:
        return Fraction(0)
    step = _step(largest, bits)
    whole = sum(int(term / step) for term in terms)  # int() drops what is beyond the point
    exact = whole * step
    return int(exact / _step(abs(exact), bits)) * _step(abs(exact), bits) if exact else Fraction(0)


def _step(x, bits):
    exponent = 0
    while Fraction(2) ** (exponent + 1) <= x:
        exponent += 1
    while Fraction(2) ** exponent > x:
        exponent -= 1
    return Fraction(2) ** (exponent - bits + 1)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_fake_quantisation_is_integer_arithmetic_bit_by_bit(seed, per_channel, asymmetric):
    rng = np.random.default_rng(seed)
    form = IntFormat(name="int8", bits_count=8, symmetric=not asymmetric)
    x = (rng.standard_normal((4, 40)) * 3).astype(np.float32)
    scale = rng.uniform(0.01, 0.1, (4, 1) if per_channel else (1, 1)).astype(np.float32)
    zero = rng.integers(-20, 20, scale.shape) if asymmetric else np.zeros(scale.shape, np.int64)
    y, inside = form.fake_quantised(x, scale, zero)
    for row in range(4):
        s, z = scale[row % len(scale), 0], int(zero[row % len(zero), 0])
        for column in range(40):
            place = int(np.rint(np.float32(x[row, column] * (np.float32(1) / s)))) + z
            whole = min(max(place, -128 if asymmetric else -127), 127)
            assert y[row, column] == np.float32(np.float32(whole - z) * s)
            assert inside[row, column] == (whole == place)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_a_product_of_fake_quantised_matrices_is_the_product_of_integers(seed):
    rng, form = np.random.default_rng(seed), INTS["int8"]
    a, b = rng.standard_normal((3, 50)).astype(np.float32), rng.standard_normal((50, 2)).astype(np.float32)
    s, t = np.float32(2.0**-5), rng.choice([2.0**-4, 2.0**-6], (1, 2)).astype(np.float32)
    x, y = form.fake_quantised(a, s)[0], form.fake_quantised(b, t)[0]
    whole = np.clip(np.rint(a / s), -128, 127).astype(np.int64) @ np.clip(np.rint(b / t), -128, 127).astype(np.int64)
    np.testing.assert_array_equal(multiply(x, y), whole * (s * t).astype(np.float64))


@pytest.mark.parametrize("per_channel", [False, True])
def test_fake_quantisation_and_its_gradient_are_those_of_pytorch(per_channel):
    torch = pytest.importorskip("torch", reason="PyTorch's fake quantisation is the peer")
    x = torch.tensor(draws(8, (4, 64)), requires_grad=True)
    scale, zero = torch.tensor([0.03, 0.5, 2.0, 7.0]), torch.tensor([0, 3, -5, 1], dtype=torch.int32)
    if per_channel:
        wanted = torch.fake_quantize_per_channel_affine(x, scale, zero, 0, -128, 127)
    else:
        scale, zero = scale[:1], zero[1:2]
        wanted = torch.fake_quantize_per_tensor_affine(x, scale, zero, -128, 127)
    wanted.sum().backward()
    y, inside = INTS["int8"].fake_quantised(x.detach().numpy(), scale.numpy()[:, None], zero.numpy()[:, None])
    np.testing.assert_array_equal(y, wanted.detach().numpy())
    np.testing.assert_array_equal(inside, x.grad.numpy() == 1)


EXECUTED = [
    case("gemm", m=8, n=8, k=64, dtype="bf16"), case("attention", batch=1, heads=2, q=8, kv=16, dim=16, dtype="bf16"),
    case("conv", batch=1, in_channels=4, out_channels=4, h=6, w=6, kh=3, kw=3, dtype="fp16"),
    case("grouped_gemm", m=16, n=8, k=32, groups=4, dtype="bf16", touched_groups=4),
    case("scaled_gemm", m=32, n=32, k=64, dtype="mxfp8"), case("scaled_gemm", m=32, n=32, k=64, dtype="nvfp4"),
    case("scaled_gemm", m=32, n=32, k=64, dtype="int8_row"),
    case("fake_quantise", channels=4, columns=16, dtype="fp32"),
]  # fmt: skip


@pytest.mark.parametrize("one", EXECUTED, ids=lambda one: f"{one.op} {dict(one.dtypes)['dtype']}")
def test_executed_cases_pass_the_contract_of_silicon_and_narrow_sums_fail_it(one):
    pytest.importorskip("torch", reason="validation draws its inputs with PyTorch")
    from nearpeak.validation import validate

    assert validate(one, emulation(one), seed=0).status == "PASS"
    if one.op != "fake_quantise":
        assert validate(one, emulation(one, Accumulator(significant_bits_count=6)), seed=0).status == "NUMERIC_FAIL"


def product_error(name, **how):
    one = case("gemm", m=16, n=16, k=256, dtype="bf16")
    rng = np.random.default_rng(2)
    inputs = {"a": rng.standard_normal((1, 16, 256)), "b": rng.standard_normal((1, 256, 16))}
    exact = inputs["a"] @ inputs["b"]
    return np.linalg.norm(emulated(one, factors=name, **how)(inputs)["y"] - exact) / np.linalg.norm(exact)


def test_what_a_format_costs_is_shown_before_hardware_has_it():
    errors = [product_error(name) for name in ("bf16", "mxfp8", "mxfp6_e2m3", "nvfp4", "mxfp4", "int4_weight_only_32")]
    assert errors[0] < errors[1] < errors[3] < errors[4]
    assert 0.02 < errors[1] < 0.05
    assert 0.1 < errors[4] < 0.3


def test_stochastic_sums_are_unbiased_and_repeat_with_their_seed():
    kept = Accumulator(significant_bits_count=8, rounding="stochastic")
    ones, small = np.ones((1, 200)), np.full((200, 2000), 0.37)
    found = multiply(ones, small, kept, seed=4)
    np.testing.assert_array_equal(found, multiply(ones, small, kept, seed=4))
    assert found.mean() == pytest.approx(74.0, abs=4 * found.std() / np.sqrt(found.size))
    assert np.abs(multiply(ones, small[:, :1], Accumulator(significant_bits_count=8)) - 74.0).item() > 1.0


def test_formats_of_ones_own_are_rows_of_a_file(tmp_path):
    (tmp_path / "f.toml").write_text(
        '[format.e2m2]\nexponent_bits = 2\nfraction_bits = 2\nnan = "none"\n'
        '[format.mx5]\nelement = "e2m2"\nblock = 16\nscale = "fp8_e8m0"\n'
    )
    table = table_of(tmp_path / "f.toml", ["mx5.block=8", "int3.bits=3"])
    assert (table["mx5"].block_count, table["mx5"].element.largest) == (8, 7.0)
    assert table["int3"].lowest == -4
    error = product_error("mx5", formats=table)
    assert product_error("mxfp8") < error < product_error("mxfp4")


@pytest.mark.parametrize("edit", [
    "mxfp4", "mxfp4.blok=8", "mxfp4.block=x", "own.exponent_bits=4", "mxfp4.element=nothing", "mxfp4.element=nvfp4",
    "own.bits=40", "nvfp4.block=-1",
])  # fmt: skip
def test_rows_that_cannot_be_are_refused_in_one_line(edit):
    with pytest.raises(NearpeakError) as found:
        table_of(edits=[edit])
    assert "\n" not in str(found.value)


def test_the_published_error_of_fp8_sums_falls_out_for_normal_matrices():
    """DeepSeek-V3 (arXiv:2412.19437), section 3.3.2: nearly 2 % at most for random matrices with K = 4096."""
    rng, form = np.random.default_rng(7), FORMATS["fp8_e4m3"]
    a, b = form.rounded(rng.standard_normal((128, 4096))), form.rounded(rng.standard_normal((4096, 128)))
    exact = a @ b
    error = np.abs(multiply(a, b, HOPPER_FP8) - exact).max()
    assert 0.01 < error / np.sqrt((exact**2).mean()) < 0.02
    assert 0.012 < error / np.abs(exact).mean() < 0.024
    promoted = multiply(a[:64], b[:, :64], replace(HOPPER_FP8, promotion_count=128))
    assert np.abs(promoted - exact[:64, :64]).max() / np.sqrt((exact**2).mean()) < 0.001


def run(*words):
    return CliRunner().invoke(application(), ["validate", "gemm", "m=8", "n=8", "k=256", "dtype=bf16", *words])


def test_a_format_is_tried_from_the_command_line(tmp_path):
    pytest.importorskip("torch", reason="validation draws its inputs with PyTorch")
    assert run("--emulate", "fp32").exit_code == 0
    narrow = run("--emulate", "fp32 factors=mxfp4")
    assert isinstance(narrow.exception, IncorrectError)
    assert "emulated" in str(narrow.exception)
    (tmp_path / "f.toml").write_text("[format.wide]\nexponent_bits = 8\nfraction_bits = 20\n")
    assert run("--emulate", "factors=wide", "--formats", str(tmp_path / "f.toml")).exit_code == 0
    coarse = run("--emulate", "factors=wide", "--formats", str(tmp_path / "f.toml"), "--set", "wide.fraction_bits=2")
    assert isinstance(coarse.exception, IncorrectError)


@pytest.mark.parametrize("words", [
    ("--emulate", "bits=x"), ("--emulate", "bit=3"), ("--emulate", "factors=none"), ("--set", "mxfp4.block=8"),
    ("--emulate", "rounding=up"), ("--emulate", "fp32", "--runner", "torch_cpu"), ("--emulate", "vector=mxfp4"),
    ("--emulate", "fp32", "--formats", "missing.toml"),
])  # fmt: skip
def test_bad_words_about_emulation_are_refused_in_one_line(words):
    found = run(*words)
    assert isinstance(found.exception, SpecError)
    assert "\n" not in str(found.exception)


def test_hopper_keeps_thirteen_bits_behind_the_point_and_cuts_what_is_below():
    assert (HOPPER_FP8.significant_bits_count, HOPPER_FP8.group_count, HOPPER_FP8.rounding) == (14, 32, "toward_zero")
    with pytest.raises(SpecError):
        Accumulator(significant_bits_count=1)
