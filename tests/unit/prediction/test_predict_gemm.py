import pathlib
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nearpeak
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.prediction.calibration.coefficient_file import file_text
from nearpeak.prediction.calibration.coefficient_reader import read_coefficients, read_group
from nearpeak.prediction.calibration.coefficient_store import PRIOR, calibration_for, mean_coefficients
from nearpeak.prediction.calibration.fit import fit
from nearpeak.prediction.case_prediction import predict_case
from nearpeak.prediction.kernel_model import CaseColumns, Setting
from nearpeak.prediction.models.gemm import KERNEL_MODEL
from nearpeak.prediction.refinement import coefficients_of
from nearpeak.targets import target_of

EXTENT = st.integers(1, 70_000)
DEVICES = ("h100_sxm", "a100_sxm_80gb", "b200_sxm", "l40s", "t4", "rtx_4090", "mi300x", "h200_sxm")


@settings(max_examples=150, deadline=None)
@given(m=EXTENT, n=EXTENT, k=EXTENT, device=st.sampled_from(DEVICES), dtype=st.sampled_from(("bf16", "fp32", "fp16")))
def test_parts_add_up_and_the_bound_the_interval_and_the_time_stand_in_order(m, n, k, device, dtype):
    if device == "t4" and dtype == "bf16":
        dtype = "fp16"
    found = nearpeak.predict(nearpeak.case("gemm", m=m, n=n, k=k, dtype=dtype), device)
    assert sum(term.time_s for term in found.terms) == pytest.approx(found.time_s, rel=1e-9)
    assert found.bound_s <= found.low_s <= found.time_s <= found.high_s
    assert "other" not in found.waterfall_s
    assert found.limiter in found.waterfall_s


def test_a_table_gives_exactly_what_single_cases_give():
    draw = np.random.default_rng(7)
    extents = {axis: np.exp(draw.uniform(0, 10, 300)).astype(np.int64) for axis in "mnk"}
    dtypes = np.array(["bf16", "fp32", "fp16"])[draw.integers(0, 3, 300)]
    cases = nearpeak.case_table({"op": "gemm", "dtype": dtypes, **extents})
    table = nearpeak.predict(cases, "h100_sxm")
    for row, case in enumerate(cases.cases()):
        one = nearpeak.predict(case, "h100_sxm")
        assert one.time_s == table.predicted_s[row]
        assert (one.low_s, one.high_s) == pytest.approx((table.low_s[row], table.high_s[row]), rel=1e-12)
        assert one.bound_s == table.bound_s[row]


def test_more_work_never_takes_much_less_time():
    n = np.arange(256, 16385, 256)
    for m in (1, 64, 4096):
        found = nearpeak.predict({"op": "gemm", "dtype": "bf16", "m": m, "n": n, "k": 4096}, "h100_sxm").predicted_s
        assert (found[1:] >= 0.93 * found[:-1]).all()


def test_one_row_beyond_whole_waves_costs_a_wave_tail():
    def tail(m):
        case = nearpeak.case("gemm", m=m, n=16384, k=8192, dtype="bf16")
        return nearpeak.predict(case, "a100_sxm_80gb", correction=False).time_s

    assert tail(13825) > tail(13824)


def test_a_device_without_data_says_how_far_the_data_are_and_has_a_wider_interval():
    case = nearpeak.case("gemm", m=4096, n=4096, k=4096, dtype="bf16")
    own, kin, far = (nearpeak.predict(case, name) for name in ("h100_sxm", "h200_sxm", "arc_pro_b60"))
    assert (own.distance_count, kin.distance_count, far.distance_count) == (0, 1, 3)
    width = [one.high_s / one.low_s for one in (own, kin, far)]
    assert width[0] < width[1]
    assert width[0] < width[2]
    assert far.calibration.name.startswith(PRIOR)
    assert nearpeak.predict(case, "rtx_3090").distance_count == 2


def test_quantising_the_input_first_takes_longer():
    case = nearpeak.case("scaled_gemm", m=4096, n=4096, k=4096, dtype="fp8_tensor")
    target = target_of("h100_sxm")
    first = predict_case(case, target, Setting(quantises_input=True))
    assert first.time_s > predict_case(case, target).time_s
    assert first.waterfall_s["quantise"] > 0


def test_smallest_products_on_ada_take_the_time_of_all_of_k_whatever_m_and_n():
    def time_s(m, n, k, device="l40s", dtype="bf16"):
        return nearpeak.predict(nearpeak.case("gemm", m=m, n=n, k=k, dtype=dtype), device, correction=False).time_s

    one, other, longer = time_s(14, 32, 4096), time_s(4, 64, 4096), time_s(7, 32, 8192)
    assert one == pytest.approx(other, rel=0.05)
    assert longer > 1.8 * one
    assert one > 3 * time_s(16, 32, 4096)  # 2^21 products of elements: the sum is split from there on
    assert longer > 3 * time_s(7, 32, 8256)
    assert one > 3 * time_s(1, 32, 4096)
    assert one > 2 * time_s(14, 32, 4096, "h100_sxm")
    alone = nearpeak.predict(nearpeak.case("gemm", m=14, n=32, k=4096, dtype="bf16"), "l40s", correction=False)
    assert alone.waterfall_s["l2"] + alone.waterfall_s["latency"] > 0.8 * alone.time_s
    assert "split_k" not in alone.waterfall_s


