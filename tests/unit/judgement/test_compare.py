"""Comparisons: better, worse, same or not comparable with the reason; swapping the roles mirrors them."""

import dataclasses
import json
import re

import pytest
from tests.unit.prediction.test_execution_modes import chain
from tests.unit.reports import factory

import nearpeak
from nearpeak.core.answers.analysis_comparison import BETTER, NOT_COMPARABLE, SAME, WORSE
from nearpeak.core.answers.bound import Policy
from nearpeak.core.answers.execution_time import ExecutionTime
from nearpeak.judgement.analysis_difference import compare
from nearpeak.reports.comparison_report import document_of, to_json
from nearpeak.reports.document.html import to_html
from nearpeak.reports.document.markdown import to_markdown
from nearpeak.reports.document.terminal import to_terminal

TWO = factory.DEVICES[:2]
BASELINE = factory.analysis(devices=TWO)
LESS_WORK = factory.analysis(devices=TWO, rows=factory.decoder_rows(inner=12288), name="smaller")
MIRROR = {BETTER: WORSE, WORSE: BETTER, SAME: SAME, NOT_COMPARABLE: NOT_COMPARABLE}


def test_an_analysis_is_the_same_as_itself_in_every_figure():
    comparison = compare(BASELINE, BASELINE)
    assert {change.verdict for change in comparison.changes} == {SAME}
    assert {target.verdict for target in comparison.targets} == {SAME}
    assert {case.verdict for target in comparison.targets for case in target.cases} == {SAME}


def test_less_work_is_better_and_the_ratio_is_candidate_over_baseline():
    target = compare(BASELINE, LESS_WORK).targets[0]
    assert target.verdict == BETTER
    expected = LESS_WORK.targets[0].bound_s / BASELINE.targets[0].bound_s
    assert target.changes[0].ratio == pytest.approx(expected)
    assert expected < 1


def test_swapped_roles_mirror_every_verdict_and_invert_every_ratio():
    there, back = compare(BASELINE, LESS_WORK), compare(LESS_WORK, BASELINE)
    assert [c.verdict for c in there.changes] == [MIRROR[c.verdict] for c in back.changes]
    for left, right in zip(there.targets, back.targets, strict=True):
        assert left.verdict == MIRROR[right.verdict]
        pairs = list(zip(left.cases, right.cases, strict=True))
        assert all(a.digest == b.digest and a.verdict == MIRROR[b.verdict] for a, b in pairs)
        assert all(a.ratio * b.ratio == pytest.approx(1) for a, b in zip(left.changes, right.changes, strict=True))


def edited(**fields):
    return dataclasses.replace(BASELINE, **fields)


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        (edited(step="forward"), "other step: train against forward"),
        (edited(batch_count=8), "other batch: 1 against 8"),
        (edited(uncovered={}, covered_count=808), "other coverage: 3 calls without a rule against 0"),
        (edited(policy=Policy(dtype="tf32")), "other policy: strict"),
    ],
)
def test_other_step_batch_coverage_or_policy_is_not_comparable(candidate, reason):
    for target in compare(BASELINE, candidate).targets:
        assert target.verdict == NOT_COMPARABLE
        assert target.reason.startswith(reason)
        assert not target.changes


def test_cases_stay_comparable_where_only_the_batch_differs():
    comparison = compare(BASELINE, edited(batch_count=8))
    assert comparison.changes == ()
    assert {case.verdict for case in comparison.targets[0].cases} == {SAME}


def test_the_same_target_with_other_roofs_is_not_comparable():
    faster = dataclasses.replace(BASELINE.targets[0], dram_bytes_per_s=9e12)
    comparison = compare(BASELINE, edited(targets=(faster, BASELINE.targets[1])))
    assert [target.verdict for target in comparison.targets] == [NOT_COMPARABLE, SAME]
    assert comparison.targets[0].reason == "other target: dram_bytes_per_s 4.8e+12 against 9e+12"


def test_targets_and_cases_of_one_side_only_say_on_which_side():
    comparison = compare(BASELINE, factory.analysis(devices=factory.DEVICES[1:3], rows=BASELINE.rows[:-1]))
    reasons = {target.target: target.reason for target in comparison.targets}
    assert reasons == {"h200_sxm": "only in the baseline", "mi300x": "", "b200": "only in the candidate"}
    lonely = [case for case in comparison.targets[1].cases if case.verdict == NOT_COMPARABLE]
    assert [case.reason for case in lonely] == ["only in the baseline"]


def test_a_case_that_several_modules_call_is_added_up():
    row = BASELINE.rows[0]
    split = (dataclasses.replace(row, call_count=12, module="a"), dataclasses.replace(row, call_count=20, module="b"))
    whole = compare(factory.analysis(devices=TWO, rows=(row,)), factory.analysis(devices=TWO, rows=split))
    assert [case.verdict for case in whole.targets[0].cases] == [SAME]


