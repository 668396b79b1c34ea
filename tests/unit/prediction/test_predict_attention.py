import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nearpeak
from nearpeak.prediction.calibration.device_fit import calibrate_each
from nearpeak.prediction.calibration.samples import samples_of
from nearpeak.targets import target_of

DEVICES = ("h100_sxm", "a100_sxm_80gb", "b200_sxm", "l40s", "h200_sxm", "rtx_pro_6000", "mi300x", "h20")
SERVED = {"causal": True, "align": "lower_right"}


def attention(device="h100_sxm", phase="forward", **axes):
    arguments = {"batch": 1, "heads": 32, "dim": 128, "dtype": "bf16", **SERVED, **axes}
    return nearpeak.predict(nearpeak.case("attention", phase, **arguments), device)


def times(device="h100_sxm", **columns):
    arguments = {"op": "attention", "batch": 1, "heads": 32, "dim": 128, "dtype": "bf16", **SERVED, **columns}
    return nearpeak.predict(arguments, device).predicted_s


@settings(max_examples=150, deadline=None)
@given(
    batch=st.integers(1, 2048), groups=st.sampled_from((1, 2, 8, 16)), each=st.sampled_from((1, 2, 4, 8, 16)),
    kv=st.integers(1, 40_000), new=st.sampled_from((1, 1, 2, 17, 500, 40_000)),
    dim=st.sampled_from((64, 128, 192, 256, 512)), left=st.sampled_from((0, 128, 1024)),
    stored=st.sampled_from(("bf16", "fp8_e4m3")), device=st.sampled_from(DEVICES),
)  # fmt: skip
def test_parts_add_up_and_bound_interval_and_time_stand_in_order(
    batch, groups, each, kv, new, dim, left, stored, device
):
    dtypes = {} if device == "a100_sxm_80gb" else {"kv_dtype": stored}
    found = attention(
        device, batch=batch, heads=groups * each, kv_heads=groups, q=min(new, kv), kv=kv, dim=dim, left=left, **dtypes
    )
    assert sum(term.time_s for term in found.terms) == pytest.approx(found.time_s, rel=1e-9)
    assert found.bound_s <= found.low_s <= found.time_s <= found.high_s
    assert np.isfinite(found.high_s)
    assert "other" not in found.waterfall_s


def test_a_table_gives_exactly_what_single_cases_give():
    draw = np.random.default_rng(5)
    kv = np.exp(draw.uniform(0, 10, 200)).astype(np.int64)
    q = np.where(draw.random(200) < 0.5, 1, kv)
    columns = {"batch": draw.integers(1, 64, 200), "q": q, "kv": kv, "dim": draw.choice([64, 128, 256], 200)}
    cases = nearpeak.case_table({"op": "attention", "heads": 32, "kv_heads": 8, "dtype": "bf16", **SERVED, **columns})
    table = nearpeak.predict(cases, "b200_sxm")
    for row, case in enumerate(cases.cases()):
        one = nearpeak.predict(case, "b200_sxm")
        assert one.time_s == table.predicted_s[row]
        assert (one.low_s, one.high_s) == pytest.approx((table.low_s[row], table.high_s[row]), rel=1e-12)


@pytest.mark.parametrize("device", ["h100_sxm", "b200_sxm", "l40s"])
def test_more_keys_and_more_sequences_never_take_much_less_time(device):
    extents = 2 ** np.arange(1, 16)
    for found in (
        times(device, q=1, kv=extents, batch=64),
        times(device, q=1, kv=4096, batch=extents),
        times(device, q=extents, kv=extents),
    ):
        assert (found[1:] >= 0.9 * found[:-1]).all()
        assert found[-1] > 3 * found[0]


def test_a_window_and_a_narrow_cache_save_time():
    assert times(q=16384, kv=16384, left=1024)[0] < 0.5 * times(q=16384, kv=16384)[0]
    assert times(q=1, kv=32768, batch=64, left=128)[0] < 0.2 * times(q=1, kv=32768, batch=64)[0]
    assert times(q=1, kv=32768, batch=64, kv_dtype="fp8_e4m3")[0] < 0.7 * times(q=1, kv=32768, batch=64)[0]


def test_splitting_the_keys_keeps_one_long_sequence_from_running_on_few_multiprocessors():
    found = attention(q=1, kv=32768, kv_heads=8)
    assert found.waterfall_s["combine"] > 0
    assert found.time_s < 60e-6
    assert "combine" not in attention(q=1, kv=64, kv_heads=8, batch=64).waterfall_s


def test_pages_and_packed_sequences_take_as_long_as_the_same_attention():
    paged = nearpeak.case(
        "paged_attention", batch=8, heads=32, kv_heads=8, tokens=8 * 4096, pages=8 * 256, dim=128, dtype="bf16"
    )
    assert nearpeak.predict(paged, "h100_sxm").time_s == pytest.approx(
        attention(batch=8, q=1, kv=4096, kv_heads=8).time_s
    )
    packed = nearpeak.case("varlen_attention", tokens=4096, sequences=4, heads=32, dim=128, dtype="bf16", causal=True)
    assert nearpeak.predict(packed, "h100_sxm").time_s == pytest.approx(attention(batch=4, q=1024, kv=1024).time_s)


def test_absorbed_latent_attention_reads_its_cache_once():
    axes = {"batch": 64, "heads": 128, "q": 1, "kv": 8192, "dim": 576, "v_dim": 512, "kv_heads": 1}
    assert attention(**axes, latent=True).time_s < attention(**axes).time_s


