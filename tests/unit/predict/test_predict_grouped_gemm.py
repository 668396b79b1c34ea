import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nearpeak
from nearpeak.predict._form import Setting
from nearpeak.predict.prediction import predict_case
from nearpeak.targets import target_of

DEVICES = ("h100_sxm", "b200_sxm", "l40s", "h200_sxm", "h800_sxm", "rtx_pro_6000", "mi300x")
LAYER = Setting(expert_matrices_count=3)


def grouped(device="h100_sxm", setting=LAYER, **axes):
    arguments = {"m": 64, "n": 4608, "k": 4096, "groups": 128, "touched_groups": 40, "dtype": "bf16", **axes}
    return predict_case(nearpeak.case("grouped_gemm", **arguments), target_of(device), setting)


@settings(max_examples=100, deadline=None)
@given(
    m=st.integers(1, 200_000), n=st.integers(3, 30_000), k=st.integers(1, 16_000), groups=st.integers(1, 512),
    touched=st.integers(1, 512), dtype=st.sampled_from(("bf16", "fp8_block", "fp8_tensor")),
    device=st.sampled_from(DEVICES), setting=st.sampled_from((LAYER, Setting(), Setting(load_exponent_ratio=1.2))),
)  # fmt: skip
def test_parts_add_up_and_bound_interval_and_time_stand_in_order(m, n, k, groups, touched, dtype, device, setting):
    found = grouped(device, setting, m=m, n=n, k=k, groups=groups, touched_groups=touched, dtype=dtype)
    assert sum(term.time_s for term in found.terms) == pytest.approx(found.time_s, rel=1e-9)
    assert found.bound_s <= found.low_s <= found.time_s <= found.high_s
    assert np.isfinite(found.high_s)


def test_a_table_gives_exactly_what_single_cases_give():
    draw = np.random.default_rng(2)
    columns = {axis: np.exp(draw.uniform(1, 9, 100)).astype(np.int64) for axis in "mnk"}
    cases = nearpeak.case_table({"op": "grouped_gemm", "dtype": "bf16", "groups": 64, "touched_groups": 9, **columns})
    table = nearpeak.predict(cases, "h100_sxm")
    for row, case in enumerate(cases.cases()):
        assert nearpeak.predict(case, "h100_sxm").time_s == table.predicted_s[row]


def test_time_follows_touched_experts_with_few_rows_and_rows_with_many():
    few = [grouped(m=128, touched_groups=count).time_s for count in (16, 64, 128)]
    assert few[1] > 2.5 * few[0]
    assert few[2] > 1.6 * few[1]
    many = [grouped(m=rows, touched_groups=128).time_s for rows in (2**14, 2**16, 2**18)]
    assert many[1] > 2 * many[0]
    assert many[2] > 3 * many[1]


def test_more_rows_and_wider_experts_never_take_much_less_time():
    rows, widths = 2 ** np.arange(18), 3 * 2 ** np.arange(4, 14)
    for column in ({"m": rows}, {"n": widths}, {"touched_groups": np.arange(16, 129, 8), "m": 1024}):
        sizes = {"m": 512, "n": 3072, "k": 4096, "groups": 128, "touched_groups": 64, **column}
        found = nearpeak.predict({"op": "grouped_gemm", "dtype": "bf16", **sizes}, "h100_sxm").predicted_s
        assert (found[1:] >= 0.93 * found[:-1]).all()


def test_a_layer_routes_and_gathers_what_a_product_alone_does_not():
    layer, alone = grouped(), grouped(setting=Setting())
    assert layer.waterfall_s["routing"] > alone.waterfall_s.get("routing", 0.0)
    assert "passes" not in alone.waterfall_s
    wide = Setting(expert_matrices_count=3, layer_tokens_count=8192)
    assert grouped(setting=wide).time_s > layer.time_s


def test_uneven_rows_fill_tiles_worse():
    even, skewed = (
        grouped(m=4096, touched_groups=128, setting=Setting(load_exponent_ratio=x)).time_s for x in (0.0, 1.2)
    )
    assert skewed != even
    assert grouped(m=4096, load="zipf exponent=1.2 top_k=8", setting=Setting()).time_s > 0


@pytest.mark.parametrize("axes", [{"split": "k"}, {"dtype": "fp32"}])
def test_what_no_measured_kernel_does_is_predicted_coarsely(axes):
    assert grouped(**axes).calibration.name.partition(" ")[2].startswith("stream.")