def test_reports_of_a_comparison_fit_and_escape_and_state_ratio_and_verdict():
    hostile = dataclasses.replace(LESS_WORK, name=factory.HOSTILE)
    comparison = compare(BASELINE, hostile)
    document = document_of(comparison)
    text = to_terminal(document)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert "better" in text
    assert "<script>" not in to_markdown(document).replace("`", "")
    assert "<script>alert" not in to_html(document)
    change = json.loads(to_json(comparison))["targets"][0]["changes"]["bound_s"]
    assert change["ratio"] == pytest.approx(change["candidate"] / change["baseline"])
    assert change["verdict"] == BETTER


def test_reports_of_what_is_not_comparable_say_why():
    comparison = compare(BASELINE, edited(batch_count=8))
    assert "other batch: 1 against 8" in to_json(comparison)
    for render in (to_terminal, to_markdown, to_html):
        assert "other batch: 1 against 8" in render(document_of(comparison))


def test_expected_times_are_compared_mode_by_mode_where_both_sides_have_them():
    def with_graph(analysis, time_s):
        execution = ExecutionTime(
            mode="graph", time_s=time_s, low_s=time_s, high_s=time_s, host_s=0.0, kernel_count=1, gap_s={}
        )  # fmt: skip
        first, *rest = analysis.targets
        return dataclasses.replace(analysis, targets=(dataclasses.replace(first, executions=(execution,)), *rest))

    first, second = compare(with_graph(BASELINE, 2.0), with_graph(BASELINE, 1.0)).targets
    assert [(change.quantity, change.ratio) for change in first.changes if change.quantity.startswith("expected_")] == [
        ("expected_graph_s", 0.5)
    ]
    assert not [change for change in second.changes if change.quantity.startswith("expected_")]
    assert "expected, graph" in to_terminal(document_of(compare(with_graph(BASELINE, 2.0), with_graph(BASELINE, 1.0))))


def test_a_ratio_that_rounds_to_one_is_marked_as_near_it():
    more = dataclasses.replace(BASELINE, total_flop=BASELINE.total_flop + BASELINE.total_flop // 10**7)
    assert "≈ 1× worse" in to_terminal(document_of(compare(BASELINE, more)))


def test_the_verdict_is_of_the_expected_time_and_the_bound_is_named_where_it_differs():
    wide, narrow = (
        nearpeak.capture("llama-3-8b", step="decode", kv=4096, weights=weights) for weights in (None, "fp8")
    )
    baseline = nearpeak.analyze(wide, "h100_sxm")
    comparison = compare(baseline, nearpeak.analyze(narrow, "h100_sxm"))
    target = comparison.targets[0]
    bound = next(change for change in target.changes if change.quantity == "bound_s")
    assert (target.verdict, target.changes[0].quantity) == (WORSE, "expected_eager_s"), "the host submits more kernels"
    assert bound.verdict == BETTER
    text = to_terminal(document_of(comparison), width=120)
    assert re.search(r"h100_sxm  worse by expected, eager: .* → .*, 1\.\d+×; its bound is better, 0\.\d+×", text)
    other = compare(baseline, nearpeak.analyze(narrow, "h100_sxm", execution="graph")).targets[0]
    assert (other.verdict, other.changes[0].quantity) == (BETTER, "expected_s")


def test_without_an_expected_time_in_both_the_bound_decides():
    def without(analysis):
        targets = [dataclasses.replace(target, prediction=None, executions=()) for target in analysis.targets]
        return dataclasses.replace(analysis, targets=tuple(targets))

    target = compare(without(BASELINE), LESS_WORK).targets[0]
    assert (target.verdict, target.changes[0].quantity) == (BETTER, "bound_s")


def test_expected_times_of_other_calls_leave_the_verdict_to_the_bound_and_say_so():
    analysis = nearpeak.analyze(chain(["gemm", "relu"]), "h100_sxm")

    def without(**unpredicted):
        first = analysis.targets[0]
        fewer = dataclasses.replace(first.prediction, unpredicted=unpredicted)
        return dataclasses.replace(analysis, targets=(dataclasses.replace(first, prediction=fewer),))

    comparison = compare(without(sort=3), without())
    target = comparison.targets[0]
    assert (target.verdict, target.changes[0].quantity) == (SAME, "bound_s")
    assert target.reason == "expected times leave out other calls (3 against 0), so bounds are compared"
    assert target.reason in to_terminal(document_of(comparison), width=120)
    assert compare(without(sort=3), without(sort=3)).targets[0].reason == ""
