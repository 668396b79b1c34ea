import dataclasses
import json
import pickle

import pytest

import nearpeak
from nearpeak.cli import application
from nearpeak.core.answers.step_prediction import CAUSES
from nearpeak.core.work.workload import Call, Use, Workload
from nearpeak.errors import NotModelledError
from nearpeak.reports import render
from nearpeak.reports.analysis.json import from_json, to_json
from nearpeak.reports.analysis.terminal import render as terminal
from nearpeak.targets import target_of

GEMM = nearpeak.case("gemm", m=4096, n=4096, k=4096, dtype="bf16")


def workload(*cases):
    calls = tuple(Call(case=case, operator=case.op, phase="forward", call_count=3) for case in cases)
    return Workload(name="some", step="forward", calls=calls)


def test_a_step_is_the_sum_of_its_calls_and_the_causes_are_what_lies_beyond_their_bounds():
    found = nearpeak.predict(workload(GEMM), "h100_sxm", sustained=False)
    one = nearpeak.predict(GEMM, "h100_sxm")
    assert found.time_s == pytest.approx(3 * one.time_s)
    assert found.bound_s == pytest.approx(3 * one.bound_s)
    assert sum(found.gap_s.values()) == pytest.approx(found.time_s - found.bound_s, rel=1e-9)
    assert set(found.gap_s) <= set(CAUSES)
    assert found.low_s <= found.time_s <= found.high_s


def test_calls_that_cannot_be_predicted_are_counted_with_their_bounds(monkeypatch):
    from nearpeak.prediction import step_time

    def refuse(case, *_, **__):
        if case.op == "softmax":
            raise NotModelledError("no form")
        return nearpeak.predict(case, "h100_sxm")

    monkeypatch.setattr(step_time, "predict_case", refuse)
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
    for text in (terminal(analysis, why=True), render(analysis, "markdown"), render(analysis, "html")):
        assert "beyond the bounds" in text.lower()


def test_a_saved_workload_is_predicted_from_the_command_line(tmp_path, capsys):
    from nearpeak.frontends.files.saved_workload import save_text

    path = tmp_path / "some.json"
    path.write_text(save_text(workload(GEMM)))
    application()(["predict", str(path), "-t", "h100_sxm", "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert found["prediction"]["call_count"] == 3


def test_a_step_alone_equals_that_of_its_analysis_and_is_kept_for_the_next_call():
    from nearpeak.api import questions
    from nearpeak.bounds.step.step_analysis import analysis_of
    from nearpeak.prediction.step_time import with_predictions

    some, device = (
        workload(GEMM, nearpeak.case("softmax", rows=4096, columns=4096, dtype="bf16")),
        questions.target("l40s"),
    )
    found = nearpeak.predict(some, device)
    assert with_predictions(analysis_of(some, [device]), [device]).targets[0].prediction == found
    assert nearpeak.predict(some, device) is found
    assert nearpeak.predict(some, device, correction=False).time_s != found.time_s


TARGETS = ("h100_sxm", "a100_sxm_80gb", "b200_sxm", "mi300x", "l40s", 'h100_sxm+power.limit="400 W"')


def target_named(name):
    device, _, edit = name.partition("+")
    return target_of(device, [edit] if edit else [])


def mixed_cases(scale):
    m, n = 64 * scale + 3, 128 * scale
    heads = {"heads": 8, "kv_heads": 8, "dim": 64, "causal": True, "align": "lower_right"}
    return (
        nearpeak.case("gemm", m=m, n=n, k=512, dtype="bf16"),
        nearpeak.case("gemm", m=m, n=n, k=512, batch=scale, dtype="bf16"),
        nearpeak.case("attention", batch=2, q=m, kv=m, dtype="bf16", **heads),
        nearpeak.case("attention", "backward", batch=2, q=m, kv=m, dtype="bf16", **heads),
        nearpeak.case("elementwise", elements=m * n, a=m * n, b=n, function="add", dtype="bf16"),
        nearpeak.case("elementwise", elements=m * n, function="silu", dtype="fp32"),
        nearpeak.case("softmax", rows=m, columns=n, dtype="bf16"),
        nearpeak.case("reduce", outputs=m, reduced=n, dtype="fp32"),
        nearpeak.case("cast", elements=m * n, dtype="fp32", out_dtype="bf16"),
        nearpeak.case("copy", elements=m * n, dtype="bf16"),
        nearpeak.case("gemm", m=m, n=n, k=16, dtype="int32"),
    )


def mixed_workload(scale, touched=True):
    """Return calls of all cases in two modules; some touch fewer bytes than their case counts, some of them twice."""
    calls = []
    for place, case in enumerate(mixed_cases(scale)):
        phase = "backward" if place % 3 else "forward"
        calls += [
            Call(case=case, operator=case.op, phase=phase, module=f"layers.{layer}.{place % 2}") for layer in "01"
        ]
        if touched:
            reads = (Use(buffer=0, bytes=1000 * scale),)
            calls.append(Call(case=case, operator=case.op, phase=phase, module=f"layers.0.{place % 4}", reads=reads))
    return Workload(name="some", step="train", calls=tuple(calls))


@pytest.mark.parametrize("name", TARGETS)
def test_a_step_is_the_sum_over_the_rows_of_its_analysis_to_the_last_bit(name):
    target = target_named(name)
    for scale in (1, 5, 40):
        for one in (mixed_workload(scale), mixed_workload(scale, touched=False)):
            found = nearpeak.predict(one, target)
            wanted = nearpeak.analyze(one, target).targets[0].prediction
            assert dataclasses.asdict(found) == dataclasses.asdict(wanted)
            assert found.unpredicted
            assert pickle.loads(pickle.dumps(found)) == found
