import json

import numpy as np
import pytest
from typer.testing import CliRunner

import nearpeak
from nearpeak.cli import application
from nearpeak.ops.shared.tables.case_table import case_table
from nearpeak.prediction.calibration.source_spread import (
    OLDER_LIBRARIES,
    spread_of,
    with_older_libraries_spread,
)
from nearpeak.prediction.case_prediction import predict_case, predict_table
from nearpeak.prediction.kernel_model import Setting
from nearpeak.targets import target_of

CASE = nearpeak.case("gemm", m=512, n=4096, k=4096, dtype="bf16")
WORDS = "gemm m=512 n=4096 k=4096 dtype=bf16"


def test_measurements_of_others_have_wider_intervals_around_the_same_time():
    own, other = (nearpeak.predict(CASE, "h100_sxm", elsewhere=wide) for wide in (False, True))
    assert other.time_s == own.time_s
    assert other.high_s > own.high_s
    assert other.bound_s <= other.low_s < own.low_s


def test_ends_add_in_squares_of_logarithms():
    own, other = (nearpeak.predict(CASE, "h100_sxm", elsewhere=wide) for wide in (False, True))
    slower = spread_of()[1]
    assert np.log(other.high_s / other.time_s) == pytest.approx(np.hypot(np.log(own.high_s / own.time_s), slower))


def test_a_source_is_judged_by_the_spread_of_the_others():
    assert spread_of("vidur") != spread_of()
    assert spread_of("a source that nobody knows") == spread_of()


def test_a_table_gives_the_same_ends_as_its_cases():
    setting, target = Setting(measured_by="deepbench"), target_of("b200_sxm")
    table = case_table({"op": "gemm", "dtype": "bf16", "m": [1, 64, 4096], "n": 4096, "k": 4096})
    found = predict_table(table, target, setting)
    for row, case in enumerate(table.cases()):
        one = predict_case(case, target, setting)
        assert (found.low_s[row], found.high_s[row]) == pytest.approx((one.low_s, one.high_s))


def test_scalars_of_another_format_are_a_step_away_and_less_sure_by_what_formats_differ():
    times, fitted = {}, {"int8": "fp8_tensor", "fp16": "bf16", "bf16": "bf16"}
    for dtype, group in fitted.items():
        case = nearpeak.case("gemm", m=2048, n=4096, k=4096, dtype=dtype)
        times[dtype] = nearpeak.predict(case, "h100_sxm")
        assert times[dtype].calibration.name == f"h100_sxm gemm.{group}"
    assert [times[dtype].distance_count for dtype in fitted] == [1, 0, 0]
    assert times["int8"].calibration.apart_ratio == pytest.approx(tuple(np.exp(spread_of("other_format_gemm"))))
    assert times["fp16"].calibration.apart_ratio == (1.0, 1.0)
    assert times["int8"].high_s / times["int8"].low_s > 1.5 * times["fp16"].high_s / times["fp16"].low_s


def test_links_of_another_kind_make_a_kin_device_less_sure():
    case = nearpeak.case("collective", kind="all_reduce", ranks=4, elements=2**20, dtype="fp16")
    near, far = (nearpeak.predict(case, name) for name in ("h200_sxm", "h100_pcie"))
    assert near.calibration.distance_count == far.calibration.distance_count == 1
    assert near.calibration.apart_ratio == pytest.approx((np.exp(0.05), np.exp(0.05)))
    assert far.calibration.apart_ratio == pytest.approx(tuple(np.exp(spread_of())))
    assert far.high_s / far.time_s > far.calibration.apart_ratio[1]


def test_the_command_takes_the_option():
    found = [
        json.loads(
            CliRunner()
            .invoke(application(), ["predict", *WORDS.split(), "--target", "h100_sxm", "--json", *more])
            .stdout
        )
        for more in ([], ["--elsewhere"])
    ]
    assert found[1]["high_s"] > found[0]["high_s"]
    assert found[1]["predicted_s"] == found[0]["predicted_s"]


def test_scalars_of_another_board_of_the_architecture_are_as_sure_as_boards_left_out_show():
    rows = nearpeak.case("embedding", tokens=4096, dim=4096, vocab=32000, dtype="bf16")
    own, cousin = (nearpeak.predict(rows, name) for name in ("a100_sxm_80gb", "rtx_a6000"))
    assert (own.distance_count, cousin.distance_count) == (0, 1)
    assert own.calibration.apart_ratio == (1.0, 1.0)
    assert cousin.calibration.apart_ratio == pytest.approx(tuple(np.exp(spread_of("cousins_stream"))))
    assert cousin.high_s / cousin.low_s > 2 * own.high_s / own.low_s


