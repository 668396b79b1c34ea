"""A verdict never says more than was judged: every large part without a judge is named."""

import pytest
from tests.unit.traces.executed.small_traces import COMM, complete, launched, mark, steps_of_kernels, written

from nearpeak.api.trace_analysis import analyze_trace
from nearpeak.core.traces.finding_report import LARGE_RATIO
from nearpeak.reports.document.terminal import to_terminal
from nearpeak.reports.trace.steps_headline import MOST_LINES, brief_of, headline_of
from nearpeak.reports.trace.steps_report import document_of, to_json
from nearpeak.traces.step_terms import COMM as COMM_ALONE


def communicating(linked=True):
    """Four steps of a millisecond, two thirds of it communication on a stream of its own."""
    events = []
    for step in range(4):
        begin = step * 1000
        events.append(mark(step, begin, 999))
        events += launched("gemm", begin + 12, 300, 2 * step + 1)
        talk = launched(COMM, begin + 320, 660, 2 * step + 2, stream=20)
        events += talk if linked else talk[1:]
    return events


@pytest.mark.parametrize("linked", [True, False])
def test_exposed_communication_is_never_healthy(tmp_path, linked):
    report = analyze_trace(written(tmp_path / "t.json", communicating(linked)))
    assert "healthy" not in report.verdict
    assert "communication alone, 66% of a step" in report.verdict or report.findings[0].id == "comm.exposed"


def test_the_parts_add_up_to_the_step_and_each_has_a_judge_or_a_reason(tmp_path):
    for events in (communicating(), steps_of_kernels(4, 10, {0: 20}, 60)):
        report = analyze_trace(written(tmp_path / "t.json", events))
        assert sum(term.time_s for term in report.terms) == pytest.approx(report.step_s, rel=1e-9)
        assert all(bool(term.judges) != bool(term.reason) for term in report.terms)


def test_every_open_part_is_named_in_the_verdict(tmp_path):
    report = analyze_trace(written(tmp_path / "t.json", communicating(linked=False)))
    parts = [term for term in report.terms if term.share_ratio > LARGE_RATIO and not term.judges]
    assert COMM_ALONE in {term.name for term in parts}
    assert all(f"{term.name}, {term.share_ratio:.0%}" in report.verdict for term in parts)


def test_a_finding_smaller_than_an_open_part_stands_beside_it(tmp_path):
    events = steps_of_kernels(4, 10, {0: 50}, 90)
    report = analyze_trace(written(tmp_path / "t.json", events))
    assert report.findings
    assert report.verdict.startswith("no conclusion on computing without an expected time")
    assert f"found beside it: {report.findings[0].claim}" in report.verdict


def test_fills_alone_are_judged_by_no_rule_and_so_named(tmp_path):
    events = [event for number in range(1, 9) for event in launched("Memset (Device)", number * 100, 95, number)]
    events = [{**event, "cat": event["cat"].replace("kernel", "gpu_memset")} for event in events]
    report = analyze_trace(written(tmp_path / "t.json", [*events, *launched("gemm", 1000, 50, 99)]))
    assert "fills alone" in report.verdict
    assert report.verdict.startswith("no conclusion")


def test_the_short_answer_leads_with_the_step_and_fits_a_screen(tmp_path):
    for events in (communicating(), steps_of_kernels(5, 20, {0: 5}, 60), [*launched("gemm", 100, 50, 1)]):
        report = analyze_trace(written(tmp_path / "t.json", events))
        text = to_terminal(brief_of(report, document_of(report)))
        assert len(text.splitlines()) <= MOST_LINES
        assert max(map(len, text.splitlines())) <= 80
        assert " ".join(headline_of(report).split()) in " ".join(text.split())
        assert "--why" in text
        assert '"headline"' in to_json(report)


def test_device_time_of_an_unlinked_launch_has_a_reason(tmp_path):
    lone = [complete("kernel", "k", number * 100, 95, 0, 7, device=0, stream=7) for number in range(20)]
    report = analyze_trace(written(tmp_path / "t.json", lone))
    assert all(term.reason for term in report.terms if not term.judges)
