import csv
import json
from pathlib import Path

import numpy as np
import pytest
from tests.sampling import in_turn

import nearpeak
from nearpeak.errors import NearpeakError, NotModelledError, SpecError
from nearpeak.ops import OPS
from nearpeak.prediction.case_prediction import predict_case
from nearpeak.prediction.kernel_model import Setting
from nearpeak.prediction.work_columns import work_columns
from nearpeak.targets import target_of

GOLDEN = Path(__file__).parents[2] / "golden/work"
FAMILIES = ("pointwise", "norm", "reduction", "movement", "optimizer")


def _golden_cases(op):
    """Return the distinct cases of an operator's golden rows."""
    with (GOLDEN / f"{op}.csv").open(encoding="utf-8") as file:
        rows = {(row["op"], row["phase"], row["arguments"]) for row in csv.DictReader(file)}
    return [nearpeak.case(name, phase, **json.loads(arguments)) for name, phase, arguments in sorted(rows)]


@pytest.mark.parametrize(
    ("op", "device"), in_turn([name for name in OPS if OPS[name].family in FAMILIES], ["h100_sxm", "rx_6800_xt"])
)
def test_every_operator_that_moves_data_has_a_time_whose_parts_add_up(op, device):
    for case in _golden_cases(op):
        try:
            bound = nearpeak.bound(case, device)
        except NearpeakError:
            continue  # no rate is documented for its formats
        found = nearpeak.predict(case, device)
        assert sum(term.time_s for term in found.terms) == pytest.approx(found.time_s, rel=1e-9)
        assert bound.time_s <= found.low_s <= found.time_s <= found.high_s
        assert found.limiter in found.waterfall_s


def test_an_operator_without_a_form_of_its_own_has_a_coarse_time_with_a_wide_interval():
    found = nearpeak.predict(nearpeak.case("linalg", batch=1, n=512, dtype="fp32"), "h100_sxm")
    assert "product" in found.calibration.name
    assert found.high_s / found.low_s > 1.5


def test_a_table_gives_exactly_what_single_cases_give():
    draw = np.random.default_rng(5)
    rows, hidden = (np.exp(draw.uniform(0, 9, 60)).astype(np.int64) for _ in range(2))
    cases = nearpeak.case_table({"op": "layer_norm", "dtype": "bf16", "rows": rows, "hidden": hidden})
    table = nearpeak.predict(cases, "h100_sxm")
    for row, case in enumerate(cases.cases()):
        one = nearpeak.predict(case, "h100_sxm")
        assert one.time_s == pytest.approx(table.predicted_s[row], rel=1e-12)
        assert (one.low_s, one.high_s) == pytest.approx((table.low_s[row], table.high_s[row]), rel=1e-12)


def test_extents_beyond_64_bits_are_counted_exactly_beside_others():
    columns = {"op": "softmax", "dtype": "fp32", "rows": np.array([8, 2**40]), "columns": np.array([8, 2**20])}
    found = nearpeak.predict(columns, "h100_sxm").predicted_s
    assert found[1] > 2**60 * 8 / target_of("h100_sxm").dram.bandwidth_bytes_per_s
    assert found[0] < 1e-4


def test_seen_from_the_host_a_small_call_takes_the_time_of_launching_it():
    target, small = (
        target_of("v100_pcie"),
        nearpeak.case("elementwise", elements=64, function="add", b=64, dtype="fp32"),
    )
    seen = predict_case(small, target, Setting(host_timed=True))
    assert seen.time_s > 3 * predict_case(small, target).time_s
    assert seen.limiter == "host"


def test_long_rows_that_the_cache_loses_are_read_again():
    def rate(columns):
        found = nearpeak.predict(nearpeak.case("layer_norm", rows=2**16, hidden=columns, dtype="fp32"), "t4")
        return columns / found.time_s

    assert rate(512) > 1.2 * rate(8192)


def test_tables_are_read_row_by_row_where_indices_are_not_known():
    case = nearpeak.case("embedding", tokens=4096, dim=1024, vocab=50_000, dtype="bf16")
    columns = work_columns(target_of("h100_sxm"), _columns(case))
    assert columns.read_bytes[0] >= 4096 * 1024 * 2


