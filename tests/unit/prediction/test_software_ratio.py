import numpy as np
import pytest

import nearpeak
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops.shared.tables.case_table import table_of_cases
from nearpeak.prediction.case_prediction import predict_case, predict_table
from nearpeak.prediction.kernel_model import Setting
from nearpeak.reports.prediction_report import BEST_OF_ALL, document_of
from nearpeak.targets import target_of

PRODUCT = nearpeak.case("scaled_gemm", m=64, n=4096, k=4096, dtype="fp8_tensor")
NORM = nearpeak.case("rms_norm", rows=64, hidden=4096, dtype="bf16")


def attention(q, batch=8):
    return nearpeak.case(
        "attention", batch=batch, heads=32, kv_heads=8, q=q, kv=2048, dim=128, causal=True, align="lower_right",
        dtype="bf16",
    )  # fmt: skip


def test_a_framework_takes_its_own_time_and_the_best_of_all_is_the_usual():
    best, named = (nearpeak.predict(PRODUCT, "b200_sxm", **how) for how in ({}, {"software": "best"}))
    assert best == named
    slower = nearpeak.predict(PRODUCT, "b200_sxm", software="trtllm")
    assert slower.time_s > 1.05 * best.time_s
    assert slower.low_s < slower.time_s < slower.high_s
    assert any("TensorRT-LLM" in note for note in slower.notes)
    assert not any("TensorRT-LLM" in note for note in best.notes)
    assert sum(term.time_s for term in slower.terms) == pytest.approx(slower.time_s, rel=1e-9)


def test_an_answer_says_whether_it_is_of_the_best_or_of_one_framework():
    best, one = (
        "\n".join(map(str, document_of("x", None, nearpeak.predict(PRODUCT, "b200_sxm", software=name)).blocks))
        for name in ("best", "trtllm")
    )
    assert BEST_OF_ALL in best
    assert BEST_OF_ALL not in one


def test_another_board_of_the_architecture_has_the_ratio_with_a_wider_interval():
    near, far = (nearpeak.predict(PRODUCT, name, software="trtllm") for name in ("h100_sxm", "h200_sxm"))
    assert far.high_s / far.time_s > near.high_s / near.time_s


@pytest.mark.parametrize("software", ["vllm", "sglang"])
def test_a_table_gives_what_its_cases_give_decode_steps_and_prefills_alike(software):
    cases, setting, target = [attention(1), attention(512), attention(1, 64)], Setting(software=software), "h100_sxm"
    rows = predict_table(table_of_cases(cases), target_of(target), setting)
    for case, time_s, low_s, high_s in zip(cases, rows.predicted_s, rows.low_s, rows.high_s, strict=True):
        one = predict_case(case, target_of(target), setting)
        assert (time_s, low_s, high_s) == pytest.approx((one.time_s, one.low_s, one.high_s), rel=1e-12)


def test_a_framework_that_is_unknown_or_without_data_is_refused_with_what_there_is():
    with pytest.raises(SpecError, match=r"software 'triton' is not known; best .* vllm, trtllm, sglang"):
        nearpeak.predict(PRODUCT, "h100_sxm", software="triton")
    with pytest.raises(NotModelledError, match=r"no data of pytorch for scaled_gemm in fp8_tensor .* trtllm"):
        nearpeak.predict(PRODUCT, "h100_sxm", software="pytorch")
    with pytest.raises(NotModelledError, match=r"no data of vllm for rms_norm .* none of any framework"):
        nearpeak.predict(NORM, "h100_sxm", software="vllm")
    with pytest.raises(NotModelledError, match="no data of vllm"):
        nearpeak.predict({"op": "gemm", "m": [1, 2], "n": 64, "k": 64, "dtype": "bf16"}, "mi300x", software="vllm")


def test_calls_of_a_step_without_data_of_the_framework_keep_the_best_time():
    calls = tuple(Call(case=case, operator=case.op, phase="forward") for case in (PRODUCT, NORM))
    step = Workload(name="two", step="forward", calls=calls)
    named = nearpeak.predict(step, "h100_sxm", software="trtllm").time_s
    apart = nearpeak.predict(PRODUCT, "h100_sxm", software="trtllm").time_s + nearpeak.predict(NORM, "h100_sxm").time_s
    assert named == pytest.approx(apart, rel=1e-9)
    answer = nearpeak.analyze(step, "h100_sxm", software="trtllm").targets[0]
    assert answer.prediction is not None
    assert answer.prediction.time_s == pytest.approx(apart, rel=1e-9)


@pytest.mark.parametrize("software", ["vllm", "trtllm", "sglang"])
def test_a_framework_takes_longer_where_the_best_of_all_does(software):
    m = np.unique(np.exp(np.linspace(0, 9.7, 400)).astype(int))
    table = nearpeak.case_table({"op": "scaled_gemm", "m": m, "n": 4096, "k": 4096, "dtype": "fp8_tensor"})
    best, its = (predict_table(table, target_of("h100_sxm"), Setting(software=name)) for name in ("", software))
    ordered_s = its.predicted_s[np.argsort(best.predicted_s)]
    assert (np.diff(ordered_s) >= -1e-9 * ordered_s[:-1]).all()
    assert (its.predicted_s != best.predicted_s).any()
