"""Reports of traces on every medium, and two traces compared: aligned, gated, symmetric."""

import dataclasses
import json
import re

import pytest

pytest.importorskip("torch")
from benchmarks import _planted_traces as planted
from benchmarks.planted_traces import reported
from typer.testing import CliRunner

from nearpeak.api.trace_analysis import analyze_trace
from nearpeak.cli import application
from nearpeak.core.work.workload import Call, Workload
from nearpeak.reports.document.html import to_html
from nearpeak.reports.document.markdown import to_markdown
from nearpeak.reports.document.terminal import to_terminal
from nearpeak.reports.trace import steps_difference as difference
from nearpeak.reports.trace.steps_report import document_of, to_json
from nearpeak.traces import read_trace
from nearpeak.traces.executed.execution_comparison import compare
from nearpeak.traces.findings import RULES, planted_shares


def texts_of(report, width=80):
    """A report on every medium."""
    document = document_of(report)
    return [to_terminal(document, width=width), to_markdown(document), to_html(document)]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return reported(planted.host_sync(5), tmp_path_factory.mktemp("one") / "trace.json")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    return reported(planted.healthy(5), tmp_path_factory.mktemp("two") / "trace.json")


def test_a_terminal_of_80_columns_holds_every_line(report):
    text = to_terminal(document_of(report), is_unfolded=True)
    assert max(map(len, text.splitlines())) <= 80
    for word in ("idle.sync_bound", "unmatched", "to refute", "measured", "expected", "of bound", "Not determined"):
        assert word in text


def test_json_holds_findings_operators_and_terms_that_sum(report):
    record = json.loads(to_json(report))
    assert record["findings"][0]["id"] == "idle.sync_bound"
    found = record["shortfall"]
    assert found["expected_ns"] + sum(part["time_ns"] for part in found["parts"]) == found["executed_ns"]
    assert {one["name"] for one in record["executed"]["operators"]} >= {"aten::mm", "aten::gelu"}
    assert "items" not in record["executed"]


def test_markdown_and_html_say_the_same_and_the_page_asks_nothing_of_a_network(report):
    words = to_markdown(document_of(report))
    page = to_html(document_of(report))
    for text in (words, page):
        assert "idle.sync_bound" in text.replace("\\_", "_")
        assert "to refute" in text.lower()
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href)=["']https?:""", page)


def test_every_colour_that_the_page_uses_is_defined(report):
    page = to_html(document_of(report))
    assert set(re.findall(r"var\((--[a-z0-9-]+)", page)) <= set(re.findall(r"(--[a-z0-9-]+)\s*:", page))


def test_every_operator_of_a_planted_trace_stands_beside_its_bound(report):
    known = {one.name: one for one in report.executed.operators if one.bound_s}
    assert {"aten::mm", "aten::gelu", "aten::add", "aten::native_layer_norm"} <= set(known)
    assert all(one.bound_s <= one.predicted_s for one in known.values() if one.predicted_s)
    assert known["aten::mm"].cases[0].op == "gemm"


def test_without_shapes_the_first_screen_says_so(tmp_path):
    text = to_terminal(document_of(reported(planted.healthy(3), tmp_path / "trace.json", ("shapes",))))
    assert "unmatched: all device time; no shapes" in " ".join(text.split())


def slower(one, ratio):
    """The same steps, each longer by a ratio."""
    executed = one.executed
    line = dataclasses.replace(executed.timeline, end_ns=executed.timeline.start_ns + int(executed.window_ns * ratio))
    steps = tuple(int(length * ratio) for length in executed.step_ns)
    return dataclasses.replace(one, executed=dataclasses.replace(executed, timeline=line, step_ns=steps))


@pytest.mark.parametrize(("ratio", "verdict"), [(1.0, "invariant"), (1.3, "regression"), (1 / 1.3, "improvement")])
def test_a_change_of_the_step_gets_its_verdict(healthy, ratio, verdict):
    even = (healthy.executed.step_ns[0],) * len(healthy.executed.step_ns)
    one = dataclasses.replace(healthy, executed=dataclasses.replace(healthy.executed, step_ns=even))
    assert compare(one, slower(one, ratio)).verdict == verdict


def test_few_steps_are_inconclusive_and_other_profilers_not_comparable(healthy):
    few = dataclasses.replace(healthy, executed=dataclasses.replace(healthy.executed, step_ns=(1, 2)))
    other = dataclasses.replace(healthy, executed=dataclasses.replace(healthy.executed, format="rocprof"))
    assert compare(few, few).verdict == "inconclusive"
    assert compare(healthy, other).verdict == "not comparable"


def test_swapping_the_traces_inverts_every_ratio_and_the_parts_sum_to_the_difference(report, healthy):
    there, back = compare(report, healthy), compare(healthy, report)
    assert there.step_ratio * back.step_ratio == pytest.approx(1)
    assert {(one.name, one.baseline_ns) for one in there.operators} == {
        (one.name, one.candidate_ns) for one in back.operators
    }
    assert sum(time for _, time in there.parts) == pytest.approx(
        there.candidate_step_s - there.baseline_step_s, rel=1e-9
    )
    assert max(map(len, to_terminal(difference.document_of(there)).splitlines())) <= 80
    assert json.loads(difference.to_json(there))["verdict"] == there.verdict


def test_a_trace_aligns_with_itself_completely(healthy):
    found = compare(healthy, healthy)
    assert found.aligned_ratio == 1
    assert found.step_ratio == 1
    assert found.parts == ()


