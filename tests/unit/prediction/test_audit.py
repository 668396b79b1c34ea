import json

import numpy as np
import pytest

from nearpeak.bounds.bound_table import bound_table
from nearpeak.core.answers.bound import Policy
from nearpeak.prediction.calibration.samples import samples_of
from nearpeak.prediction.calibration.table_audit import audit
from nearpeak.reports.audit_report import audit_document, to_json
from nearpeak.reports.document.terminal import to_terminal
from nearpeak.targets import target_of

H100 = target_of("h100_sxm")


def kinds(columns):
    found = audit(columns, samples_of(columns), H100)
    return {(one.row, one.kind) for one in found.findings}, found


def table(**more):
    m = 512 * 2 ** np.arange(12)
    columns = {"op": "gemm", "dtype": "bf16", "m": m, "n": 8192, "k": 8192, "time_us": m * 0.25}
    return columns | more


def test_a_plausible_table_has_no_finding():
    found, whole = kinds(table())
    assert (found, whole.remarks) == (set(), ())


def test_rows_below_their_bound_are_hot_where_the_cache_could_hold_their_data():
    times = 128.0 * 2 ** np.arange(12)
    times[11] = times[10] * 0.99
    found, _ = kinds(table(time_us=times))
    assert (12, "faster_than_bound") in found
    small = {"op": "gemm", "dtype": "bf16", "m": [16], "n": 1024, "k": 1024, "time_ns": [300]}
    assert kinds(small)[0] == {(1, "hot")}
    assert kinds(small | {"time_ns": [0.2]})[0] == {(1, "faster_than_bound")}, "no cache makes products that fast"


@pytest.mark.parametrize(("taps", "kind"), [(1, "faster_than_bound"), (3, "other_algorithm")])
def test_a_convolution_may_beat_classical_algorithms_where_libraries_have_others(taps, kind):
    columns = {
        "op": "conv", "dtype": "fp32", "batch": 64, "in_channels": 256, "out_channels": 256, "h": 56, "w": 56,
        "kh": taps, "kw": taps, "ph": taps // 2, "pw": taps // 2, "time_us": [1.0],
    }  # fmt: skip
    least_s, any_s = (
        float(bound_table(samples_of(columns).table, H100, Policy(algorithm=one)).bound_s[0])
        for one in ("classical", "any")
    )
    assert kinds(columns | {"time_us": [0.7e6 * least_s]})[0] == {(1, kind)}
    assert kinds(columns | {"time_us": [0.7e6 * any_s]})[0] == {(1, "faster_than_bound")}


def test_copies_and_clamped_cells_are_found():
    columns = {"op": "gemm", "dtype": "bf16", "m": [512, 512], "n": 8192, "k": 8192, "time_us": [200, 200]}
    assert (2, "repeated") in kinds(columns)[0]
    assert (2, "repeated") not in kinds(columns | {"software": ["a", "b"]})[0]
    roofline = bound_table(samples_of(columns).table, H100, Policy()).roofline_s
    assert (1, "clamped") in kinds(columns | {"time_us": roofline * 1e6})[0]
    bound_s = bound_table(samples_of(columns).table, H100, Policy()).bound_s
    assert bound_s[0] != roofline[0], "what else is there to test"
    assert (1, "clamped") in kinds(columns | {"time_us": bound_s * 1e6})[0]


def test_copies_are_no_proof_that_measurements_repeat_without_noise():
    times = {"op": "gemm", "dtype": "bf16", "m": [512, 512, 1024, 1024], "n": 8192, "k": 8192}
    _, copied = kinds(times | {"time_us": [200.0, 200.0, 400.0, 400.0]})
    assert copied.noise == ()
    _, found = kinds(times | {"time_us": [200.0, 200.0, 400.0, 420.0]})
    (noise,) = found.noise
    assert (noise.what, noise.pair_count, noise.median_ratio) == ("repeats", 1, pytest.approx(0.05))


def test_a_larger_case_that_is_much_faster_and_a_point_off_its_curve_are_found():
    times = 128.0 * 2 ** np.arange(12)
    times[4] *= 4
    found, _ = kinds(table(time_us=times))
    assert (6, "faster_when_larger") in found
    assert (5, "off_curve") in found


def test_noise_is_told_for_repeats_and_across_software():
    columns = {
        "op": "gemm", "dtype": "bf16", "m": [512] * 4, "n": 8192, "k": 8192, "time_us": [200, 210, 260, 260.1],
        "software": ["a", "a", "b", "b"],
    }  # fmt: skip
    floors = {one.what: one for one in kinds(columns)[1].noise}
    assert floors["repeats"].pair_count == 2
    assert floors["software"].median_ratio == pytest.approx(0.3)


def test_rows_without_a_time_are_findings_too():
    found, whole = kinds(table(time_us=["128", "nan", *(str(128 * 2**i) for i in range(2, 12))]))
    assert found == {(2, "set_aside")}
    assert whole.row_count == 12


def test_a_repeat_that_took_far_longer_is_named_and_is_no_noise():
    columns = {"op": "gemm", "dtype": "bf16", "m": [512] * 5 + [4096], "n": 8192, "k": 8192}
    found, whole = kinds(columns | {"time_us": [210.0, 200.0, 20_000.0, 401.0, 205.0, 150.0]})
    assert found == {(3, "slow_repeat"), (4, "slow_repeat"), (6, "faster_when_larger")} | {(6, "faster_than_bound")}
    slow = [one for one in whole.findings if one.kind == "slow_repeat"]
    assert [(one.expected_s, one.other_row) for one in slow] == [(pytest.approx(200e-6), 2)] * 2
    assert whole.noise[0].median_ratio == pytest.approx(0.05)
    apart = {"time_us": [210.0, 200.0, 20_000.0, 401.0, 205.0, 9e3], "kernel": list("abcdef")}
    assert kinds(columns | apart)[0] == {(3, "far_off")}


def test_no_repeat_is_slow_beside_one_that_is_faster_than_anything_can_be():
    columns = {"op": "gemm", "dtype": "bf16", "m": [8192] * 3, "n": 8192, "k": 8192, "time_us": [0.1, 1600.0, 1700.0]}
    assert kinds(columns)[0] == {(1, "faster_than_bound")}


@pytest.mark.parametrize(
    ("factor", "said"), [(1e3, "times longer than expected"), (1e-3, "times shorter than expected")]
)
def test_times_in_another_unit_are_remarked_on(factor, said):
    (remark,) = kinds(table(time_us=512 * 2.0 ** np.arange(12) * 0.25 * factor))[1].remarks
    assert said in remark
    assert "check the unit of time_us, and whether the device is h100_sxm" in remark
    assert remark.startswith("gemm.bf16: ")


def test_remarks_and_slow_repeats_are_shown_as_text_and_json():
    columns = {"op": "gemm", "dtype": "bf16", "m": [512, 512], "n": 8192, "k": 8192, "time_ms": [200, 500]}
    whole = kinds(columns)[1]
    text = " ".join(to_terminal(audit_document(H100, whole)).split())
    assert "2 rows on H100 SXM 80 GB (h100_sxm): 1 with findings gemm.bf16: its 2 times are in the median" in text
    assert "2 500 ms against 200 ms of row 1" in text
    found = json.loads(to_json(H100, whole))
    assert (found["counts"], found["remarks"]) == ({"slow_repeat": 1}, list(whole.remarks))
