import json

import pytest

import nearpeak
from nearpeak.cli import application
from nearpeak.core.step_prediction import CAUSES
from nearpeak.core.workload import Call, Workload
from nearpeak.errors import NotModelledError
from nearpeak.report import render
from nearpeak.report.json import from_json, to_json

GEMM = nearpeak.case("gemm", m=4096, n=4096, k=4096, dtype="bf16")


def workload(*cases):
    calls = tuple(Call(case=case, operator=case.op, phase="forward", call_count=3) for case in cases)
    return Workload(name="some", step="forward", calls=calls)


def test_a_step_is_the_sum_of_its_calls_and_the_causes_are_what_lies_beyond_their_bounds():
    found = nearpeak.predict(workload(GEMM), "h100_sxm")
    one = nearpeak.predict(GEMM, "h100_sxm")
    assert found.time_s == pytest.approx(3 * one.time_s)
    assert found.bound_s == pytest.approx(3 * one.bound_s)
    assert sum(found.gap_s.values()) == pytest.approx(found.time_s - found.bound_s, rel=1e-9)
    assert set(found.gap_s) <= set(CAUSES)
    assert found.low_s <= found.time_s <= found.high_s


def test_calls_that_cannot_be_predicted_are_counted_with_their_bounds(monkeypatch):
    from nearpeak.predict import step

    def refuse(case, *_, **__):
        if case.op == "softmax":
            raise NotModelledError("no form")
        return nearpeak.predict(case, "h100_sxm")

    monkeypatch.setattr(step, "predict_case", refuse)
    softmax = nearpeak.case("softmax", rows=4096, columns=4096, dtype="bf16")
    found = nearpeak.analyze(workload(GEMM, softmax), "h100_sxm").targets[0]
    assert found.prediction.unpredicted == {"no form": 3}
    assert found.prediction.call_count == 3
    assert found.prediction.unpredicted_bound_s == pytest.approx(3 * nearpeak.bound(softmax, "h100_sxm").time_s)
    assert [time.prediction is None for time in found.times].count(True) == 1


def test_a_target_without_any_form_says_so():
    found = nearpeak.analyze(workload(GEMM), "h100_sxm", nearpeak.Policy())
    assert found.targets[0].prediction is not None
    with pytest.raises(NotModelledError, match="none of its calls"):
        nearpeak.predict(workload(GEMM), "gaudi3")


def test_reports_show_what_is_expected_and_saved_ones_keep_it():
    analysis = nearpeak.analyze(workload(GEMM), ["h100_sxm", "a100_sxm_80gb"])
    assert from_json(to_json(analysis)) == analysis
    for name in ("terminal", "markdown", "html"):
        assert "beyond the bounds" in render(analysis, name).lower()


def test_a_saved_workload_is_predicted_from_the_command_line(tmp_path, capsys):
    from nearpeak.capture._saved import save_text

    path = tmp_path / "some.json"
    path.write_text(save_text(workload(GEMM)))
    application()(["predict", str(path), "-t", "h100_sxm", "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert found["prediction"]["call_count"] == 3


def test_a_step_alone_equals_that_of_its_analysis_and_is_kept_for_the_next_call():
    from nearpeak import api
    from nearpeak.predict.step import with_predictions
    from nearpeak.theory.analysis import analysis_of

    some, device = workload(GEMM, nearpeak.case("softmax", rows=4096, columns=4096, dtype="bf16")), api.target("l40s")
    found = nearpeak.predict(some, device)
    assert with_predictions(analysis_of(some, [device]), [device]).targets[0].prediction == found
    assert nearpeak.predict(some, device) is found
    assert nearpeak.predict(some, device, correction=False).time_s != found.time_s