def test_the_command_reads_a_trace_writes_files_and_gates(tmp_path):
    old = planted.write(planted.healthy(8), tmp_path / "old.json")
    new = planted.write(planted.data_loading(8), tmp_path / "new.json")
    run = CliRunner()
    page, track = tmp_path / "page.html", tmp_path / "out.pftrace"
    files = {"--html": page, "--perfetto": track, "--chrome": tmp_path / "c.json", "--parquet": tmp_path / "t.parquet"}
    options = [word for name, file in files.items() for word in (name, str(file))]
    done = run.invoke(application(), ["analyze", str(new), "--text", *options])
    assert done.exit_code == 0, done.output
    assert "idle.input_bound" in done.output
    assert page.stat().st_size > 10_000
    assert track.stat().st_size > 1_000
    assert len(read_trace(files["--chrome"])) == len(read_trace(new))
    assert files["--parquet"].read_bytes()[:4] == b"PAR1"
    gate = run.invoke(application(), ["analyze", str(new), "--against", str(old), "--json"])
    assert gate.exit_code == 10, gate.output
    assert json.loads(gate.output)["verdict"] == "regression"


def test_files_of_the_trace_are_refused_where_there_is_no_trace(tmp_path):
    done = CliRunner().invoke(application(), ["analyze", "mlp", "--chrome", str(tmp_path / "c.json")])
    assert done.exit_code != 0
    assert "--chrome" in str(done.exception)


def test_the_critical_path_fills_the_span_of_the_work_and_every_format_shows_it(report):
    path_ns = report.executed.path_ns
    assert 0 < sum(path_ns.values()) <= report.executed.window_ns
    for text in texts_of(report):
        assert "ritical path, by what decided: " in text
    assert json.loads(to_json(report))["executed"]["path_ns"] == dict(path_ns)


def test_modules_are_shown_with_their_time_and_what_is_in_none(report):
    executed = dataclasses.replace(report.executed, module_ns={"nn.Module: Linear_0": 3_000, "": 1_000})
    whole = dataclasses.replace(report, executed=executed)
    for text in texts_of(whole):
        assert "Linear" in text
        assert "in no module" in text
    assert max(map(len, to_terminal(document_of(whole)).splitlines())) <= 80


def test_a_window_without_marked_steps_is_never_called_a_step(report):
    executed = dataclasses.replace(report.executed, steps_found="", step_count=1)
    whole = dataclasses.replace(report, executed=executed)
    for text in texts_of(whole):
        assert "no steps marked: the whole window counts as one" in " ".join(text.split())
        assert "one step" not in text.lower()


def test_trust_in_a_finding_is_what_was_counted_or_said_to_be_unknown(report):
    first = report.findings[0]
    assert first.planted is not None
    assert f"{first.planted.right_count} of {first.planted.trace_count} traces" in to_html(document_of(report))
    unknown = dataclasses.replace(report, findings=(dataclasses.replace(first, planted=None),))
    assert "not measured" in to_terminal(document_of(unknown), is_unfolded=True)


def test_whole_windows_are_compared_without_a_verdict_on_steps(healthy):
    whole = dataclasses.replace(healthy, executed=dataclasses.replace(healthy.executed, steps_found=""))
    found = compare(whole, healthy)
    assert found.verdict == "inconclusive"
    assert "not marked" in found.reason
    assert "whole window" in found.baseline


def changed(report, **more):
    """The same report of steps that differ in some fields."""
    return dataclasses.replace(report, executed=dataclasses.replace(report.executed, **more))


def test_another_program_is_not_comparable_and_compiled_code_is(healthy):
    other = changed(healthy, called=tuple(f"aten::mine_{place}" for place in range(40)))
    found = compare(healthy, other)
    assert found.verdict == "not comparable"
    assert "another model" in found.reason
    compiled = changed(other, kernels=(dataclasses.replace(healthy.executed.kernels[0], name="triton_poi_fused_0"),))
    assert compare(healthy, compiled).verdict != "not comparable"


def test_without_operators_kernels_of_one_name_are_aligned(healthy):
    bare = changed(healthy, called=(), operators=())
    found = compare(bare, bare)
    assert found.by_kernel
    assert found.aligned_ratio is None
    assert {pair.name for pair in found.operators} == {use.name for use in healthy.executed.kernels}
    assert "neither trace has operators" in to_terminal(difference.document_of(found))
    assert "nothing can be aligned" in to_terminal(difference.document_of(compare(bare, healthy)))


def test_classes_add_up_to_the_kernels_and_swap_with_the_traces(report, healthy):
    there, back = compare(report, healthy), compare(healthy, report)
    assert {(name, after, before) for name, before, after in there.classes} == set(back.classes)
    assert there.classes[0][0] == "busy"
    total = sum(before for name, before, _ in there.classes[1:]) * report.executed.step_count
    assert total == pytest.approx(sum(use.device_ns for use in report.executed.kernels) * 1e-9)


def test_a_device_that_is_not_known_is_asked_for(report, healthy):
    text = to_terminal(difference.document_of(compare(changed(report, target=""), healthy)))
    assert "its device is not known; --target NAME" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_every_share_that_is_kept_is_of_a_rule_and_of_a_cause_that_is_planted():
    kinds = {RULES[name].id for name in RULES}
    assert set(planted_shares()) <= kinds
    assert set(planted_shares()) == {wanted for _, wanted, _ in planted.CAUSES.values()} | {"comm.straggler"}


def test_calls_of_a_model_without_an_expected_time_are_counted(tmp_path):
    file = planted.write(planted.healthy(8), tmp_path / "trace.json")
    unknown = Call(case=None, operator="custom::op", phase="forward", call_count=5)
    found = analyze_trace(file, model=Workload(name="mine", step="train", calls=(unknown,)))
    assert any(note.startswith("5 calls of mine") for note in found.executed.notes)
    for text in texts_of(found):
        assert "5 calls of mine" in text