def _columns(case):
    from nearpeak.prediction.kernel_model import CaseColumns

    return CaseColumns(
        op=case.op, phase=case.phase, dtypes=dict(case.dtypes), axes=dict(case.axes), attributes=dict(case.attributes)
    )


def test_what_cannot_be_predicted_is_refused_in_one_line(tmp_path):
    case = nearpeak.case("softmax", rows=8, columns=8, dtype="fp32")
    with pytest.raises(NotModelledError, match="GPUs that state a memory bandwidth only"):
        nearpeak.predict(case, "gaudi3")
    path = tmp_path / "mine.toml"
    path.write_text('[groups."stream.softmax"]\nversion = "stream-0"\n')
    with pytest.raises(SpecError, match="fit again"):
        nearpeak.predict(case, "h100_sxm", calibration=path)


PLAIN = Setting(is_corrected=False)


def test_an_unmeasured_operator_is_less_sure_except_where_it_only_launches():
    for device in ("a100_sxm_80gb", "b200_sxm"):
        short, long = (
            [predict_case(nearpeak.case(op, elements=count, dtype="bf16", **more), target_of(device), PLAIN)
             for op, more in (("copy", {}), ("elementwise", {"function": "relu"}))]
            for count in (4096, 2**28)
        )  # fmt: skip
        spread = [[one.high_s / one.low_s for one in pair] for pair in (short, long)]
        assert spread[0][0] == pytest.approx(spread[0][1]), "both are a launch and nothing else"
        assert spread[1][0] > 1.1 * spread[1][1]


def test_a_delta_rule_is_as_sure_as_its_form_was_seen_to_be_and_its_gradient_is_not():
    axes = {"batch": 8, "heads": 32, "key_dim": 128, "dim": 128, "key_heads": 16, "dtype": "bf16"}
    rule = nearpeak.case("delta_rule", tokens=4096, **axes)
    step = nearpeak.case("delta_rule", tokens=1, begun=True, ended=True, **axes)
    gradient = nearpeak.case("delta_rule", "backward", tokens=4096, **axes)
    for device in ("h100_sxm", "a100_sxm_80gb", "mi300x"):
        whole, one, back = (nearpeak.predict(case, device) for case in (rule, step, gradient))
        assert 1.5 < whole.high_s / whole.time_s < 10
        assert 1.2 < one.high_s / one.time_s < 10
        assert back.high_s / back.time_s > 30
        assert "delta rules" in " ".join(whole.provenance.notes)


def test_dependent_steps_of_a_recurrence_are_waited_for_one_by_one():
    sizes = {"batch": 4, "features": 64, "hidden": 64, "dtype": "fp32"}
    one, many = (nearpeak.predict(nearpeak.case("recurrent", steps=steps, **sizes), "h100_sxm") for steps in (1, 100))
    launch_s = dict(one.waterfall_s)["launch"]
    assert many.time_s > 90 * launch_s
    assert many.high_s > many.time_s > many.low_s


def test_what_gathers_goes_by_multiprocessors_and_clock_not_by_memory():
    case = nearpeak.case("embedding", tokens=4096, dim=4096, vocab=32000, dtype="bf16")
    wider = nearpeak.predict(case, nearpeak.target("h100_sxm", ['dram.bandwidth="6 TB/s"'])).time_s
    slower = nearpeak.predict(case, nearpeak.target("h100_sxm", ['clock.max="0.99 GHz"'])).time_s
    whole = nearpeak.predict(case, "h100_sxm").time_s
    assert wider > 0.9 * whole
    assert slower > 1.7 * whole


