import json

import numpy as np
import pytest
from typer.testing import CliRunner

import nearpeak
from nearpeak.cli import application
from nearpeak.prediction.gemm.gemm_coefficients import COEFFICIENTS
from nearpeak.prediction.gemm.gemm_transfer import transferred
from nearpeak.prediction.kernel_model import USUAL, CaseColumns
from nearpeak.prediction.models.gemm import KERNEL_MODEL
from nearpeak.prediction.power.voltage import drawn_ratio
from nearpeak.prediction.product_units import unit_of
from nearpeak.targets import target_of

BF16, FP32 = {"dtype": "bf16"}, {"dtype": "fp32"}
NAMES = [coefficient.name for coefficient in COEFFICIENTS]
SKINNY = nearpeak.case("gemm", m=16, n=4096, k=16384, dtype="bf16")


def coefficients(**changed):
    values = [coefficient.usual_value for coefficient in COEFFICIENTS]
    for name, value in changed.items():
        values[NAMES.index(name)] = value
    return np.array(values)


def sustained(values):
    return values[NAMES.index("tensor_ratio")] / (1 + values[NAMES.index("clock_ratio")])


def moved(target, source, dtypes=BF16, is_related=True, **changed):
    pairs = [(target_of(source), coefficients(**changed))]
    return transferred(target_of(target), dtypes, pairs, is_related=is_related)[0]


def left_w(name):
    device = target_of(name)
    return 0.87 * device.power_w - 0.283 * device.sm_count


def test_boards_of_a_chip_sustain_the_clock_at_which_both_take_the_same_energy_above_what_they_draw_at_rest():
    for target, source, start in (
        ("a100_pcie_80gb", "a100_sxm_80gb", 0.9), ("a100_sxm_80gb", "a100_pcie_80gb", 0.8),
    ):  # fmt: skip
        found = sustained(moved(target, source, tensor_ratio=start, clock_ratio=0.0))
        power = drawn_ratio(found) / drawn_ratio(start)
        assert power == pytest.approx(left_w(target) / left_w(source), rel=1e-4)


def test_small_boards_sustain_less_and_kernels_of_old_processes_that_are_slow_keep_their_share():
    low = sustained(moved("l4", "l40s", tensor_ratio=0.7, clock_ratio=0.0))
    assert 0.7 * (72 / 121) / (350 / 362) < low < 0.6
    slow = {"tensor_ratio": 0.35, "clock_ratio": 0.0}
    assert sustained(moved("v100_sxm_32gb", "v100_sxm", {"dtype": "fp16"}, **slow)) == pytest.approx(0.35)


def test_a_board_with_more_power_for_each_product_reaches_more_with_the_same_work_per_clock():
    blocks, slow = {"dtype": "fp8_block"}, {"tensor_ratio": 0.3456, "clock_ratio": 0.0}
    less, more = (sustained(moved(name, "mi300x", blocks, **slow)) for name in ("mi325x", "mi308x"))
    assert less / 0.3456 == pytest.approx(1519 / 1273, rel=0.03), "as AMD's most achievable rates in fp8"
    assert 0.43 < more < 0.55
    assert sustained(moved("mi300x", "mi300x", blocks, **slow)) == pytest.approx(0.3456)
    there = moved("mi325x", "mi300x", blocks, **slow)
    pairs = [(target_of("mi325x"), there)]
    back = transferred(target_of("mi300x"), blocks, pairs, is_related=True)[0]
    assert sustained(back) == pytest.approx(0.3456, rel=1e-4)


def test_a_new_peak_of_the_same_chip_is_not_reached_in_proportion():
    nvfp4, start = {"dtype": "nvfp4"}, {"tensor_ratio": 0.577, "clock_ratio": 0.02, "balanced_elements": 200.0}
    found = moved("b300_sxm", "b200_sxm", nvfp4, **start)
    faster = sustained(found) * 14000 / (sustained(coefficients(**start)) * 9000)
    assert 1.1 < faster < 1.4, "of 1.56 times the peak with 1.1 times the power"
    assert found[NAMES.index("balanced_elements")] == pytest.approx(300.0), "the cache feeds no more bytes"


