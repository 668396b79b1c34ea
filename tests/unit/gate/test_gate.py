"""Gates: verdict and exit code of every kind of line, on both sides of each limit."""

import pytest

from nearpeak.core.history.gate import GatePolicy, GateRule, GateSubject
from nearpeak.core.runs.paired_rounds import Judgement
from nearpeak.gate.persistence import Confirmation, HistoryJudgement
from nearpeak.gate.rules import decided

US = 1e-6


def rule(name="r", baseline="previous", **changes):
    return GateRule(name=name, baseline=baseline, **changes)


def subject(series="s", times_s=(100 * US,) * 5, op="gemm", **changes):
    return GateSubject(series=series, fields={"op": op, "target": "h200_sxm"}, times_s=times_s, **changes)


def judgement(verdict, ratio=1.0):
    return Judgement(
        verdict=verdict, time_ratio=ratio, low_ratio=ratio - 0.01, high_ratio=ratio + 0.01, tolerance_ratio=0.02,
        detectable_ratio=0.03, round_count=5,
    )  # fmt: skip


def history(one, *, confirmed=True, **more):
    return HistoryJudgement(
        judgement=one, plain=one, confirmation=Confirmation(confirmed=confirmed, text="said why"), **more
    )


def gate(rules, subjects, verdicts=()):
    policy = GatePolicy(name="p", source="gate.toml", rules=tuple(rules))
    judged = {(one, series): history(judgement(verdict)) for one, series, verdict in verdicts}
    return decided(policy, subjects, judged, "abc")


@pytest.mark.parametrize(
    ("verdict", "said", "code"),
    [
        ("regression", "fail", 10),
        ("improvement", "pass", 0),
        ("invariant", "pass", 0),
        ("inconclusive", "inconclusive", 11),
    ],
)
def test_a_verdict_on_history_becomes_the_documented_exit_code(verdict, said, code):
    found = gate([rule()], [subject()], [("r", "s", verdict)])
    assert (found.verdict, found.exit_code, found.lines[0].verdict) == (said, code, said)


@pytest.mark.parametrize(
    ("choice", "code", "verdict"), [("stop", 11, "inconclusive"), ("pass", 0, "pass"), ("fail", 10, "fail")]
)
def test_what_an_inconclusive_line_does_is_the_policys_choice_and_it_stays_visible(choice, code, verdict):
    found = gate([rule(inconclusive=choice)], [subject()], [("r", "s", "inconclusive")])
    assert (found.exit_code, found.verdict, found.lines[0].verdict) == (code, verdict, "inconclusive")


def test_a_series_without_baseline_is_inconclusive_and_says_so():
    found = gate([rule(baseline="rolling", window_count=5)], [subject()])
    assert found.exit_code == 11
    assert "the 5 revisions before" in found.lines[0].text


def test_a_rule_that_selects_nothing_does_not_pass():
    found = gate([rule(select={"op": "conv*"})], [subject()])
    assert (found.exit_code, found.lines[0].series) == (11, "")


def test_selectors_choose_and_leave_out():
    found = gate([rule(select={"op": "g*"}, leave_out={"target": "h200*"})], [subject()])
    assert found.lines[0].series == ""
    found = gate([rule(select={"op": "g*"})], [subject(), subject("c", op="conv")], [("r", "s", "invariant")])
    assert [one.series for one in found.lines] == ["s"]


@pytest.mark.parametrize(
    ("bound_us", "verdict"), [(80.0, "pass"), (79.9, "fail"), (100.1, "inconclusive"), (None, "inconclusive")]
)
def test_no_slower_than_80_percent_of_the_speed_of_light(bound_us, verdict):
    bound_s = None if bound_us is None else bound_us * US
    found = gate([rule(baseline="bound", least_ratio=0.8)], [subject(bound_s=bound_s)])
    assert found.lines[0].verdict == verdict


