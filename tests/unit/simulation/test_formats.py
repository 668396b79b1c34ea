"""Formats against ml_dtypes, code by code; accumulators against exact sums and their published behaviour."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearpeak.errors import SpecError
from nearpeak.ops.shared.number_formats import E4M3, FORMATS, FloatFormat
from nearpeak.simulation.emulation.accumulator import FP32, HOPPER_FP8, Accumulator, multiply

ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes comes with JAX and ONNX")
PEERS = {
    "bf16": ml_dtypes.bfloat16, "fp16": np.float16, "fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2, "fp8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "fp8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz, "fp8_e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
    "fp8_e3m4": ml_dtypes.float8_e3m4, "fp8_e8m0": ml_dtypes.float8_e8m0fnu, "fp6_e2m3": ml_dtypes.float6_e2m3fn,
    "fp6_e3m2": ml_dtypes.float6_e3m2fn, "fp4_e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip


def decoded(name):
    """Return all codes of a format with the numbers that ml_dtypes reads them as."""
    form, peer = FORMATS[name], PEERS[name]
    codes = np.arange(2**form.bits_count, dtype=np.uint16 if np.dtype(peer).itemsize == 2 else np.uint8)
    with np.errstate(invalid="ignore"):
        return codes, codes.view(peer).astype(np.float64)


@pytest.mark.parametrize("name", PEERS)
def test_every_code_is_read_as_ml_dtypes_reads_it(name):
    codes, wanted = decoded(name)
    found = FORMATS[name].decode(codes)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found[wanted == 0]), np.signbit(wanted[wanted == 0]))


@pytest.mark.parametrize("name", PEERS)
def test_every_number_is_written_as_its_code(name):
    codes, numbers = decoded(name)
    known = ~np.isnan(numbers)
    np.testing.assert_array_equal(FORMATS[name].encode(numbers[known]), codes[known])


@pytest.mark.parametrize("name", PEERS)
def test_numbers_between_are_rounded_as_ml_dtypes_rounds_them(name):
    finite = np.sort(decoded(name)[1][np.isfinite(decoded(name)[1])])
    middle = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
    rng = np.random.default_rng(3)
    draws = rng.standard_normal(5000) * 10.0 ** rng.integers(-8, 6, 5000)
    x = np.concatenate([middle, np.nextafter(middle, np.float32(9e9)), np.nextafter(middle, np.float32(-9e9)),
                        draws, [0.0, np.inf, -np.inf, np.nan]]).astype(np.float32)  # fmt: skip
    if name == "fp8_e8m0":  # ml_dtypes rounds subnormal float32 up from just below the middle
        x = x[~((np.abs(x) > 0) & (np.abs(x) < np.finfo(np.float32).tiny))]
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = x.astype(PEERS[name]).astype(np.float64)
    np.testing.assert_array_equal(FORMATS[name].rounded(x.astype(np.float64)), wanted)


def test_stochastic_rounding_keeps_the_mean():
    found = E4M3.rounded(np.full(200_000, 1.03), "stochastic", seed=5)
    assert set(np.unique(found)) == {1.0, 1.125}
    assert found.mean() == pytest.approx(1.03, abs=5e-4)


@given(st.integers(2, 8), st.integers(1, 10), st.floats(-1e4, 1e4))
def test_rounding_to_any_format_is_final_and_monotone(exponent, fraction, x):
    form = FloatFormat(name="own", exponent_bits_count=exponent, fraction_bits_count=fraction)
    once = form.rounded(x, saturates=True)
    assert form.rounded(once) == once
    assert form.rounded(np.nextafter(x, np.inf), saturates=True) >= once


@pytest.mark.parametrize("wrong", [{"exponent_bits_count": 0}, {"fraction_bits_count": 30}, {"nan": "some"}])
def test_impossible_formats_are_refused(wrong):
    with pytest.raises(SpecError, match="own"):
        FloatFormat(**{"name": "own", "exponent_bits_count": 5, "fraction_bits_count": 2} | wrong)


@given(st.integers(0, 2**32 - 1))
def test_wide_accumulators_add_small_integers_exactly(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-9, 10, (3, 40)).astype(float), rng.integers(-9, 10, (40, 2)).astype(float)
    for accumulator in (FP32, Accumulator(group_count=8), Accumulator(promotion_count=16)):
        np.testing.assert_array_equal(multiply(a, b, accumulator), a @ b)


def test_a_bf16_accumulator_stops_at_256():
    ones = np.ones((1, 1000))
    assert multiply(ones, ones.T, Accumulator(significant_bits_count=8)).item() == 256.0


def test_fourteen_bits_lose_percents_over_4096_products_and_promotion_saves_them():
    rng = np.random.default_rng(1)
    a, b = E4M3.rounded(rng.random((24, 4096))), E4M3.rounded(rng.random((4096, 24)))
    exact = a @ b
    kept = Accumulator(significant_bits_count=14, group_count=32, promotion_count=128, rounding="toward_zero")
    lost, saved = (np.abs(multiply(a, b, one) / exact - 1).max() for one in (HOPPER_FP8, kept))
    assert 0.01 < lost < 0.1
    assert saved < 0.001


def test_what_does_not_fit_is_refused():
    with pytest.raises(SpecError, match="do not fit"):
        multiply(np.ones((2, 3)), np.ones((2, 3)))
    with pytest.raises(SpecError, match="60 bits"):
        Accumulator(significant_bits_count=60)