def test_voltage_belongs_to_a_clock_and_a_finer_process_takes_less_of_it():
    per_product = {name: target_of(name).power_w / target_of(name).flop_per_s("tensor.bf16") for name in
                   ("b200_sxm", "gb200", "l40s", "rtx_pro_6000")}  # fmt: skip
    assert per_product["gb200"] > 1.07 * per_product["b200_sxm"]
    start = {"tensor_ratio": 0.735, "clock_ratio": 0.0}
    assert sustained(moved("gb200", "b200_sxm", **start)) == pytest.approx(0.735, rel=0.02), "quoted at a higher clock"
    assert sustained(moved("h200_sxm", "h100_sxm", **start)) == 0.735
    workstation = sustained(moved("rtx_pro_6000", "l40s", tensor_ratio=0.695, clock_ratio=0.0))
    power = drawn_ratio(workstation * 2.43 / 2.52) / drawn_ratio(0.695 * 2.49 / 2.52)
    assert power == pytest.approx(left_w("rtx_pro_6000") / 188 / (left_w("l40s") / 142) / (0.33 / 0.40), rel=0.01)
    assert 0.85 < workstation < 0.95


def test_a_kernel_for_one_architecture_tells_of_no_other():
    case = nearpeak.case("scaled_gemm", m=8192, n=8192, k=8192, dtype="fp8_block")
    workstation, ada = (nearpeak.predict(case, name) for name in ("rtx_pro_6000", "rtx_6000_ada"))
    assert (workstation.distance_count, ada.distance_count) == (2, 1)
    peaks = [target_of(name).flop_per_s("tensor.fp8") for name in ("rtx_pro_6000", "rtx_6000_ada")]
    assert workstation.time_s * peaks[0] < 0.7 * ada.time_s * peaks[1]
    assert workstation.high_s * peaks[0] > ada.time_s * peaks[1], "such a kernel may be all there is"
    assert workstation.low_s < 0.9 * workstation.time_s


def test_what_kernels_lose_by_scales_of_blocks_is_not_carried_to_formats_without():
    device, shape = "mi300x", {"m": 8192, "n": 8192, "k": 8192}
    target = target_of(device)
    plain = nearpeak.predict(nearpeak.case("gemm", dtype="bf16", **shape), device)
    blocks = nearpeak.predict(nearpeak.case("scaled_gemm", dtype="fp8_block", **shape), device)
    shares = [
        2 * 8192**3 / one.time_s / target.flop_per_s(unit)
        for one, unit in ((plain, "tensor.bf16"), (blocks, "tensor.fp8"))
    ]
    assert 0.36 < shares[0] < 0.54, "708 of 1307 TFLOP/s is the most that is published for the MI300X"
    assert shares[1] < 0.36
    assert plain.distance_count >= 1
    assert plain.high_s / plain.low_s > 2


def test_caches_feed_as_many_bytes_where_only_the_rate_of_products_is_held_back():
    place = NAMES.index("balanced_elements")
    assert moved("h20", "h100_sxm", balanced_elements=160.0)[place] == pytest.approx(40.0)
    assert moved("h200_sxm", "h100_sxm", balanced_elements=160.0)[place] == pytest.approx(160.0)


def test_waits_are_numbers_of_clocks_whatever_the_board():
    clocks = {name: target_of(name).peaks["tensor.bf16"].clock_hz for name in ("l40s", "a100_sxm_80gb")}
    ratio = clocks["a100_sxm_80gb"] / clocks["l40s"]
    assert ratio < 0.6
    found = moved("l40s", "a100_sxm_80gb", is_related=False, tile_start_s=4e-7, step_s=1e-7, split_s=3e-6)
    for name, value in (("tile_start_s", 4e-7), ("step_s", 1e-7), ("split_s", 3e-6)):
        assert found[NAMES.index(name)] == pytest.approx(value * ratio)
    assert found[NAMES.index("dram_ratio")] == coefficients()[NAMES.index("dram_ratio")]


