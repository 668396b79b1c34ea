import numpy as np
import pytest

from nearpeak.errors import NotModelledError, SpecError
from nearpeak.prediction.calibration.coefficient_file import file_text, groups_of
from nearpeak.prediction.calibration.coefficient_store import calibration_for
from nearpeak.prediction.calibration.device_fit import (
    calibrate,
    calibrate_each,
    insensitive_places,
    spread_from,
    unidentified_places,
)
from nearpeak.prediction.calibration.measurement_design import chosen, design, misfit_of, weights_of
from nearpeak.prediction.calibration.sample_screen import check_fit
from nearpeak.prediction.calibration.samples import samples_of
from nearpeak.prediction.case_prediction import predict_case
from nearpeak.prediction.kernel_model import USUAL, CaseColumns
from nearpeak.prediction.models.gemm import KERNEL_MODEL
from nearpeak.prediction.refinement import coefficients_of
from nearpeak.targets import target_of

DEVICE = target_of("h200_sxm")
BF16 = {"dtype": "bf16"}
POSITIONS = {coefficient.name: i for i, coefficient in enumerate(KERNEL_MODEL.coefficients)}


def times_with(target, axes, **coefficients):
    cases = CaseColumns(op="gemm", phase="forward", dtypes=BF16, axes=axes)
    values = coefficients_of(calibration_for(target, KERNEL_MODEL, cases)).copy()
    for name, value in coefficients.items():
        values[POSITIONS[name]] = value
    return KERNEL_MODEL.rows(target, cases, values, USUAL).time_s


def table(count=200, **coefficients):
    draw = np.random.default_rng(5)
    low, high = {"m": 0, "n": 7, "k": 7}, {"m": 9, "n": 9.7, "k": 9.7}
    axes = {axis: np.exp(draw.uniform(low[axis], high[axis], count)).astype(np.int64) for axis in "mnk"}
    time_s = times_with(DEVICE, axes, **coefficients)
    return {"op": "gemm", "dtype": "bf16", **axes, "time_s": time_s * np.exp(draw.normal(0, 0.02, count))}


def test_a_fit_finds_what_differs_on_the_new_device_and_keeps_what_it_cannot_see():
    columns = table(launch_s=6e-6, dram_ratio=0.6)
    (found,) = calibrate(samples_of(columns), DEVICE, "made")
    assert found.values["launch_s"] == pytest.approx(6e-6, rel=0.1)
    assert found.values["dram_ratio"] == pytest.approx(0.6, rel=0.05)
    held = {one.name: one.reason for one in found.held}
    assert held["quantise_s"] == "has no measurable effect on these cases"
    assert found.values["quantise_s"] == {c.name: c.value for c in found.start.coefficients}["quantise_s"]
    assert found.fitted_ratio <= found.unseen_ratio < 0.03 < found.before_ratio


def test_a_written_file_gives_the_fitted_times_and_keeps_other_groups(tmp_path):
    samples = samples_of(table(launch_s=6e-6))
    (found,) = calibrate(samples, DEVICE, "made")
    path = tmp_path / "own.toml"
    path.write_text(file_text({"gemm.fp32": dict(found.entry), found.name: dict(found.entry)}))
    assert set(groups_of(path)) == {"gemm.bf16", "gemm.fp32"}
    case = samples.cases[0]
    one = predict_case(case, DEVICE, file=path)
    assert one.calibration.source == "made"
    assert one.distance_count == 0
    assert one.low_s <= samples.measured_s[0] * 1.2


def test_of_scalars_that_cases_cannot_tell_apart_none_is_fixed_at_its_start():
    own = np.random.default_rng(3).normal(0, 0.3, (30, 3))
    effects = np.column_stack([own, own[:, 0], np.full(30, 1e-6)])
    assert unidentified_places(effects) == [3, 4]
    assert insensitive_places(effects) == [4]


def test_cases_that_cannot_tell_the_leading_scalars_apart_are_refused():
    columns = {"op": "gemm", "dtype": "bf16", "m": np.arange(8191, 8200), "n": 8192, "k": 8192}
    with pytest.raises(SpecError, match=r"too alike, they identify .* alone; add "):
        calibrate(samples_of({**columns, "time_us": np.full(9, 1500.0)}), DEVICE, "made")


def test_a_short_plan_is_not_refused_for_being_short():
    points = design(DEVICE, "gemm", BF16, 9).points
    axes = {axis: np.array([dict(point.case.axes)[axis] for point in points]) for axis in "mnk"}
    (found,) = calibrate(
        samples_of({"op": "gemm", "dtype": "bf16", **axes, "time_s": times_with(DEVICE, axes)}), DEVICE, "made"
    )
    assert len(found.held) == len(KERNEL_MODEL.coefficients) - 3


def test_too_few_cases_and_operators_without_a_form_are_refused():
    few = {"op": "gemm", "dtype": "bf16", "m": [1, 2, 3], "n": 16, "k": 16, "time_us": [5.0, 5.0, 5.0]}
    with pytest.raises(SpecError, match="3 distinct cases; at least 8"):
        calibrate(samples_of(few), DEVICE, "made")
    other = {"op": "cumsum", "dtype": "fp32", "rows": [4, 8], "columns": 16, "time_us": [5.0, 5.0]}
    with pytest.raises((NotModelledError, SpecError)):
        calibrate(samples_of(other), DEVICE, "made")


def test_cases_that_a_form_misses_alike_are_not_all_chosen_at_the_far_end():
    places = 2.0 ** np.linspace(0, 10, 101)
    effects = np.linspace(0, 0.3, 101)[:, None]  # one scalar, which tells most at the end
    alone = [pick for pick, _ in chosen(effects, 6)]
    spread = [pick for pick, _ in chosen(effects, 6, misfit_of([places]))]
    assert min(alone) > 90
    assert min(spread) < 40
    assert max(spread) > 90
    assert chosen(effects, 6)[-1][1][0, 0] < chosen(effects, 6, misfit_of([places]))[-1][1][0, 0]


