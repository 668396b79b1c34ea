import json

import numpy as np
import pytest

import nearpeak
from nearpeak.errors import SpecError
from nearpeak.ops.shared.tables.case_table import table_of_cases
from nearpeak.prediction.calibration.coefficient_file import Refinement, intervals
from nearpeak.prediction.calibration.interval_scale import fit_scale, walked
from nearpeak.prediction.case_prediction import predict_case, predict_table
from nearpeak.prediction.kernel_model import Setting
from nearpeak.prediction.residual_correction import correction_entry, correction_of
from nearpeak.targets import target_of

COUNT = 4000


def drawn(seed):
    """Rows of which those with a wide image deviate ten times as far; four rows a site."""
    draw = np.random.default_rng(seed)
    wide = draw.uniform(1, 100, COUNT)
    rest = np.where(wide > 75, 0.2, 0.02) * draw.standard_normal(COUNT)
    return {"wide": wide, "time_s": draw.uniform(1e-6, 1e-3, COUNT)}, rest, np.arange(COUNT) // 4


def test_rows_that_deviate_more_get_larger_scales_on_sites_that_no_tree_saw():
    columns, rest, sites = drawn(1)
    trees, each = fit_scale(columns, rest, sites)
    unseen, _, _ = drawn(2)
    for scales, wide in ((each, columns["wide"]), (walked(trees, unseen), unseen["wide"])):
        ratio = np.median(scales[wide > 75]) / np.median(scales[wide < 75])
        assert ratio == pytest.approx(10, rel=0.3)


def test_intervals_by_scale_cover_unseen_rows_and_are_narrower_than_one_width_for_all():
    columns, rest, sites = drawn(3)
    trees, each = fit_scale(columns, rest, sites)
    end = np.quantile(np.abs(rest / each), 0.9)
    unseen, others, _ = drawn(4)
    widths = end * walked(trees, unseen)
    assert (np.abs(others) <= widths).mean() == pytest.approx(0.9, abs=0.02)
    assert np.median(widths) < 0.7 * np.quantile(np.abs(rest), 0.9)


def test_rows_that_the_prediction_has_seen_help_to_tell_which_deviate_more_but_not_by_how_much():
    columns, rest, sites = drawn(7)
    few = slice(None, 24)
    own = {name: column[few] for name, column in columns.items()}
    seen, others, _ = drawn(8)
    unseen, _, _ = drawn(9)
    wide = unseen["wide"] > 75

    def told(more):
        scales = walked(fit_scale(own, 10 * rest[few], sites[few], more)[0], unseen)
        return np.median(scales[wide]) / np.median(scales[~wide]), np.median(scales)

    assert told((seen, 4 * others))[0] == pytest.approx(10, rel=0.3)
    assert told(None)[0] < 7
    assert told((seen, 4 * others))[1] == pytest.approx(told((seen, 8 * others))[1], rel=0.1)


def test_rows_of_one_kind_get_one_scale():
    draw = np.random.default_rng(5)
    columns = {"wide": np.ones(COUNT), "time_s": np.ones(COUNT)}
    trees, each = fit_scale(columns, draw.standard_normal(COUNT), np.arange(COUNT))
    assert np.unique(each).tolist() == [1.0]
    assert (trees.columns, trees.leaves) == ((), b"")


def test_an_entry_holds_the_scale_beside_the_ends_that_were_set_with_it():
    columns, rest, sites = drawn(6)
    trees, _ = fit_scale(columns, rest, sites)
    plain, ends = {"dram": (0.5, 2.0)}, {"dram": (0.9, 1.1)}
    entry = intervals(plain, Refinement(correction=None, scale=trees, ends=ends))
    assert (entry["interval"], entry["plain_interval"]) == ({"dram": [0.9, 1.1]}, {"dram": [0.5, 2.0]})
    assert correction_of(json.loads(json.dumps(entry["scale"]))) == trees
    assert intervals(plain, Refinement(correction=None, scale=None, ends=ends)) == {"interval": {"dram": [0.5, 2.0]}}
    assert intervals(plain, None) == {"interval": {"dram": [0.5, 2.0]}}


def test_a_table_stretches_intervals_as_its_cases_do_whoever_measures():
    cases = [nearpeak.case("gemm", m=m, n=4096, k=k, dtype="bf16") for m in (1, 100, 5000) for k in (128, 8192)]
    for setting in (Setting(), Setting(measured_by="deepbench"), Setting(is_corrected=False)):
        found = predict_table(table_of_cases(cases), target_of("h100_sxm"), setting)
        each = [predict_case(case, target_of("h100_sxm"), setting) for case in cases]
        assert found.low_s == pytest.approx([one.low_s for one in each])
        assert found.high_s == pytest.approx([one.high_s for one in each])
    assert each[0].calibration.scale is None


def test_both_gradients_of_a_convolution_are_as_sure_as_their_kernels_on_average():
    case = nearpeak.case(
        "conv", phase="backward", batch=32, in_channels=64, out_channels=64, h=56, w=56, kh=3, kw=3, ph=1, pw=1,
        dtype="fp32",
    )  # fmt: skip
    found = nearpeak.predict(case, "mi100")
    assert found.calibration.scale is not None
    assert found.bound_s <= found.low_s < found.time_s < found.high_s
    whole = predict_table(table_of_cases([case]), target_of("mi100"))
    assert (whole.low_s[0], whole.high_s[0]) == pytest.approx((found.low_s, found.high_s))


def test_a_broken_scale_is_refused_by_name(tmp_path):
    from nearpeak.prediction import KERNEL_MODELS
    from nearpeak.prediction.calibration.coefficient_file import groups_of
    from nearpeak.prediction.calibration.coefficient_reader import calibration_of_group
    from nearpeak.prediction.calibration.coefficient_store import _FOLDER

    entry = groups_of(_FOLDER / "gemm/h100_sxm.toml")["gemm.bf16"]
    broken = entry | {"scale": entry["scale"] | {"leaves": "abc"}}
    with pytest.raises(SpecError, match=r"scale: .*fit again"):
        calibration_of_group(broken, "h100_sxm gemm.bf16", KERNEL_MODELS["gemm"], 1.0)
    known = calibration_of_group(entry, "h100_sxm gemm.bf16", KERNEL_MODELS["gemm"], 1.0).scale
    assert correction_entry(known) == entry["scale"]