def test_the_launch_follows_documented_floors_where_one_kernel_is_launched_and_else_the_clock():
    place = NAMES.index("launch_s")
    assert moved("b200_sxm", "h100_sxm", is_related=False, launch_s=2.1e-6)[place] == pytest.approx(
        2.1e-6 * 1.75 / 2.45
    )
    quantised = moved("b200_sxm", "h100_sxm", dtypes={"dtype": "fp8_tensor"}, is_related=False, launch_s=2.1e-6)
    clocks = [target_of(name).peaks["tensor.fp8"].clock_hz for name in ("h100_sxm", "b200_sxm")]
    assert quantised[place] == pytest.approx(2.1e-6 * clocks[0] / clocks[1])


def test_vector_units_of_small_boards_are_capped_by_power_even_from_other_kinds_of_devices():
    pairs = [(target_of(name), coefficients(tensor_ratio=0.92, clock_ratio=0.0)) for name in ("p4", "v100_pcie")]
    capped = transferred(target_of("t4"), FP32, pairs, is_related=False)
    assert all(sustained(one) < 0.84 for one in capped)
    free = transferred(target_of("p100_pcie"), FP32, pairs, is_related=False)
    assert all(0.92 <= sustained(one) < 0.92 * 1.07 for one in free)


def test_matrix_units_take_the_same_energy_per_product_at_the_same_clock_on_the_same_process():
    fp8, blocks = {"dtype": "fp8_tensor"}, {"dtype": "fp8_block"}
    fast = moved("l40s", "h100_sxm", is_related=False, tensor_ratio=1.0, clock_ratio=0.2)
    assert 0.6 < sustained(fast) < 0.8
    assert sustained(moved("l40s", "h100_sxm", fp8, is_related=False, tensor_ratio=1.0, clock_ratio=0.2)) < 0.8
    free = moved("l40s", "h100_sxm", blocks, is_related=False, tensor_ratio=0.9, clock_ratio=0.2)
    assert sustained(free) > 0.68
    large = moved("a100_sxm_80gb", "h100_sxm", is_related=False, tensor_ratio=1.0, clock_ratio=0.2)
    assert sustained(large) == pytest.approx(1.0 / 1.2 * 1.83 / 1.98)


def test_what_small_boards_lose_to_their_power_is_not_carried_to_boards_with_enough_of_it():
    sources = {"l40s": (0.7, 0.0), "a100_sxm_80gb": (0.86, 0.01), "b200_sxm": (0.96, 0.3)}
    pairs = [
        (target_of(name), coefficients(tensor_ratio=tensor, clock_ratio=clock))
        for name, (tensor, clock) in sources.items()
    ]
    kept = transferred(target_of("v100_sxm"), {"dtype": "fp16"}, pairs, is_related=False)
    assert all(sustained(one) >= 0.86 / 1.01 - 1e-9 for one in kept)
    low = transferred(target_of("l4"), BF16, pairs, is_related=False)
    assert all(sustained(one) < 0.7 for one in low)
    alone = transferred(target_of("v100_sxm"), {"dtype": "fp16"}, pairs[:1], is_related=False)
    assert sustained(alone[0]) < 0.71, "no board tells what kernels reach where power does not hold them back"


def test_single_precision_runs_on_vector_units_where_those_for_doubles_are_as_fast():
    assert [unit_of(target_of(name), FP32) for name in ("a100_sxm_80gb", "h100_sxm")] == ["vector.fp32"] * 2
    assert unit_of(target_of("a100_sxm_80gb"), {"dtype": "fp64"}) == "tensor.fp64"


@pytest.mark.parametrize("is_related", [True, False])
def test_what_tells_sessions_of_one_table_apart_stays_with_its_device(is_related):
    found = moved("v100_sxm", "v100_pcie", FP32, is_related, far_ratio=0.4, unaligned_ratio=2.0, dram_ratio=0.48)
    assert [found[NAMES.index(name)] for name in ("far_ratio", "unaligned_ratio")] == [0.0, 0.0]
    assert found[NAMES.index("dram_ratio")] == pytest.approx(0.7)
    assert moved("v100_sxm", "v100_pcie", FP32, is_related, dram_ratio=0.8)[NAMES.index("dram_ratio")] == 0.8