@pytest.mark.parametrize(("predicted_us", "verdict"), [(91.0, "pass"), (90.0, "fail"), (None, "inconclusive")])
def test_no_slower_than_predicted_and_ten_percent(predicted_us, verdict):
    predicted_s = None if predicted_us is None else predicted_us * US
    found = gate([rule(baseline="prediction", tolerance_ratio=0.1)], [subject(predicted_s=predicted_s)])
    assert found.lines[0].verdict == verdict


def test_a_time_whose_interval_spans_the_limit_is_inconclusive():
    wide = (70 * US, 90 * US, 100 * US, 110 * US, 150 * US)
    found = gate([rule(baseline="bound", least_ratio=0.8)], [subject(times_s=wide, bound_s=80 * US)])
    assert found.lines[0].verdict == "inconclusive"


def test_of_several_exit_codes_device_then_wrong_result_then_regression_then_inconclusive_wins():
    subjects = [
        subject("a"),
        subject("b"),
        subject("c", times_s=(), outcome="incorrect"),
        subject("d", times_s=(), outcome="infra"),
    ]
    verdicts = [("r", "a", "inconclusive"), ("r", "b", "regression")]
    codes = [gate([rule()], subjects[:count], verdicts).exit_code for count in (1, 2, 3, 4)]
    assert codes == [11, 10, 12, 3]
    assert [one.exit_code for one in gate([rule()], subjects, verdicts).lines] == [3, 12, 10, 11]


def test_a_series_that_could_not_run_is_inconclusive():
    found = gate([rule()], [subject(times_s=(), outcome="unsupported")])
    assert found.exit_code == 11
    assert "unsupported" in found.lines[0].text


def test_a_slowdown_that_one_run_alone_shows_is_a_suspect_and_does_not_fail():
    policy = GatePolicy(name="p", source="gate.toml", rules=(rule(),))
    found = decided(policy, [subject()], {("r", "s"): history(judgement("regression", 1.1), confirmed=False)}, "abc")
    assert (found.verdict, found.exit_code) == ("inconclusive", 11)
    assert found.lines[0].text.endswith("; said why")


@pytest.mark.parametrize(("known", "words"), [(True, "at equal clocks: clock -3.0%"), (False, "is not known")])
def test_a_clock_that_moved_is_told(known, words):
    policy = GatePolicy(name="p", source="gate.toml", rules=(rule(),))
    one = history(judgement("inconclusive", 1.02), clock_ratio=0.97, share_known=known)
    assert words in decided(policy, [subject()], {("r", "s"): one}, "abc").lines[0].text


@pytest.mark.parametrize(("outcome", "words"), [
    ("crash", "it crashed at this revision"), ("timeout", "it did not end within its limit"),
    ("oom", "it ran out of memory"), ("failed", "it ended with an error"),
])  # fmt: skip
def test_what_did_not_run_to_its_end_fails_in_its_own_words_whatever_the_policy_lets_pass(outcome, words):
    for baseline in ("previous", "bound"):
        found = gate([rule(baseline=baseline, inconclusive="pass")], [subject(times_s=(), outcome=outcome)])
        assert (found.verdict, found.exit_code) == ("fail", 10)
        assert words in found.lines[0].text
        assert "wrong" not in found.lines[0].text


@pytest.mark.parametrize(("revisions", "more", "words"), [
    (("a" * 40,), {}, "+0.0% time against the revision before aaaaaaaaaa ("),
    (("a" * 40,), {"strayed": "b" * 40}, "the revision before aaaaaaaaaa; bbbbbbbbbb strays ("),
    (("a" * 40, "b" * 40), {"wanted_count": 5}, ", aaaaaaaaaa to bbbbbbbbbb, 2 revisions of it ("),
    (("a" * 40, "b" * 40), {"wanted_count": 2}, ", aaaaaaaaaa to bbbbbbbbbb ("),
    (("",), {}, "the revision before ("),
])  # fmt: skip
def test_a_line_names_the_revisions_that_were_really_compared(revisions, more, words):
    policy = GatePolicy(name="p", source="gate.toml", rules=(rule(),))
    judged = {("r", "s"): history(judgement("invariant"), revisions=revisions, **more)}
    assert words in decided(policy, [subject()], judged, "abc").lines[0].text
