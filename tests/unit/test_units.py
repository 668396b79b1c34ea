"""Quantities in and out of text."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearpeak.errors import SpecError
from nearpeak.units import BINARY_FACTORS, DECIMAL_FACTORS, SMALL_FACTORS, parse, parse_count, show

GOLDEN = [
    ("1 B", "B", 1),
    ("1 kB", "B", 1_000),
    ("1 MB", "B", 1_000_000),
    ("1 GB", "B", 1_000_000_000),
    ("1 TB", "B", 1_000_000_000_000),
    ("1 PB", "B", 1_000_000_000_000_000),
    ("1 EB", "B", 1_000_000_000_000_000_000),
    ("1 KiB", "B", 1_024),
    ("1 MiB", "B", 1_048_576),
    ("1 GiB", "B", 1_073_741_824),
    ("1 TiB", "B", 1_099_511_627_776),
    ("1 ms", "s", 0.001),
    ("1 us", "s", 0.000_001),
    ("1 µs", "s", 0.000_001),
    ("1 ns", "s", 0.000_000_001),
    ("1 ps", "s", 0.000_000_000_001),
    ("3.35 TB/s", "B/s", 3_350_000_000_000),
    ("1.5 GiB/s", "B/s", 1_610_612_736),
    ("1.83 GHz", "Hz", 1_830_000_000),
    ("989.4 TFLOP/s", "FLOP/s", 989_400_000_000_000),
    ("1e3 W", "W", 1_000),
    ("-2 W", "W", -2),
    ("1GB", "B", 1_000_000_000),
    ("8TB/s", "B/s", 8_000_000_000_000),
    ("8EB", "B", 8 * 10**18),
]


@pytest.mark.parametrize(("text", "unit", "value"), GOLDEN)
def test_prefix_has_its_golden_factor(text, unit, value):
    assert parse(text, unit) == pytest.approx(value, rel=1e-15)


def test_every_prefix_has_a_golden_row():
    rows = {text.split()[1].removesuffix(unit) for text, unit, _ in GOLDEN if " " in text}
    assert rows >= {*DECIMAL_FACTORS, *SMALL_FACTORS, *BINARY_FACTORS}


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("8  TB/s", "B/s"), (" 8 TB/s", "B/s"), ("8 TB/s\n", "B/s"), ("8", "B/s"), ("TB/s", "B/s"),
        ("", "B"), ("8 Tb/s", "B/s"), ("8 tB/s", "B/s"), ("8 KB", "B"), ("8 kiB", "B"), ("8 TB", "B/s"),
        ("8 TB/s", "B"), ("8 GiHz", "Hz"), ("8 KiFLOP", "FLOP"), ("nan s", "s"), ("inf s", "s"), ("1e999 s", "s"),
        ("1e999 TB", "B"), ("0x10 B", "B"), ("1,5 GB", "B"), ("1_000 B", "B"), (". B", "B"), ("1. B", "B"),
    ],
)  # fmt: skip
def test_text_that_is_not_a_quantity_is_refused(text, unit):
    with pytest.raises(SpecError, match="quantity: "):
        parse(text, unit)


@pytest.mark.parametrize("text", [8, 8.0, None, True, ["8 B"]])
def test_value_that_is_not_text_is_refused(text):
    with pytest.raises(SpecError, match="is not a number and a unit"):
        parse(text, "B")


def test_binary_and_decimal_prefixes_differ():
    assert parse("80 GiB", "B") - parse("80 GB", "B") == 80 * (2**30 - 10**9)


def test_count_must_be_whole():
    assert parse_count("0.5 KiB", "B") == 512
    assert isinstance(parse_count("80 GiB", "B"), int)
    with pytest.raises(SpecError, match="whole number"):
        parse_count("0.3 B", "B")


SHOWN = [
    (0, "s", "0 s"), (1, "s", "1 s"), (90, "s", "90 s"), (1e-3, "s", "1 ms"), (1.2826e-4, "s", "128.3 µs"),
    (2.5e-9, "s", "2.5 ns"), (0.99996, "s", "1 s"), (4.8e12, "B/s", "4.8 TB/s"), (999.96e9, "B/s", "1 TB/s"),
    (1_000, "B", "1 kB"), (999, "B", "999 B"), (85_899_345_920, "B", "85.9 GB"), (1.83e9, "Hz", "1.83 GHz"),
    (9.894e14, "FLOP/s", "989.4 TFLOP/s"), (1e18, "FLOP", "1 EFLOP"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "unit", "text"), SHOWN)
def test_quantity_is_shown_with_four_digits(value, unit, text):
    assert show(value, unit) == text


@given(st.floats(1e-9, 1e17), st.sampled_from(["B/s", "FLOP/s", "Hz", "W", "s"]))
def test_parse_of_show_keeps_four_digits(value, unit):
    if unit != "s" and value < 1:
        value = 1 / value
    text = show(value, unit)
    if "e" not in text.split()[0]:
        assert math.isclose(parse(text, unit), value, rel_tol=5.1e-4)
    assert parse(show(parse(text, unit), unit), unit) == parse(text, unit)
