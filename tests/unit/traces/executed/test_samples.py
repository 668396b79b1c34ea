"""Real traces: what a performance engineer would say of each must be what the report says."""

import pytest

pytest.importorskip("torch")
from tests.samples import SAMPLES, needs_samples

from nearpeak.api.trace_analysis import analyze_trace
from nearpeak.targets import target_of
from nearpeak.traces.executed.execution_comparison import compare

pytestmark = needs_samples


def test_an_eager_decode_is_launch_bound_and_a_graph_would_take_its_device_time():
    report = analyze_trace(SAMPLES / "tracelens" / "b200_eager_trace.json.gz")
    assert report.findings[0].id == "idle.launch_bound"
    assert report.executed.window_ns == 84_487_178
    assert report.step_s - report.findings[0].gain_s >= report.executed.timeline.compute_ns * 1e-9


def test_a_warm_up_is_no_step_and_gets_no_conclusion():
    report = analyze_trace(next((SAMPLES / "kineto").glob("critical_path_alexnet*")))
    assert report.verdict.startswith("no conclusion")
    assert report.findings == ()


def test_a_decode_in_one_graph_is_not_launch_bound():
    report = analyze_trace(SAMPLES / "tracelens" / "inference_vllm_decode_full_graph_execution.json.gz")
    assert report.executed.timeline.idle_ns == 10_743_181 - 10_717_708
    assert "idle.launch_bound" not in {one.id for one in report.findings}
    assert "97% of that time no expected time is known" in report.verdict


def test_a_device_that_copies_all_the_time_is_not_launch_bound():
    report = analyze_trace(SAMPLES / "nsys" / "h100_2gpu_1s.sqlite")
    assert {"idle.launch_bound"} & {one.id for one in report.abstentions}
    assert report.findings[0].id == "copy.exposed"
    assert "links" in report.executed.missing


def test_two_vendors_are_aligned_by_operator():
    one = analyze_trace(next((SAMPLES / "tracelens").glob("h100_Qwen*")))
    other = analyze_trace(next((SAMPLES / "tracelens").glob("mi300_Qwen*")), target_of("mi300x"))
    found = compare(one, other)
    assert found.aligned_ratio >= 0.99
    assert found.verdict == "inconclusive"
    assert sum(part for _, part in found.parts) == pytest.approx(found.candidate_step_s - found.baseline_step_s)
    assert one.executed.unmatched_ns < 0.35 * one.executed.timeline.busy_ns  # three tenths have no recorded call


def test_steps_in_which_the_device_does_nothing_are_not_looked_at():
    report = analyze_trace(SAMPLES / "kineto" / "amd_trace_mi250_minitoy_train_ROCm6_2_kineto.json.gz")
    assert report.executed.steps_found == ""
    assert any("is idle between the marks of 2 steps" in note for note in report.executed.notes)