@pytest.mark.parametrize("op", ["rms_norm", "rotary_embedding"])
def test_kernels_that_multiprocessors_hold_back_reach_more_of_a_slower_memory(op):
    axes = {"rms_norm": {"rows": 65536, "hidden": 4096}}.get(
        op, {"batch": 1, "heads": 64, "positions": 65536, "dim": 128}
    )
    case = nearpeak.case(op, dtype="fp16", **axes)
    whole, board = (nearpeak.predict(case, name, correction=False) for name in ("a100_sxm_80gb", "a40"))
    assert board.bound_s / whole.bound_s > 2.5
    assert board.time_s / whole.time_s < 1.6
    assert board.time_s > board.bound_s
    other = nearpeak.predict(case, "rtx_3090", correction=False)
    assert (other.distance_count, other.time_s / whole.time_s < 1.6) == (2, True)


@pytest.mark.parametrize(("op", "axis"), [("softmax", "columns"), ("layer_norm", "hidden"), ("rms_norm", "hidden")])
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_the_form_is_never_slower_with_faster_memory_and_a_correction_that_is_overlaps(op, axis, dtype):
    draw = np.random.default_rng(20261123)
    rows, width = (2 ** draw.uniform(low, high, 2000) for low, high in ((8, 17), (6, 14)))
    kept = rows * width > 2**24
    table = {"op": op, "dtype": dtype, "rows": rows[kept].astype(int), axis: width[kept].astype(int)}
    small, large = (nearpeak.predict(table, f"a100_sxm_{size}", correction=False) for size in ("40gb", "80gb"))
    ratio = large.predicted_s / small.predicted_s
    assert ratio.max() <= 1 + 1e-12
    assert np.median(ratio) < 0.98 or op == "rms_norm", "its kernels are bound by multiprocessors, not by memory"
    small, large = (nearpeak.predict(table, f"a100_sxm_{size}") for size in ("40gb", "80gb"))
    turned = large.predicted_s > small.predicted_s
    assert (large.low_s[turned] <= small.high_s[turned]).all()
    assert (large.predicted_s / small.predicted_s).max() < 1.25


def test_few_multiprocessors_do_not_move_what_all_of_them_move():
    def moved_bytes_per_clock(device):
        found = nearpeak.predict(nearpeak.case("copy", elements=2**26, dtype="bf16"), device)
        return 2**28 / (found.time_s * target_of(device).clock_hz * target_of(device).sm_count)

    whole, few = moved_bytes_per_clock("h100_sxm"), moved_bytes_per_clock("h100_sxm:mps=1")
    assert whole < few <= 128, "64 bytes a clock, to and from the cache"


@pytest.mark.parametrize(("op", "axis"), [("softmax", "columns"), ("layer_norm", "hidden")])
def test_without_data_an_interval_reaches_to_both_sides(op, axis):
    found = nearpeak.predict(nearpeak.case(op, rows=4096, dtype="fp32", **{axis: 4096}), "b200_sxm")
    low, high = np.log(found.time_s / found.low_s), np.log(found.high_s / found.time_s)
    assert found.distance_count == 2
    assert min(low, high) > 0.49 * max(low, high)


@pytest.mark.parametrize(
    ("device", "million", "measured_s"),
    [("h100_sxm", 0.43, 2e-6), ("h100_sxm", 1.25, 3e-6), ("a100_sxm_80gb", 0.46, 3e-6)],
)
def test_short_kernels_are_not_told_by_long_ones(device, million, measured_s):
    elements = int(million * 1e6)  # medians of vidur_add (microsoft/vidur 7d47513), whole microseconds
    found = nearpeak.predict(
        nearpeak.case("elementwise", function="add", elements=elements, b=elements, dtype="fp16"), device
    )
    assert found.time_s == pytest.approx(measured_s, abs=0.6e-6)


def test_pytorch_computes_where_elements_of_broadcast_operands_lie():
    whole, spread = (
        nearpeak.case("elementwise", function="mul", elements=1 << 23, b=b, dtype="bf16") for b in (1 << 23, 4096)
    )
    target = target_of("h100_sxm")
    usual, eager = (
        [predict_case(case, target, setting).time_s for case in (whole, spread)]
        for setting in (Setting(), Setting(is_eager=True))
    )
    assert usual[1] < usual[0] == pytest.approx(eager[0])
    assert eager[1] > 2 * usual[1]
    assert nearpeak.predict(spread, target, software="pytorch").time_s > 2 * usual[1]
