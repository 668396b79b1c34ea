import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nearpeak
from nearpeak.errors import NotModelledError
from nearpeak.prediction.case_prediction import predict_case
from nearpeak.prediction.kernel_model import CaseColumns, Setting
from nearpeak.prediction.models.grouped_gemm import KERNEL_MODEL
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


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(1, 20_000), n=st.integers(64, 8192), k=st.integers(64, 8192), groups=st.integers(1, 300),
    load=st.sampled_from(("uniform", "uniform top_k=4", "zipf exponent=1.2", "zipf exponent=0.6")),
    device=st.sampled_from(DEVICES),
)  # fmt: skip
def test_the_interval_of_a_load_that_is_not_stated_holds_those_that_routers_make(m, n, k, groups, load, device):
    top_k = min(4, groups) if "top_k" in load else 1
    load = load.replace("top_k=4", f"top_k={top_k}")
    axes = {"m": m, "n": n, "k": k, "groups": groups, "setting": Setting()}
    unstated, stated = grouped(device, touched_groups=1, **axes), grouped(device, load=load, **axes)
    # a drawn load may reach a group or two more or fewer than expected
    assert 0.97 * unstated.low_s <= stated.time_s <= 1.03 * unstated.high_s
    assert unstated.bound_s <= stated.bound_s


def test_a_load_that_is_not_stated_is_a_random_one_and_the_text_says_so():
    unstated = grouped(m=512, groups=64, touched_groups=1, setting=Setting())
    uniform, even = (
        grouped(m=512, groups=64, setting=Setting(), **load) for load in ({"load": "uniform"}, {"touched_groups": 64})
    )
    assert unstated.time_s == uniform.time_s == even.time_s
    assert unstated.low_s < uniform.low_s
    (note,) = unstated.notes
    assert "routed at random" in note
    assert even.notes == uniform.notes == ()
    one_group = grouped(m=512, groups=64, load="counts rows=512" + ",0" * 63, touched_groups=1, setting=Setting())
    assert unstated.bound_s <= one_group.bound_s
    assert one_group.time_s < 0.2 * unstated.time_s


def test_rows_of_a_table_have_the_intervals_of_single_cases_whether_they_state_a_load():
    columns = {"m": [1, 8, 64, 512, 4096, 512], "touched_groups": [1, 1, 1, 1, 1, 40]}
    cases = nearpeak.case_table({"op": "grouped_gemm", "dtype": "bf16", "n": 512, "k": 512, "groups": 64, **columns})
    table = nearpeak.predict(cases, "h100_sxm")
    for row, case in enumerate(cases.cases()):
        one = nearpeak.predict(case, "h100_sxm")
        assert (one.time_s, one.low_s, one.high_s) == (table.predicted_s[row], table.low_s[row], table.high_s[row])


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


def layer_scalars(**changed):
    return np.array([changed.get(one.name, one.usual_value) for one in KERNEL_MODEL.coefficients])


def layer_times(coefficients, *, rows, tokens, everywhere, touched=32, **setting):
    cases = CaseColumns(
        op="grouped_gemm", phase="forward", dtypes={"dtype": "int4_weight_only"},
        axes={"m": np.array([rows]), "n": 6144, "k": 6144, "groups": 32, "touched_groups": touched},
    )  # fmt: skip
    how = Setting(expert_matrices_count=3, layer_tokens_count=tokens, layer_rows_count=everywhere, **setting)
    return KERNEL_MODEL.rows(target_of("a100_sxm_80gb"), cases, coefficients, how)


def test_rows_of_experts_elsewhere_count_only_as_far_as_kernels_multiply_them():
    foreign = KERNEL_MODEL.terms.index("foreign")
    spread = {"rows": 4096, "tokens": 4096, "everywhere": 8 * 4096}
    left_out, multiplied = (layer_times(layer_scalars(foreign_ratio=share), **spread) for share in (0.0, 1.0))
    assert left_out.parts_s[0, foreign] == 0.0
    assert multiplied.time_s[0] > 3 * left_out.time_s[0]
    assert multiplied.parts_s[0].sum() == pytest.approx(multiplied.time_s[0], rel=1e-12)
    alone = layer_times(layer_scalars(foreign_ratio=1.0), rows=8 * 4096, tokens=4096, everywhere=8 * 4096)
    assert alone.parts_s[0, foreign] == 0.0
    # on eight devices a device multiplies the rows that one device alone does
    assert multiplied.time_s[0] == pytest.approx(alone.time_s[0], rel=0.15)


def test_only_tokens_that_arrive_bring_rows_of_other_experts():
    shares = layer_scalars(foreign_ratio=1.0)
    few, fewer = (
        layer_times(shares, rows=rows, tokens=4096, everywhere=8 * 4096).parts_s[0, KERNEL_MODEL.terms.index("foreign")]
        for rows in (2048, 256)
    )
    assert few == pytest.approx(8 * fewer, rel=0.05)


def test_passes_over_all_rows_grow_with_rows_elsewhere():
    shares, passes = layer_scalars(foreign_pass_ratio=1.0), KERNEL_MODEL.terms.index("passes")
    here, everywhere = (
        layer_times(shares, rows=2048, tokens=8192, everywhere=rows).parts_s[0, passes] for rows in (2048, 65536)
    )
    assert everywhere > 5 * here


def test_weights_unpacked_while_loading_cross_the_memory_as_wide_as_tokens():
    packed, unpacked = (
        layer_times(layer_scalars(), rows=32, tokens=32, everywhere=32, unpacks_weights=wide).time_s[0]
        for wide in (False, True)
    )
    assert unpacked > 2.5 * packed


def test_uneven_rows_fill_tiles_worse():
    even, skewed = (
        grouped(m=4096, touched_groups=128, setting=Setting(load_exponent_ratio=x)).time_s for x in (0.0, 1.2)
    )
    assert skewed != even
    assert grouped(m=4096, load="zipf exponent=1.2 top_k=8", setting=Setting()).time_s > 0


@pytest.mark.parametrize("axes", [{"split": "k"}, {"dtype": "fp32"}])
def test_what_no_measured_kernel_does_is_predicted_coarsely(axes):
    assert grouped(**axes).calibration.name.partition(" ")[2].startswith("stream.")


def test_boards_that_run_the_same_kernels_reach_what_their_power_gives():
    def sustained(device):
        used = grouped(device, m=65536).calibration
        known = {one.name: one.value for one in used.coefficients}
        return known["tensor_ratio"] / (1 + known["clock_ratio"])

    at_350_w, at_700_w, cut = (sustained(name) for name in ("h100_pcie", "h100_sxm", "h20"))
    assert at_350_w < 0.9 * at_700_w
    assert cut == pytest.approx(0.95)
    assert sustained("h200_sxm") == at_700_w
    assert sustained("l40s") < sustained("rtx_pro_6000") < 0.75, "as much work per clock, and power for a higher one"


def test_more_groups_than_are_looked_at_one_by_one_are_refused_by_name():
    with pytest.raises(NotModelledError, match=r"groups=1000000000: predicted up to 10,000,000"):
        grouped(m=10**9, groups=10**9, touched_groups=1, setting=Setting())
