import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nearpeak
from nearpeak.core.answers.bound import Policy
from nearpeak.errors import NotModelledError
from nearpeak.prediction.conv.conv_shapes import product_of, shape_of
from nearpeak.prediction.model_choice import model_for
from nearpeak.prediction.models.conv import KERNEL_MODEL
from nearpeak.prediction.step_time import gap_of
from nearpeak.targets import target_of

SIZE = st.integers(1, 300)


@settings(max_examples=100, deadline=None)
@given(
    batch=st.integers(1, 256), inputs=SIZE, outputs=SIZE, w=st.integers(7, 128), kw=st.sampled_from((1, 3, 5, 7)),
    stride=st.integers(1, 2), groups=st.sampled_from((1, 4)), device=st.sampled_from(("h100_sxm", "mi100", "t4")),
    gradient=st.sampled_from(("", "grad_input", "grad_weight", "both")),
)  # fmt: skip
def test_parts_add_up_and_the_bound_the_interval_and_the_time_stand_in_order(
    batch, inputs, outputs, w, kw, stride, groups, device, gradient
):
    axes = {"in_channels": inputs * groups, "out_channels": outputs * groups, "w": w, "h": w, "kw": kw, "kh": kw}
    asked = {name: gradient in (name, "both") for name in ("grad_input", "grad_weight")} if gradient else {}
    case = nearpeak.case(
        "conv", "backward" if gradient else "forward", batch=batch, sw=stride, sh=stride, pw=kw // 2, ph=kw // 2,
        groups=groups, dtype="fp16", **axes, **asked,
    )  # fmt: skip
    found = nearpeak.predict(case, device)
    assert sum(term.time_s for term in found.terms) == pytest.approx(found.time_s, rel=1e-9)
    assert found.bound_s <= found.low_s <= found.time_s <= found.high_s


def test_a_table_gives_exactly_what_single_cases_give():
    channels = np.array([3, 16, 64, 64, 256, 512])
    cases = nearpeak.case_table({
        "op": "conv", "dtype": "fp16", "batch": 32, "in_channels": channels, "out_channels": channels[::-1].copy(),
        "w": 28, "h": 28, "kw": 3, "kh": 3, "pw": 1, "ph": 1,
    })  # fmt: skip
    table = nearpeak.predict(cases, "mi100")
    for row, case in enumerate(cases.cases()):
        assert nearpeak.predict(case, "mi100").time_s == pytest.approx(table.predicted_s[row], rel=1e-12)


def test_each_pass_has_the_same_arithmetic_without_strides():
    axes = {"batch": 4, "in_channels": 24, "out_channels": 16, "w": 14, "h": 14, "kw": 3, "kh": 3, "pw": 1, "ph": 1}
    shape = shape_of(axes)
    sizes = {
        part: float(np.prod([column[0] for column in product_of(shape, part)])) for part in ("fprop", "dgrad", "wgrad")
    }
    assert sizes == dict.fromkeys(sizes, 4 * 14 * 14 * 9 * 24 * 16)
    assert shape.flop[0] == 2 * 4 * 14 * 14 * 9 * 24 * 16


def test_both_gradients_together_take_as_long_as_one_after_the_other():
    def time(**asked):
        case = nearpeak.case(
            "conv", "backward", batch=32, in_channels=64, out_channels=64, w=28, h=28, kw=3, kh=3, dtype="fp32", **asked
        )
        return nearpeak.predict(case, "mi100").time_s

    assert time() == pytest.approx(time(grad_weight=False) + time(grad_input=False), rel=1e-9)