def test_quantised_input_that_stays_in_cache_is_read_from_there():
    names = [coefficient.name for coefficient in KERNEL_MODEL.coefficients]

    def quantise_s(kept):
        coefficients = np.array([coefficient.usual_value for coefficient in KERNEL_MODEL.coefficients])
        coefficients[names.index("quantise_residency_ratio")] = kept
        cases = CaseColumns(
            op="scaled_gemm", phase="forward", dtypes={"dtype": "fp8_tensor"}, axes={"m": 4096, "n": 64, "k": 4096}
        )
        rows = KERNEL_MODEL.rows(target_of("l40s"), cases, coefficients, Setting(quantises_input=True))
        return rows.parts_s[0, KERNEL_MODEL.terms.index("quantise")]

    assert quantise_s(1.5) < 0.8 * quantise_s(0.1)


def test_padding_of_four_bit_operands_and_the_hosts_launch_count_where_they_happen():
    def parts(n, **how):
        case = nearpeak.case("scaled_gemm", m=64, n=n, k=4096, dtype="nvfp4")
        return predict_case(case, target_of("b200_sxm"), Setting(**how)).waterfall_s

    assert "padding" in parts(64, quantises_input=True)
    assert "padding" not in parts(128, quantises_input=True)
    assert "padding" not in parts(64)
    assert "host" in parts(128, host_timed=True)
    assert "host" not in parts(128)


def test_scalars_for_a_device_without_data_lie_between_those_of_its_neighbours():
    first, second = target_of("a100_sxm_80gb"), target_of("b200_sxm")
    low, high = (
        np.array([coefficient.usual_value * factor for coefficient in KERNEL_MODEL.coefficients])
        for factor in (0.9, 1.1)
    )
    found = mean_coefficients(KERNEL_MODEL, target_of("h100_sxm"), {"dtype": "bf16"}, [(first, low), (second, high)])
    middle = np.clip(
        np.sqrt(low * high),
        [s.low_value for s in KERNEL_MODEL.coefficients],
        [s.high_value for s in KERNEL_MODEL.coefficients],
    )
    follow = ("_s", "tensor_ratio", "clock_ratio")  # floors, clocks and power, which documents state
    used = (low > 0) & np.array([not coefficient.name.endswith(follow) for coefficient in KERNEL_MODEL.coefficients])
    assert found[used] == pytest.approx(middle[used])
    near = mean_coefficients(KERNEL_MODEL, second, {"dtype": "bf16"}, [(first, low), (second, high)])
    assert (near[used] >= found[used]).all()


def test_what_cannot_be_predicted_is_refused_in_one_line():
    with pytest.raises(NotModelledError, match="GPUs that state a rate for it only, got one of kind npu"):
        nearpeak.predict(nearpeak.case("gemm", m=8, n=8, k=8, dtype="bf16"), "gaudi3")


@pytest.mark.parametrize(("line", "instead", "said"), [
    ("source = .*", "", "source is None; a text is right"),
    ("row_count = .*", "row_count = 'x'", "row_count is 'x'"),
    ("unidentified = .*", "unidentified = 3", "unidentified is 3; a list"),
    ("launch_s = .*", "launch_s = 'x'", "launch_s is x"),
    ("tensor = .*", "", "for each of dram, l2, launch, tensor is right"),
    ("dram = .*", "dram = [2.0, 1.0]", "is right, fit again"),
    ("dram = .*", "dram = 1.0", "is right, fit again"),
    ("dram = .*", "dram = [1.2, 1.5]", "[low, high] around 1 for each of"),
    ("dram = .*", "dram = [0.5, 0.8]", "[low, high] around 1 for each of"),
    ("dram = .*", "dram = [0.9, inf]", "[low, high] around 1 for each of"),
    ("dram = .*", "dram = [nan, 1.1]", "[low, high] around 1 for each of"),
    ("dram = .*", "dram = [true, true]", "[low, high] around 1 for each of"),
])  # fmt: skip
def test_a_calibration_that_holds_something_else_is_refused_in_one_line(line, instead, said, tmp_path):
    entry = {
        "version": KERNEL_MODEL.version, "row_count": 9, "source": "a bench", "unidentified": [],
        "scalars": {one.name: one.usual_value for one in KERNEL_MODEL.coefficients},
        "interval": {regime: [0.9, 1.1] for regime in KERNEL_MODEL.regimes.values()},
    }  # fmt: skip
    path, case = tmp_path / "mine.toml", nearpeak.case("gemm", m=8, n=8, k=8, dtype="bf16")
    path.write_text(file_text({"gemm.bf16": entry}))
    assert nearpeak.predict(case, "h100_sxm", calibration=path).time_s > 0
    path.write_text(re.sub(f"^{line}$", instead, path.read_text(), flags=re.MULTILINE))
    with pytest.raises(SpecError, match=re.escape(said)):
        nearpeak.predict(case, "h100_sxm", calibration=path)