@pytest.mark.parametrize(
    ("target", "nearest"),
    [("titan_x_pascal", "p4"), ("p40", "p4"), ("p100_sxm", "p100_pcie"), ("v100_sxm", "v100_pcie")],
)
def test_of_several_kin_devices_the_one_with_the_most_alike_multiprocessors_serves(target, nearest):
    found = nearpeak.predict(nearpeak.case("gemm", m=512, n=4096, k=4096, dtype="fp32"), target)
    assert (found.distance_count, found.calibration.name) == (1, f"{nearest} gemm.fp32")


def test_products_reach_the_highest_clock_not_that_of_the_documented_rate():
    place = NAMES.index("tensor_ratio")
    assert moved("h100_sxm", "a100_sxm_80gb", is_related=False, tensor_ratio=0.8)[place] == pytest.approx(
        0.8 * 1.98 / 1.83
    )
    assert moved("h200_sxm", "h100_sxm", tensor_ratio=0.8)[place] == pytest.approx(0.8)


def test_what_stays_in_cache_between_kernels_is_taken_from_caches_of_the_same_kind():
    place, fp8 = NAMES.index("quantise_residency_ratio"), {"dtype": "fp8_tensor"}
    pairs = [
        (target_of(name), coefficients(quantise_residency_ratio=value))
        for name, value in (("h100_sxm", 0.05), ("b200_sxm", 0.2), ("l40s", 1.5))
    ]
    halved = transferred(target_of("a100_sxm_80gb"), BF16, pairs, is_related=False)
    assert [one[place] for one in halved] == pytest.approx([0.05, 0.2, 0.1])
    whole = transferred(target_of("rtx_pro_6000"), fp8, pairs, is_related=False)
    assert [one[place] for one in whole] == pytest.approx([1.5, 1.5, 1.5])
    unknown = transferred(target_of("l40s"), fp8, pairs[:2], is_related=False)
    assert [one[place] for one in unknown] == pytest.approx([coefficients()[place]] * 2)


def test_two_dies_of_one_kind_share_scalars_and_corrections():
    for target, source in (("gb300", "b200_sxm"), ("rtx_pro_6000", "l40s"), ("h20", "h100_sxm")):
        found = nearpeak.predict(SKINNY, target)
        assert (found.distance_count, found.calibration.name) == (1, f"{source} gemm.bf16")
        assert "library" in found.waterfall_s


def test_rows_that_are_no_whole_lines_load_more_slowly_where_single_products_are_measured_so():
    values = coefficients(unaligned_ratio=1.5)

    def time_of(m, batch=1):
        axes = {"m": np.array([m]), "n": np.array([512]), "k": np.array([8192]), "batch": np.array([batch])}
        cases = CaseColumns(op="gemm", phase="forward", dtypes=FP32, axes=axes)
        return KERNEL_MODEL.rows(target_of("p4"), cases, values, USUAL).time_s[0]

    assert time_of(1001) > 1.5 * time_of(1024)
    assert time_of(1001, batch=2) < 1.05 * time_of(1024, batch=2)


def test_the_bounded_correction_is_a_switch_and_its_share_is_seen(tmp_path):
    on, off = nearpeak.predict(SKINNY, "h100_sxm"), nearpeak.predict(SKINNY, "h100_sxm", correction=False)
    assert on.time_s - off.time_s == pytest.approx(on.waterfall_s["library"])
    assert "library" not in off.waterfall_s
    assert abs(np.log(on.time_s / off.time_s)) <= 0.25
    words = [
        "predict",
        "gemm",
        "m=16",
        "n=4096",
        "k=16384",
        "dtype=bf16",
        "-t",
        "h100_sxm",
        "--json",
        "--no-correction",
    ]
    said = json.loads(CliRunner().invoke(application(), words).stdout)
    assert said["predicted_s"] == off.time_s
