import numpy as np
import pytest

import nearpeak

DEVICES = ("h100_sxm", "b200_sxm", "l40s", "mi300x")
SIDES = (256, 1024, 4096, 16384)


def pair(op, device, **axes):
    """Return the forward pass and the gradients of a case."""
    return [nearpeak.predict(nearpeak.case(op, phase=phase, **axes), device) for phase in ("forward", "backward")]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["bf16", "fp8_tensor", "fp8_block"])
def test_two_products_take_longer_than_one(device, dtype):
    # long sums of few tiles aside, whose steps wait for one another in the forward pass alone
    for m in SIDES:
        for n, k in ((4096, 4096), (8192, 1024), (4096, 8192)):
            forward, backward = pair("scaled_gemm", device, m=m, n=n, k=k, dtype=dtype)
            assert backward.time_s >= forward.time_s
            assert backward.bound_s >= forward.bound_s
            assert backward.bound_s <= backward.low_s <= backward.time_s <= backward.high_s
            assert sum(backward.waterfall_s.values()) == pytest.approx(backward.time_s, rel=1e-9)
            assert backward.distance_count > 0


def test_large_gradients_take_two_times_as_long_and_what_the_second_quantises():
    forward, backward = pair("scaled_gemm", "h100_sxm", m=8192, n=8192, k=8192, dtype="fp8_tensor")
    assert 1.9 < backward.time_s / forward.time_s < 2.6
    assert "quantise" in backward.waterfall_s
    assert "gradients" in backward.notes[0]
    assert forward.notes == ()


def test_each_gradient_can_be_asked_for_alone():
    axes = {"op": "scaled_gemm", "m": 4096, "n": 8192, "k": 2048, "dtype": "fp8_tensor", "phase": "backward"}
    both, of_a, of_b = (
        nearpeak.predict(nearpeak.case(**axes, **asked), "h100_sxm")
        for asked in ({}, {"grad_b": False}, {"grad_a": False})
    )
    assert max(of_a.time_s, of_b.time_s) < both.time_s
    neither = nearpeak.predict(nearpeak.case(**axes, grad_a=False, grad_b=False, bias=True), "h100_sxm")
    assert neither.calibration.is_borrowed


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_attention_take_longer_than_the_forward_pass_and_five_products_instead_of_two(device):
    for q in (1, 64, 512, 8192):
        for dim, causal, kv_heads in ((64, True, 8), (128, False, 32), (128, True, 32)):
            axes = {"batch": 4, "heads": 32, "kv_heads": kv_heads, "q": q, "kv": max(q, 128), "dim": dim}
            forward, backward = pair("attention", device, **axes, causal=causal, dtype="bf16")
            assert backward.time_s >= forward.time_s
            assert backward.bound_s <= backward.low_s <= backward.time_s <= backward.high_s
            assert sum(backward.waterfall_s.values()) == pytest.approx(backward.time_s, rel=1e-9)
            if q == SIDES[-1] // 2:
                assert 2.0 < backward.time_s / forward.time_s < 3.0


def test_a_table_of_gradients_gives_what_single_cases_give():
    for op, axes in (
        ("scaled_gemm", {"m": np.array([16, 256, 4096]), "n": 4096, "k": 2048, "dtype": "fp8_tensor"}),
        (
            "attention",
            {"batch": 2, "heads": 8, "q": np.array([16, 512, 4096]), "kv": 4096, "dim": 128, "dtype": "bf16"},
        ),
    ):
        cases = nearpeak.case_table({"op": op, "phase": "backward", **axes})
        table = nearpeak.predict(cases, "h100_sxm")
        for row, case in enumerate(cases.cases()):
            one = nearpeak.predict(case, "h100_sxm")
            assert (one.time_s, one.low_s, one.high_s) == pytest.approx(
                (table.predicted_s[row], table.low_s[row], table.high_s[row]), rel=1e-12
            )
            assert one.distance_count == table.distance_count[row]
