"""Text of a quantity: there and back keeps four digits, and prefixes are those of the SI (BIPM, SI Brochure)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearpeak.errors import SpecError
from nearpeak.units import parse, show

# A round trip cannot see a wrong table, so the powers stand here a second time.
POWERS = {"p": -12, "n": -9, "µ": -6, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


@given(st.floats(1e-9, 9.9e20), st.sampled_from(["B/s", "FLOP/s", "B", "Hz"]))
def test_there_and_back_keeps_four_digits(value, unit):
    if value >= 1:
        assert parse(show(value, unit), unit) == pytest.approx(value, rel=6e-4)


@given(st.floats(1e-9, 1e3))
def test_times_there_and_back_keep_four_digits(value):
    assert parse(show(value, "s"), "s") == pytest.approx(value, rel=6e-4)


@pytest.mark.parametrize(("prefix", "power"), POWERS.items())
def test_every_decimal_prefix_is_its_power_of_ten(prefix, power):
    assert parse(f"1 {prefix}Hz", "Hz") == pytest.approx(float(f"1e{power}"), rel=1e-15)


@pytest.mark.parametrize(("prefix", "power"), {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}.items())
def test_every_binary_prefix_is_its_power_of_two(prefix, power):
    assert parse(f"1 {prefix}B", "B") == 2**power


@pytest.mark.parametrize("text", ["4.8TB/s", "4.8  TB/s", "4.8 Tb/s", "4.8 tB/s", "4.8", "TB/s", "4,8 TB/s", " 1 B/s"])
def test_what_is_not_exactly_a_quantity_is_refused(text):
    with pytest.raises(SpecError):
        parse(text, "B/s")