def test_winograd_makes_three_taps_cheaper_than_their_arithmetic():
    def time(kernel, **more):
        axes = {"w": 56, "h": 56, "kw": kernel, "kh": kernel, "pw": kernel // 2, "ph": kernel // 2} | more
        case = nearpeak.case("conv", batch=64, in_channels=128, out_channels=128, dtype="fp32", **axes)
        return nearpeak.predict(case, "t4").time_s

    assert time(3) < time(3, dw=2, dh=2, pw=2, ph=2)


def test_what_cannot_be_predicted_is_refused_in_one_line():
    shape = {"batch": 1, "in_channels": 8, "out_channels": 8, "w": 8, "kw": 3, "dtype": "fp32"}
    none = {"grad_input": False, "grad_weight": False, "grad_bias": True}
    bias = nearpeak.case("conv", "backward", **shape, **none)
    with pytest.raises(NotModelledError, match="bias alone"):
        nearpeak.predict(bias, "h100_sxm")
    with pytest.raises(NotModelledError, match="GPUs that state a memory bandwidth only"):
        nearpeak.predict(nearpeak.case("conv", **shape), "gaudi3")


def test_each_kernel_that_libraries_have_code_for_is_a_class_of_its_own():
    from nearpeak.prediction.conv.conv_coefficients import CLASSES
    from nearpeak.prediction.conv.pass_costs import class_of

    shapes = {
        "one_tap": {"kw": 1, "kh": 1}, "one_tap_strided": {"kw": 1, "kh": 1, "sw": 2, "sh": 2},
        "nine_tap": {"kw": 3, "kh": 3}, "few_tap": {"kw": 3, "kh": 1}, "many_tap": {"kw": 5, "kh": 5},
        "strided": {"kw": 3, "kh": 3, "sw": 2, "sh": 2}, "grouped": {"kw": 3, "kh": 3, "groups": 4},
        "depthwise": {"kw": 3, "kh": 3, "groups": 64},
    }  # fmt: skip
    assert list(shapes) == list(CLASSES)
    for place, axes in enumerate(shapes.values()):
        shape = shape_of({"batch": 1, "in_channels": 64, "out_channels": 64, "w": 28, "h": 28} | axes)
        assert class_of(shape).tolist() == [place]


def rows_of(fitted=None, setting=None, target="mi100", **axes):
    from nearpeak.prediction.kernel_model import CaseColumns, Setting
    from nearpeak.prediction.models.conv import KERNEL_MODEL
    from nearpeak.targets import target_of

    usual = {one.name: one.usual_value for one in KERNEL_MODEL.coefficients} | (fitted or {})
    shape = {"batch": 8, "in_channels": 64, "out_channels": 64, "w": 28, "h": 28, "kw": 3, "kh": 3} | axes
    cases = CaseColumns(op="conv", phase="forward", dtypes={"dtype": "fp32"}, axes=shape, attributes={})
    found = KERNEL_MODEL.rows(target_of(target), cases, np.array(list(usual.values())), setting or Setting())
    return found.time_s, dict(zip(KERNEL_MODEL.terms, found.parts_s.T, strict=True))


def test_a_clock_that_is_low_at_rest_slows_short_kernels_that_run_alone_only():
    from nearpeak.prediction.kernel_model import Setting

    batch = np.array([1, 8, 64, 4096])
    slow = {"slow_clock_ratio": 3.0, "clock_rise_s": 1e-3}
    usual, _ = rows_of(slow, batch=batch)
    alone, parts = rows_of(slow, Setting(is_alone=True), batch=batch)
    assert usual == pytest.approx(rows_of(batch=batch)[0])
    assert alone[0] / usual[0] == pytest.approx(3.0, rel=0.05)
    assert alone[-1] / usual[-1] == pytest.approx(1.0, rel=0.05)
    assert alone - parts["clock"] == pytest.approx(usual)


@settings(max_examples=100, deadline=None)
@given(ratio=st.floats(1.0, 6.0), rise_s=st.floats(50e-6, 5e-3), time_s=st.floats(1e-6, 1.0))
def test_more_work_never_takes_less_time_however_the_clock_rises(ratio, rise_s, time_s):
    from nearpeak.prediction.conv.pass_costs import clock_share
    from nearpeak.prediction.kernel_model import Setting

    times = np.array([time_s, 1.01 * time_s])
    seen = times * (1 + clock_share(times, {"slow_clock_ratio": ratio, "clock_rise_s": rise_s}, Setting(is_alone=True)))
    assert seen[1] >= seen[0]


@pytest.mark.parametrize(
    ("axes", "points", "wide_points"),
    [
        ({"kw": 3, "kh": 3, "w": 8, "h": 8, "pw": 1, "ph": 1}, (4 * 4) ** 2, (6 * 2) ** 2),
        ({"kw": 3, "kh": 3, "w": 9, "h": 9, "pw": 1, "ph": 1}, (4 * 5) ** 2, (6 * 3) ** 2),
        ({"kw": 3, "kh": 1, "w": 8, "h": 8, "pw": 1}, 4 * 4 * 8, 6 * 2 * 8),
        ({"kw": 3, "kh": 3, "w": 8, "h": 8, "pw": 1, "ph": 1, "sw": 2, "sh": 2}, (2 * (3 + 2)) ** 2, 0),
        ({"kw": 1, "kh": 1, "w": 8, "h": 8}, 0, 0),
        ({"kw": 3, "kh": 3, "w": 8, "h": 8, "dw": 2, "dh": 2}, 0, 0),
    ],
)
def test_winograd_counts_whole_tiles_and_splits_strided_kernels_by_parity(axes, points, wide_points):
    shape = shape_of({"batch": 1, "in_channels": 4, "out_channels": 4} | axes)
    assert (shape.points.tolist(), shape.wide_points.tolist()) == ([points], [wide_points])


def test_tiles_of_four_outputs_make_images_dear_whose_edge_is_just_above_a_multiple():
    dear = {"fprop_nine_tap_ratio": 0.01, "fprop_winograd_ratio": 0.02, "fprop_direct_ratio": 0.002}
    sizes, wide = np.array([28, 29, 32]), {"batch": 64, "in_channels": 512, "out_channels": 512, "pw": 1, "ph": 1}
    time, parts = rows_of(dear | {"unrolled_ratio": 0.005}, w=sizes, h=sizes, **wide)
    assert (parts["transforms"] > 0).all()
    assert time[1] == pytest.approx(time[2], rel=0.05)
    assert time[1] > 1.15 * time[0]


def test_unrolled_images_take_kernels_of_their_own_each():
    dear = {"fprop_strided_ratio": 0.005, "fprop_winograd_ratio": 0.02, "fprop_direct_ratio": 0.002}
    wide = {"in_channels": 512, "out_channels": 512, "w": 14, "h": 14, "sw": 2, "sh": 2}
    _, parts = rows_of(dear | {"unrolled_image_s": 50e-6}, batch=np.array([4, 8]), **wide)
    assert parts["transforms"][1] == pytest.approx(2 * parts["transforms"][0])
    assert parts["transforms"][0] > 4 * 50e-6


def test_images_that_no_vector_load_divides_are_dearer_with_one_tap_only():
    uneven = {"row_ratio": 2.0}

    def share(**axes):
        return float((rows_of(uneven, **axes)[0] / rows_of({"row_ratio": 1.0}, **axes)[0])[0])

    assert share(kw=1, kh=1, w=7, h=7, batch=1024) > 1.5
    assert share(kw=1, kh=1, w=8, h=8, batch=1024) == pytest.approx(1.0)
    assert share(w=7, h=7, batch=1024) == pytest.approx(1.0)


def test_a_fit_of_relative_deviations_finds_the_least_mean_error_where_equal_cases_differ():
    from nearpeak.prediction.calibration.fit import fit, relative
    from nearpeak.prediction.models.conv import KERNEL_MODEL

    place = [one.name for one in KERNEL_MODEL.coefficients].index("launch_s")
    measured = np.repeat([5e-6, 10e-6, 20e-6], [30, 30, 30])
    others = tuple(one.name for one in KERNEL_MODEL.coefficients if one.name != "launch_s")

    def error(deviation):
        found = fit(KERNEL_MODEL, lambda v: np.full(90, v[place]), measured, fixed=others, **deviation)
        return float(np.abs(found.values[place] / measured - 1).mean())

    best = min(np.abs(time / measured - 1).mean() for time in np.linspace(3e-6, 30e-6, 500))
    assert error({"deviation": relative}) < best + 0.02
    assert error({}) > error({"deviation": relative}) + 0.05


THREE_BY_THREE = {
    "batch": 32, "in_channels": 256, "out_channels": 256, "h": 28, "w": 28, "kh": 3, "kw": 3, "ph": 1, "pw": 1,
    "dtype": "fp32",
}  # fmt: skip


@pytest.mark.parametrize(("taps", "algorithm"), [(1, "classical"), (3, "any")])
def test_only_kernels_of_several_taps_are_held_to_the_bound_of_any_algorithm(taps, algorithm):
    case = nearpeak.case("conv", **THREE_BY_THREE | {"kh": taps, "kw": taps, "ph": taps // 2, "pw": taps // 2})
    found = nearpeak.predict(case, "mi60")
    assert found.algorithm == algorithm
    assert found.bound_s == nearpeak.bound(case, "mi60", Policy(algorithm=algorithm)).time_s
    assert (found.bound_s < nearpeak.bound(case, "mi60").time_s) == (taps > 1)


def test_a_table_of_kernels_with_one_tap_and_more_has_the_bounds_of_its_cases():
    table = nearpeak.case_table(
        {"op": "conv", **THREE_BY_THREE, "kh": [1, 3], "kw": [1, 3], "ph": [0, 1], "pw": [0, 1]}
    )
    found = nearpeak.predict(table, "mi60")
    assert found.bound_s == pytest.approx([nearpeak.predict(case, "mi60").bound_s for case in table.cases()])
    assert not found.bound_decides.any()


def test_a_step_is_held_to_classical_bounds_and_its_gap_still_adds_up():
    case = nearpeak.case("conv", **THREE_BY_THREE)
    found = nearpeak.predict(case, "mi60")
    for bound_s in (found.time_s / 2, found.time_s, 2 * found.time_s):
        gap = gap_of(found, model_for(case), bound_s)
        assert sum(gap.values()) == pytest.approx(max(found.time_s, bound_s) - bound_s, abs=1e-12)


def test_a_board_without_data_takes_the_scalars_of_the_kin_with_the_nearest_number_of_multiprocessors():
    case = nearpeak.case(
        "conv", batch=16, in_channels=64, out_channels=64, w=56, h=56, kw=3, kh=3, pw=1, ph=1, dtype="fp32"
    )
    found = nearpeak.predict(case, "mi25")
    assert (found.distance_count, found.calibration.name.split()[0]) == (1, "vega_64")


def test_what_tiles_add_is_worked_out_part_by_part_and_adds_up():
    from nearpeak.prediction.conv.conv_tiles import tiled

    target = target_of("v100_sxm")
    fitted = {"tail_ratio": 1.0, "depth_elements": 8.0, "edge_elements": 4.0, "tile_start_s": 1e-6}
    rate, ratio = 1e13, np.array([0.5])

    def costs(m, n, k, batch):
        found = tiled(target, tuple(np.array([float(x)]) for x in (m, n, k, batch)), rate, ratio, 1.0, fitted)
        return {name: float(part[0]) for name, part in found._asdict().items()}

    # one wave of whole tiles of 256 x 128, all multiprocessors busy
    whole = costs(256, 128, 1024, target.sm_count)
    assert whole["tile_padding"] == pytest.approx(0.0, abs=1e-12 * whole["products"])
    assert whole["wave_tail"] == 0.0
    assert whole["tile_start"] == 1e-6
    area, wider = 256 * 128, 256 * 128 + 4 * (256 + 128)
    assert whole["tile_edges"] == pytest.approx(2 * (wider * 1032 - area * 1024) * target.sm_count / (0.5 * rate))
    ragged = costs(250, 100, 1000, target.sm_count + 1)
    assert all(ragged[name] > 0 for name in ("tile_padding", "tile_edges", "wave_tail", "tile_start"))
    assert sum(ragged.values()) == pytest.approx(min(_times_by_tile(250, 100, 1000, target.sm_count + 1)), rel=1e-12)


def _times_by_tile(m, n, k, batch, sm_count=80):
    """Yield the times of whole sums by each tile, one after the other, from the formula."""
    from nearpeak.prediction.conv.conv_kernel import _TILES

    for wide, high in _TILES:
        load = -(-m // wide) * -(-n // high) * batch / sm_count
        depth = -(-k // 16) * 16 + 8
        yield np.ceil(load) * (2 * (wide * high + 4 * (wide + high)) * depth / (0.5 * 1e13 / sm_count) + 1e-6)


def test_corrections_and_regimes_know_what_tiles_add_as_one():
    from nearpeak.prediction.kernel_model import leading

    parts = np.zeros((1, len(KERNEL_MODEL.terms)))
    parts[0, [KERNEL_MODEL.terms.index(name) for name in ("products", "tile_padding", "wave_tail")]] = 3.0, 2.0, 2.0
    assert KERNEL_MODEL.regimes[KERNEL_MODEL.terms[int(leading(KERNEL_MODEL, parts)[0])]] == "padding"
    assert "padding" not in KERNEL_MODEL.terms
