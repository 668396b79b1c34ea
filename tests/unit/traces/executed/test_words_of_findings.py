"""What findings say: terms that sum to the gain, remedies behind causes, advice only for frameworks that are seen."""

import dataclasses
import math

import pytest

pytest.importorskip("torch")
from benchmarks import _planted_traces as planted
from benchmarks.planted_traces import reported

from nearpeak.reports.document.html import to_html
from nearpeak.reports.document.markdown import to_markdown
from nearpeak.reports.document.terminal import to_terminal
from nearpeak.reports.trace.steps_report import document_of
from nearpeak.targets import target_of
from nearpeak.traces import read_trace
from nearpeak.traces.executed.executed_steps import executed_of
from nearpeak.traces.findings import report_of

SEED = 78
STATIC = 0
"""A seed whose program runs the same kernels in each step."""


def texts_of(report, width=80):
    """A report on every medium."""
    document = document_of(report)
    return [to_terminal(document, width=width, is_unfolded=True), to_markdown(document), to_html(document)]


def executed(cause, tmp_path, seed=SEED):
    file = planted.write(planted.CAUSES[cause][0](seed), tmp_path / "trace.json")
    return executed_of(read_trace(file), target_of("h100_sxm"))


@pytest.mark.parametrize("cause", ["launch_bound", "cast_storm", "layout_transpose", "host_sync", "optimizer_unfused"])
def test_the_terms_of_a_gain_sum_to_it_within_a_nanosecond(cause, tmp_path):
    report = report_of(executed(cause, tmp_path))
    assert report.findings
    for one in report.findings:
        if one.method == "replay":
            assert math.isclose(sum(time for _, time in one.terms), one.gain_s, abs_tol=1e-9)


def test_a_gain_that_is_not_the_evidence_is_explained_in_every_report(tmp_path):
    report = report_of(executed("cast_storm", tmp_path))
    assert len(report.findings[0].terms) > 1
    for text in texts_of(report, width=200):
        assert "the gain: " in text


def test_a_remedy_stands_behind_its_cause_and_adds_nothing(tmp_path):
    report = report_of(executed("launch_bound", tmp_path, STATIC))
    assert [one.id for one in report.findings][:2] == ["idle.launch_bound", "graph.not_used"]
    assert report.findings[1].remedy_of == "idle.launch_bound"
    others = [one.gain_s for one in report.findings if not one.remedy_of]
    assert max(others) <= report.together_s <= sum(others) + 1e-12
    assert not any("graph.not_used" in pair for pair in report.exclusive)


def test_two_steps_do_not_tell_whether_the_sequence_is_fixed(tmp_path):
    whole = executed("launch_bound", tmp_path, STATIC)
    items = tuple(item._replace(step=min(item.step, 1)) for item in whole.items)
    report = report_of(dataclasses.replace(whole, items=items))
    assert "graph.not_used" in {one.id for one in report.abstentions}


@pytest.mark.parametrize("cause", ["host_sync", "pageable_copy", "allocation", "exposed_comm", "launch_bound"])
def test_without_a_sign_of_pytorch_nothing_of_it_is_advised(cause, tmp_path):
    whole = executed(cause, tmp_path)
    operators = tuple(dataclasses.replace(one, name=one.name.replace("aten::", "own::")) for one in whole.operators)
    kernels = tuple(
        dataclasses.replace(one, name=one.name.replace("at::native", "own")) for one in whole.kernels
    )  # fmt: skip
    report = report_of(dataclasses.replace(whole, operators=operators, kernels=kernels))
    assert report.findings
    assert not [one.id for one in report.findings if "torch" in one.falsifier.lower() + one.claim.lower()]
    assert "PyTorch" in report_of(whole).findings[0].falsifier


def test_waits_are_named_by_the_function_that_exists(tmp_path):
    import torch

    falsifier = report_of(executed("host_sync", tmp_path)).findings[0].falsifier
    assert "torch.cuda.set_sync_debug_mode" in falsifier
    assert hasattr(torch.cuda, "set_sync_debug_mode")


def test_without_the_time_of_an_unrecorded_step_the_host_looks_slow_and_with_it_the_profiler_does(tmp_path):
    program = planted.CAUSES["profiler_inflated"][0](SEED)
    blind = reported(program, tmp_path / "trace.json", ("unprofiled",))
    told = reported(program, tmp_path / "trace.json")
    assert blind.findings[0].id == "idle.launch_bound"
    assert [one.id for one in told.findings] == ["profiler.inflated"]
    assert told.step_s == pytest.approx(program.unprofiled_s)


def test_claims_about_a_window_without_marks_do_not_speak_of_steps(tmp_path):
    whole = dataclasses.replace(executed("exposed_copy", tmp_path), steps_found="")
    report = report_of(whole)
    assert report.findings
    assert "per step" not in report.findings[0].claim


def test_blocks_that_stay_on_their_multiprocessors_hide_their_waves(tmp_path):
    whole = executed("tail_wave", tmp_path)
    items = tuple(item._replace(block_count=132) if item.block_count > 0 else item for item in whole.items)
    report = report_of(dataclasses.replace(whole, items=items))
    assert "gemm.tail" not in {one.id for one in report.findings}
    assert "persistent" in next(one.reason for one in report.abstentions if one.id == "gemm.tail")


def test_without_the_number_of_multiprocessors_no_tail_is_named(tmp_path):
    report = report_of(dataclasses.replace(executed("tail_wave", tmp_path), sm_count=None))
    assert "gemm.tail" not in {one.id for one in report.findings}
    assert "gemm.tail" in {one.id for one in report.abstentions}


def test_a_kernel_that_splits_its_sum_has_no_tail(tmp_path):
    whole = executed("tail_wave", tmp_path)
    kernels = tuple(dataclasses.replace(one, name=f"{one.name}_splitK_parallel") for one in whole.kernels)
    report = report_of(dataclasses.replace(whole, kernels=kernels))
    assert "gemm.tail" not in {one.id for one in report.findings}