def test_long_cases_count_as_much_as_all_together():
    effects = np.zeros((101, 2))
    effects[:100, 0], effects[100, 1] = 0.1, 0.3  # one scalar for many short cases, one for the only long one
    times_s = np.where(np.arange(101) < 100, 5e-6, 1e-3)
    assert [pick for pick, _ in chosen(effects, 1)] == [0]
    assert [pick for pick, _ in chosen(effects, 1, weights=weights_of(times_s))] == [100]


def test_two_devices_alike_do_not_make_the_third_one_sure():
    usual = np.array([coefficient.usual_value for coefficient in KERNEL_MODEL.coefficients])
    two, ten = (spread_from(KERNEL_MODEL, [(usual, ())] * count, usual) for count in (2, 10))
    none = spread_from(KERNEL_MODEL, [(usual, [coefficient.name for coefficient in KERNEL_MODEL.coefficients])], usual)
    assert (ten < two).all()
    assert (two < none).all()
    assert two.min() > 0.9


def test_tables_name_the_unit_of_their_times_and_bad_rows_are_set_aside():
    columns = {"op": "gemm", "dtype": "bf16", "m": [8, 9, 10], "n": 64, "k": 64, "latency_us": ["3.5", "nan", "-2"]}
    found = samples_of(columns)
    assert found.measured_s.tolist() == [pytest.approx(3.5e-6)]
    assert [(one.row, one.column) for one in found.set_aside] == [(2, "latency_us"), (3, "latency_us")]
    with pytest.raises(SpecError, match="no column of times"):
        samples_of({"op": "gemm", "dtype": "bf16", "m": [8], "n": 64, "k": 64})
    with pytest.raises(SpecError, match="are both times"):
        samples_of({**columns, "time_s": [1.0, 1.0, 1.0]})
    with pytest.raises(SpecError, match="none of its 3 rows"):
        samples_of({**columns, "latency_us": ["x", "0", "-1"]})


def test_each_case_of_a_design_adds_and_thirty_is_the_most():
    found = design(target_of("rtx_3090"), "gemm", BF16, 12)
    errors = [found.before_ratio, *(point.error_ratio for point in found.points)]
    assert errors == sorted(errors, reverse=True)
    assert len({point.case for point in found.points}) == 12
    assert found.distance_count == 2
    with pytest.raises(SpecError, match="1 to 30"):
        design(target_of("rtx_5090"), "gemm", BF16, 31)


def test_designed_cases_buy_more_than_as_many_that_are_alike():
    target, truth = DEVICE, {"launch_s": 6e-6, "dram_ratio": 0.6, "balanced_elements": 300.0}
    points = design(target, "gemm", BF16, 12).points
    designed = {axis: np.array([dict(point.case.axes)[axis] for point in points]) for axis in "mnk"}
    test = {axis: np.exp(np.random.default_rng(1).uniform(3, 9.5, 300)).astype(np.int64) for axis in "mnk"}

    def unseen_error(axes):
        columns = {"op": "gemm", "dtype": "bf16", **axes, "time_s": times_with(target, axes, **truth)}
        (found,) = calibrate(samples_of(columns), target, "made")
        return np.abs(times_with(target, test, **found.values) / times_with(target, test, **truth) - 1).mean()

    alike = {"m": np.array([16, 64, 4096] * 4), "n": np.full(12, 4096), "k": np.arange(1, 13) * 1024}
    assert unseen_error(designed) < 0.6 * unseen_error(alike)


def test_times_that_no_scalars_give_are_refused_when_the_fit_is_no_better_than_its_start():
    with pytest.raises(SpecError, match=r"mean error 60 % before the fit, 70 % after it, a factor of 2 in the median"):
        check_fit("gemm.bf16", 0.6, 0.7, np.array([2.0, 0.5, 3.0]), DEVICE)
    check_fit("gemm.bf16", 0.9, 0.7, np.array([2.0]), DEVICE)  # large, but better than before
    check_fit("gemm.bf16", 0.04, 0.05, np.array([1.1]), DEVICE)  # no better, but there was little to gain


def test_repeats_far_below_the_bound_are_not_taken_for_the_best_of_their_case():
    columns = table(100, dram_ratio=0.6)
    clean = calibrate_each(samples_of(columns), DEVICE, "made").fits[0]
    twice = {name: c if isinstance(c, str) else np.concatenate([c, c[:5]]) for name, c in columns.items()}
    twice["time_s"][100:] /= 1000
    found = calibrate_each(samples_of(twice), DEVICE, "made")
    assert [one.row for one in found.set_aside] == [101, 102, 103, 104, 105]
    assert found.fits[0].values == clean.values


def test_short_cases_do_not_make_long_ones_sure():
    small = {"m": 2 ** np.arange(10), "n": np.tile([128, 512], 5), "k": np.repeat([64, 256], 5)}
    time_s = times_with(DEVICE, small, launch_s=6e-6) * np.exp(np.random.default_rng(3).normal(0, 0.01, 10))
    (found,) = calibrate(samples_of({"op": "gemm", "dtype": "bf16", **small, "time_s": time_s}), DEVICE, "made")
    ends = found.entry["interval"]
    assert ends["launch"][1] < found.start.high_ratio["tensor"]
    assert ends["tensor"][0] <= found.start.low_ratio["tensor"] + 1e-4
    assert ends["tensor"][1] >= found.start.high_ratio["tensor"] - 1e-4
