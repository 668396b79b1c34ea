"""The algorithm policy: what Winograd, Strassen and every other bilinear algorithm still have to multiply."""

import numpy as np
import pytest

import nearpeak
from nearpeak import Policy
from nearpeak.errors import SpecError
from nearpeak.ops import OPS, case, work_of

ANY = Policy(algorithm="any")
CONV = {"batch": 2, "in_channels": 3, "out_channels": 4, "w": 10, "kw": 3}
# Multiplications by hand: the largest of what the operands and the result hold that matters.
ROWS = (
    ("gemm", {"m": 5, "n": 7, "k": 11}, 7 * 11),  # A 55, B 77, Y 35
    ("gemm", {"m": 1, "n": 7, "k": 11}, 7 * 11),  # matrix times vector: Winograd 1970
    ("gemm", {"m": 2, "n": 2, "k": 2}, 4),  # Strassen needs 7, so 4 is below it
    ("gemm", {"m": 5, "n": 7, "k": 11, "batch": 3, "b_batch": 1}, 3 * 5 * 11),  # A 165, B 77, Y 105
    ("conv", CONV, 2 * 4 * 8),  # X 2*3*10 = 60, W 4*3*3 = 36, Y 2*4*8 = 64
    ("conv", {**CONV, "sw": 4}, 2 * 3 * 6),  # windows at 0 and 4 touch 6 of 10; W 36, Y 16: X 36
    ("conv", {"batch": 1, "in_channels": 1, "out_channels": 1, "w": 6, "kw": 3}, 4 + 3 - 1),  # Winograd F(4, 3)
    ("conv_transpose", CONV, 2 * 4 * 12),  # X 60, W 36, Y 2*4*12 = 96
)


@pytest.mark.parametrize(("op", "axes", "count"), ROWS)
def test_multiplications_of_any_bilinear_algorithm(op, axes, count):
    assert work_of(case(op, dtype="bf16", **axes), "any").flop["matrix.bf16"] == 2 * count


@pytest.mark.parametrize("op", ["conv", "conv_transpose"])
def test_a_gradient_takes_as_many_as_the_map_itself(op):
    forward, backward = (work_of(case(op, phase, dtype="bf16", **CONV), "any") for phase in ("forward", "backward"))
    assert forward.flop["matrix.bf16"] == backward.flop["matrix.bf16"]


def test_known_fast_algorithms_need_no_less_than_the_count():
    strassen = {2**level: 7**level for level in range(1, 8)}
    for side, products in strassen.items():
        assert work_of(case("gemm", m=side, n=side, k=side, dtype="fp32"), "any").flop["matrix.fp32"] <= 2 * products
    for outputs, taps in ((2, 3), (4, 3), (6, 3), (2, 5)):  # F(m, r) takes m + r - 1 in each dimension
        extent = outputs + taps - 1
        tile = case("conv", batch=1, in_channels=1, out_channels=1, h=extent, w=extent, kh=taps, kw=taps, dtype="fp32")
        assert work_of(tile, "any").flop["matrix.fp32"] == 2 * extent**2


def test_an_operator_without_a_count_keeps_its_bytes_alone():
    attention = case("attention", batch=1, heads=2, q=64, kv=64, dim=32, dtype="bf16")
    classical, free = work_of(attention), work_of(attention, "any")
    assert free.flop["matrix.bf16"] == 0
    assert (free.read_bytes, free.write_bytes) == (classical.read_bytes, classical.write_bytes)


@pytest.mark.parametrize(("op", "phase"), [(name, phase) for name in OPS for phase in OPS[name].fewest])
def test_a_table_gives_the_same_bounds_as_its_rows(op, phase):
    draw = np.random.default_rng(0)
    axes = ("m", "n", "k", "batch") if op == "gemm" else ("batch", "in_channels", "out_channels", "w", "h")
    columns = {name: draw.integers(6, 600, 200) for name in axes} | (
        {} if op == "gemm" else {"kw": 3, "kh": 5, "ph": 1}
    )
    table = nearpeak.bound({"op": op, "phase": phase, "dtype": "bf16", **columns}, "h100_sxm", ANY)
    for row in range(200):
        one = {name: int(value[row]) if hasattr(value, "shape") else value for name, value in columns.items()}
        bound = nearpeak.bound(case(op, phase, dtype="bf16", **one), "h100_sxm", ANY)
        assert (bound.time_s, bound.limiter) == (table.bound_s[row], table.limiter[row])
        assert bound.time_s <= nearpeak.bound(case(op, phase, dtype="bf16", **one), "h100_sxm").time_s


def test_the_assumption_changes_with_the_policy():
    square = case("gemm", m=64, n=64, k=64, dtype="bf16")
    assert "A2" in nearpeak.bound(square, "h100_sxm").assumptions
    free = nearpeak.bound(square, "h100_sxm", ANY).assumptions
    assert "A19" in free
    assert "A2" not in free


def test_an_unknown_algorithm_is_refused_by_name():
    with pytest.raises(SpecError, match="algorithm policy 'fast' is not known; there are classical, any"):
        Policy(algorithm="fast")