def test_twins_that_nobody_measured_in_a_form_stay_as_sure_as_they_were():
    assert nearpeak.predict(CASE, "h200_sxm").calibration.apart_ratio == (1.0, 1.0)
    part = nearpeak.predict(nearpeak.case("softmax", rows=4096, columns=4096, dtype="fp16"), "h100_sxm:1g.10gb")
    assert part.calibration.apart_ratio == (1.0, 1.0)


def test_a_device_that_is_left_out_is_predicted_as_if_nobody_had_measured_it():
    add = nearpeak.case("elementwise", elements=2**24, b=2**24, dtype="fp32", function="add")
    target = target_of("p4")
    own, without = (predict_case(add, target, Setting(excluded_device=device)) for device in ("", "p4"))
    assert (own.calibration.name, own.distance_count) == ("p4 stream.pointwise", 0)
    assert (without.calibration.name, without.distance_count) == ("p100_pcie stream.pointwise", 1)


def test_scalars_of_two_boards_together_are_less_sure_than_those_of_several():
    rows = {"dtype": "fp16", "rows": 4096, "hidden": 4096}
    of_two, of_several = (nearpeak.predict(nearpeak.case(op, **rows), "rtx_3090") for op in ("rms_norm", "layer_norm"))
    assert of_two.distance_count == of_several.distance_count == 2
    assert of_two.calibration.apart_ratio == pytest.approx(tuple(np.exp(spread_of("cousins_stream"))))
    assert of_several.calibration.apart_ratio == (1.0, 1.0)


def test_scalars_of_one_board_stand_for_other_architectures_with_the_spread_of_all_cousins():
    norm = nearpeak.case("layer_norm", dtype="fp32", rows=4096, hidden=4096)
    measured, other = (nearpeak.predict(norm, name) for name in ("mi100", "mi355x"))
    assert (measured.distance_count, other.distance_count) == (0, 2)
    assert other.calibration.apart_ratio == pytest.approx(tuple(np.exp(spread_of("cousins"))))
    assert measured.calibration.apart_ratio == (1.0, 1.0)


def test_twins_are_less_sure_where_versions_of_frameworks_differ_more_than_half_an_interval():
    heads = {"heads": 32, "kv_heads": 8, "q": 2048, "kv": 2048, "dim": 128, "batch": 4}
    attention = nearpeak.case("attention", dtype="bf16", causal=True, **heads)
    product = nearpeak.case("gemm", dtype="bf16", m=4096, n=4096, k=4096)
    found = {case.op: nearpeak.predict(case, "h200_sxm").calibration for case in (attention, product)}
    assert found["attention"].apart_ratio == pytest.approx((np.exp(0.15), np.exp(0.15)))
    assert found["gemm"].apart_ratio == (1.0, 1.0)
    assert nearpeak.predict(attention, "h100_sxm").calibration.apart_ratio == (1.0, 1.0)


@pytest.mark.parametrize(("device", "source"), [("rtx_pro_6000", "l40s"), ("l4", "l40s"), ("gb200", "b200_sxm")])
def test_what_documents_move_a_rate_by_is_half_as_unsure(device, source):
    found = {}
    for name in (device, source):
        used = nearpeak.predict(nearpeak.case("gemm", dtype="bf16", m=4096, n=4096, k=4096), name).calibration
        known = {one.name: one.value for one in used.coefficients}
        found[name] = known["tensor_ratio"] / (1 + known["clock_ratio"]), used.apart_ratio
    moved = abs(np.log(found[device][0] / found[source][0]))
    assert np.log(found[device][1]) == pytest.approx([moved / 2] * 2)


def test_a_board_older_than_all_that_were_measured_is_less_sure_by_what_older_libraries_show():
    product = nearpeak.case("gemm", m=512, n=4096, k=4096, dtype="fp32")
    old, kin = (nearpeak.predict(product, name).calibration for name in ("m40", "gtx_1080_ti"))
    assert spread_of(OLDER_LIBRARIES) != spread_of()  # has an entry of its own
    target, behind = target_of("m40"), [target_of(name) for name in ("p4", "t4")]
    widened = with_older_libraries_spread(kin, target, behind).apart_ratio
    assert np.log(widened) == pytest.approx(np.hypot(np.log(kin.apart_ratio), spread_of(OLDER_LIBRARIES)))
    assert with_older_libraries_spread(kin, target_of("gtx_1080_ti"), behind) is kin
    assert with_older_libraries_spread(kin, target, []) is kin
    assert (np.log(old.apart_ratio) >= np.array(spread_of(OLDER_LIBRARIES)) - 1e-9).all()