def test_a_calibration_of_another_version_or_out_of_range_is_refused(tmp_path):
    path = tmp_path / "mine.toml"
    case = nearpeak.case("gemm", m=8, n=8, k=8, dtype="bf16")
    path.write_text('[groups."gemm.bf16"]\nversion = "gemm-0"\n')
    with pytest.raises(SpecError, match="fit again"):
        nearpeak.predict(case, "h100_sxm", calibration=path)
    path.write_text("not TOML")
    with pytest.raises(SpecError, match="not TOML"):
        nearpeak.predict(case, "h100_sxm", calibration=path)
    with pytest.raises(SpecError, match="not found"):
        nearpeak.predict(case, "h100_sxm", calibration=tmp_path / "none.toml")
    path.write_text("groups = " + "[" * 100_000)
    with pytest.raises(SpecError, match="nested too deeply"):
        nearpeak.predict(case, "h100_sxm", calibration=path)


@pytest.mark.parametrize(("given", "said"), [(3, "calibration=3 is no path"), ("", "calibration='' is no path"),
                                             (pathlib.Path(), "calibration .: is a folder; name")])  # fmt: skip
def test_a_calibration_that_is_no_file_is_refused_in_one_line(given, said):
    with pytest.raises(SpecError, match=re.escape(said)):
        nearpeak.predict(nearpeak.case("gemm", m=8, n=8, k=8, dtype="bf16"), "h100_sxm", calibration=given)


def test_every_coefficient_file_belongs_to_its_form_and_names_its_source():
    from nearpeak.prediction import KERNEL_MODELS
    from nearpeak.prediction.calibration import coefficient_store

    paths = sorted(coefficient_store._FOLDER.glob("*/*.toml"))
    assert paths
    for path in paths:
        model = KERNEL_MODELS[path.parent.name]
        for group, entry in read_coefficients(path)["groups"].items():
            found = read_group(entry, f"{path.stem} {group}", model, 0, True)
            assert group.startswith(f"{model.name}.")
            assert found.source
            assert found.row_count > 0
            assert set(model.regimes.values()) <= set(found.low_ratio) == set(found.high_ratio)


def test_a_fit_finds_the_scalars_that_made_the_times():
    target = target_of("a100_sxm_80gb")
    draw = np.random.default_rng(3)
    axes = {axis: np.exp(draw.uniform(2, 10, 400)).astype(np.int64) for axis in "mnk"}

    cases = CaseColumns(op="gemm", phase="forward", dtypes={"dtype": "bf16"}, axes=axes)
    truth = coefficients_of(calibration_for(target, KERNEL_MODEL, cases))

    def times(values):
        return KERNEL_MODEL.rows(target, cases, values, Setting()).time_s

    fixed = tuple(s.name for s in KERNEL_MODEL.coefficients if s.name not in ("launch_s", "tensor_ratio", "dram_ratio"))
    start = truth.copy()
    start[:3] *= (1.8, 0.8, 0.8)
    found = fit(KERNEL_MODEL, times, times(truth), fixed=fixed, start=start)
    assert found.values[:3] == pytest.approx(truth[:3], rel=1e-3)
    assert not {"launch_s", "tensor_ratio", "dram_ratio"} & set(found.unidentified)


def test_a_fit_refuses_too_few_measurements_and_times_that_are_none():
    with pytest.raises(SpecError, match="at least three"):
        fit(KERNEL_MODEL, lambda _: np.ones(5), np.ones(5))
    with pytest.raises(SpecError, match="not a positive number"):
        fit(KERNEL_MODEL, lambda _: np.ones(100), np.full(100, np.nan))


@pytest.mark.parametrize("op", ["gemm", "attention", "conv"])
def test_products_in_fp16_are_added_up_in_fp32_on_consumer_boards(op):
    axes = {
        "gemm": {"m": 8192, "n": 8192, "k": 8192},
        "attention": {"batch": 1, "heads": 32, "q": 8192, "kv": 8192, "dim": 128, "causal": True},
        "conv": {"batch": 64, "in_channels": 256, "out_channels": 256, "h": 56, "w": 56, "kh": 3, "kw": 3},
    }[op]
    half, brain = (nearpeak.predict(nearpeak.case(op, dtype=one, **axes), "rtx_4090") for one in ("fp16", "bf16"))
    assert half.time_s == pytest.approx(brain.time_s, rel=0.1)
