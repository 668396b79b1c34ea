"""NaN, infinities and powers of two in emulated formats and accumulators."""

from fractions import Fraction

import numpy as np
import pytest

from nearpeak.simulation.emulation.accumulator import Accumulator, cut_sum, multiply
from nearpeak.simulation.emulation.block_formats import BLOCKS

SPECIAL = (np.nan, np.inf, -np.inf)


@pytest.mark.parametrize("value", SPECIAL)
@pytest.mark.parametrize("name", sorted(BLOCKS))
def test_a_block_with_a_special_value_is_nan_and_leaves_the_others_alone(name, value):
    form = BLOCKS[name]
    x = np.random.default_rng(1).standard_normal((256, 512)).astype(np.float32)
    x[0, 3] = value
    found = form.quantised(x)
    high, wide = form.row_count or 256, form.block_count or 512
    inside = np.zeros(x.shape, dtype=bool)
    inside[:high, :wide] = True
    assert np.isnan(found.values[inside]).all()
    assert np.isfinite(found.values[~inside]).all()
    assert np.isnan(found.scales[0, 0])
    assert np.isfinite(found.tensor_scale)
    assert np.isfinite(form.quantised(np.where(inside, 0, x)).values).all()
    np.testing.assert_array_equal(found.values[~inside], form.quantised(np.where(inside, 0, x)).values[~inside])


@pytest.mark.parametrize("group", [1, 2, 4])
def test_special_values_pass_through_sums_whatever_their_place(group):
    kept = Accumulator(significant_bits_count=14, group_count=group, rounding="toward_zero")
    ones = np.ones((4, 1))
    for place in range(4):
        for value in SPECIAL:
            row = np.ones((1, 4))
            row[0, place] = value
            np.testing.assert_array_equal(multiply(row, ones, kept), [[value]])
    assert np.isnan(multiply([[np.inf, 1.0, -np.inf, 1.0]], ones, kept)).all()


@pytest.mark.parametrize("rounding", ["toward_zero", "nearest_even"])
@pytest.mark.parametrize("bits", [2, 11, 24, 52])
def test_numbers_beside_powers_of_two_keep_all_their_bits(bits, rounding):
    kept = Accumulator(significant_bits_count=bits, rounding=rounding)
    powers = 2.0 ** np.arange(-1020, 1020, 7)
    x = np.concatenate([np.nextafter(powers, 0), powers, np.nextafter(powers, np.inf), -np.nextafter(powers, 0)])
    for value, cut in zip(x, cut_sum(x, kept), strict=True):
        exact = Fraction(float(value))
        _, exponent = np.frexp(value)
        quantum = Fraction(2) ** (int(exponent) - bits)
        steps = int(exact / quantum) if rounding == "toward_zero" else round(exact / quantum)
        assert Fraction(float(cut)) == steps * quantum


def test_the_smallest_numbers_are_kept():
    least = 2.0**-1074
    assert cut_sum(np.array([least]), Accumulator(significant_bits_count=24)).tolist() == [least]


def test_terms_are_aligned_to_the_largest_just_below_a_power_of_two():
    kept = Accumulator(significant_bits_count=8, group_count=2, rounding="toward_zero")
    below = np.nextafter(2.0, 0)  # keeps 8 bits below 2: steps of 2 ** -7
    assert multiply([[below, 2.0**-7]], [[1.0], [1.0]], kept).item() == 2.0
    assert multiply([[below, 2.0**-8]], [[1.0], [1.0]], kept).item() == 2.0 - 2.0**-7