@pytest.mark.parametrize("axes", [{"mask": "float"}, {"dropout": True}, {"dtype": "fp32"}])
def test_what_no_measured_kernel_does_is_predicted_coarsely_and_says_so(axes):
    plain, found = attention(q=64, kv=64), attention(q=64, kv=64, **axes)
    assert found.calibration.name.partition(" ")[2].startswith("stream.")
    assert found.high_s / found.low_s > 2 * plain.high_s / plain.low_s


def test_attention_in_fp32_has_no_scalars_that_measurements_could_fit():
    rows = {
        "op": "attention",
        "dtype": "fp32",
        "batch": 1,
        "heads": 8,
        "q": [64] * 9,
        "kv": 64,
        "dim": 64,
        "time_us": 9,
    }
    refused = calibrate_each(samples_of(rows | {"time_us": [9.0, 10.0]}), target_of("h100_sxm"), "a test").refused
    assert "attention in fp32" in str(next(iter(refused.values())))


def test_query_heads_that_no_kernel_takes_together_take_a_time_each():
    decoded = {"batch": 1024, "q": 1, "kv": 128}
    few_keys, more_keys = times(heads=128, kv_heads=[1, 4], dim=64, **decoded)
    assert few_keys > 3 * more_keys
    for device, least, most in (("l40s", 6, 9), ("h100_sxm", 1, 2)):
        few_heads, many_heads = times(device, heads=[8, 64], kv_heads=1, left=128, **decoded)
        assert least * few_heads < many_heads < most * few_heads


@pytest.mark.parametrize("axes", [{"batch": 0, "q": 4, "kv": 153, "dim": 6, "v_dim": 16}, {"q": 0, "kv": 5}])
def test_attention_without_a_query_to_decode_takes_the_launch_and_no_unknown_time(axes):
    found = attention(**axes, dtype="fp8_e4m3")
    assert 0 == found.bound_s <= found.low_s <= found.time_s <= found.high_s < 1e-4


def test_queries_beyond_the_last_key_see_none_of_them_or_all():
    shape = {"heads": 32, "q": 4096, "kv": 2048, "causal": True}
    seen = {align: attention(**shape, align=align) for align in ("upper_left", "lower_right")}
    pairs = {"lower_right": 2048 * 2049 / 2, "upper_left": 2048 * 2049 / 2 + 2048 * 2048}
    tensor_s = {align: found.waterfall_s["tensor"] for align, found in seen.items()}
    assert tensor_s["upper_left"] / tensor_s["lower_right"] == pytest.approx(
        pairs["upper_left"] / pairs["lower_right"], rel=1e-3
    )
    assert attention(heads=32, q=4096, kv=256, causal=True, align="lower_right").waterfall_s["tensor"] > 0


def test_twice_as_many_query_heads_of_one_key_head_take_about_twice_as_long():
    shape = {"kv_heads": 1, "q": 4096, "kv": 4096, "dim": 64, "causal": True}
    few, many = (attention("a100_sxm_80gb", heads=heads, **shape) for heads in (64, 128))
    assert 1.7 < many.time_s / few.time_s < 2.1
    assert many.waterfall_s["masked_pairs"] > 0


@pytest.mark.parametrize("device", ["h100_sxm", "b200_sxm", "l40s", "mi300x", "t4"])
@pytest.mark.parametrize("causal", [True, False])
def test_heads_between_the_widths_of_kernels_take_no_longer_than_those_of_the_next_wider_kernel(device, causal):
    generator = np.random.default_rng(3)
    count = 200
    narrow = generator.integers(1, 257, count)
    wide = np.minimum(256, narrow + generator.integers(1, 100, count))
    shape = {
        "batch": generator.integers(1, 33, count), "heads": 16, "kv_heads": 16,
        "q": (length := generator.integers(16, 4097, count)), "kv": length,
    }  # fmt: skip
    times = [
        nearpeak.predict({"op": "attention", "dtype": "bf16" if device != "t4" else "fp16", "causal": causal, **shape,
                          "dim": dim}, device).predicted_s
        for dim in (narrow, wide)
    ]  # fmt: skip
    assert (times[0] <= 1.25 * times[1]).all()  # corrections, which are bounded, may differ


def test_attention_that_sees_later_keys_appends_to_no_cache():
    shape = {"batch": 8, "heads": 16, "kv_heads": 16, "q": 2048, "kv": 2048, "dim": 80, "dtype": "bf16"}
    whole, masked = (
        nearpeak.predict(nearpeak.case("attention", **shape, causal=causal), "h100_sxm") for causal in (False, True)
    )
    assert "append" in {term.name for term in masked.terms if term.time_s > 0}
    assert "append" not in {term.name for term in whole.terms if term.time_s > 0}


@pytest.mark.parametrize("device", ["h100_sxm", "b200_sxm", "l40s", "a100_sxm_80gb", "rtx_4090"])
def test_query_heads_that_share_a_latent_cache_do_not_read_it_one_by_one(device):
    latent = {"batch": 64, "kv_heads": 1, "q": 1, "kv": 4096, "dim": 576, "v_dim": 512, "dtype": "bf16"}
    few, many = (
        nearpeak.predict(
            nearpeak.case("attention", **latent, heads=heads, causal=True, align="lower_right", latent=True), device
        ).time_s
        for heads in (16, 128)
    )
    assert few <= many < 4 * few
