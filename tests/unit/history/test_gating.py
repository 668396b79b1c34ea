"""Gates over a store: which revision, which baseline, bounds and predictions of real cases."""

import subprocess

import pytest

from nearpeak.core.history import Device, Metric, Revision, RunRecord, SampleSet, Source, Testbed
from nearpeak.errors import NotFoundError, SpecError
from nearpeak.history.demo import demo_revisions, planted
from nearpeak.history.gating import gated
from nearpeak.history.policy import policy_of
from nearpeak.store import open_store

SHAS = [one.sha for one in demo_revisions(120, 0)]
SLOW = planted(120)[4].commit


def gate(store, *rules, **options):
    return gated(store, policy_of("\n".join(rules), "gate.toml"), **options)


def rule(baseline="previous", **more):
    lines = {"name": repr("r"), "baseline": repr(baseline)} | more
    return "[[rule]]\n" + "\n".join(f"{key} = {value}" for key, value in lines.items())


SOFTMAX = "{ op = 'softmax', target = 'mi300x' }"


def test_a_planted_regression_fails_against_previous_and_against_several_before(store):
    for baseline in ({}, {"baseline": "rolling", "window": 10}):
        found = gate(store, rule(**baseline, select=SOFTMAX), revision=SHAS[SLOW])
        assert (found.verdict, found.exit_code, len(found.lines)) == ("fail", 10, 2)
        assert all(1.10 < line.judgement.time_ratio < 1.14 for line in found.lines)


def test_a_quiet_commit_passes_and_the_newest_is_judged_unless_another_is_named(store):
    found = gate(store, rule("rolling", window=20, select=SOFTMAX))
    assert (found.verdict, found.revision) == ("pass", SHAS[-1])
    assert gate(store, rule(select=SOFTMAX), revision=SHAS[SLOW - 5][:10]).verdict == "pass"


def test_a_tag_is_a_measured_commit_or_is_looked_up_in_the_repository(store, tmp_path):
    found = gate(store, rule("tag", tag=repr(SHAS[SLOW - 1][:12]), select=SOFTMAX))
    assert found.verdict == "fail"
    with pytest.raises(SpecError, match="'v1' is no measured commit; give --repository"):
        gate(store, rule("tag", tag=repr("v1")))
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    with pytest.raises(SpecError, match="v1"):
        gate(store, rule("tag", tag=repr("v1")), repository=tmp_path)


def test_bound_and_prediction_are_those_of_the_cases_on_their_devices(store):
    near = gate(store, rule("bound", at_least=repr("60%"), select=SOFTMAX))
    assert {line.verdict for line in near.lines} == {"fail", "pass"}  # 59 % after the regression, and 74 %
    found = gate(store, rule("prediction", tolerance=repr("99%"), select="{ op = 'gemm', target = 'h100*' }"))
    assert all("against its prediction" in line.text for line in found.lines)


def test_the_first_commit_has_no_baseline_and_is_inconclusive(store):
    found = gate(store, rule(), revision=SHAS[0])
    assert found.exit_code == 11
    assert "no baseline" in found.lines[0].text


@pytest.mark.parametrize(("options", "words"), [
    ({"revision": "ffffffff"}, "was not measured"), ({"branch": "other"}, "no measured commits"),
    ({"metric": "energy"}, "no measured commits"),
])  # fmt: skip
def test_what_was_not_measured_is_said(store, options, words):
    with pytest.raises(NotFoundError, match=words):
        gate(store, rule(), **options)


@pytest.mark.parametrize(("factor", "verdict"), [(0.9, "fail"), (1.1, "pass")])
def test_a_metric_of_which_more_is_better_fails_when_it_falls(tmp_path, factor, verdict):
    rate = Metric(name="throughput", unit="1/s", direction="higher", kind="throughput")
    with open_store(tmp_path / "a.db", create=True) as store:
        for position in range(20):
            value = 100.0 * (1 + 0.001 * (position % 3)) * (factor if position == 19 else 1.0)
            samples = SampleSet(case="c", label="c", metric=rate, testbed=Testbed(name="b"), values=(value,))
            store.ingest(
                RunRecord(device=Device(name="d"), samples=(samples,), source=Source(digest=str(position)),
                          revision=Revision(sha=f"{position:040d}", repository="r", position=position))
            )  # fmt: skip
        assert gate(store, rule("rolling", window=5), metric="throughput").verdict == verdict


def test_a_revision_that_names_several_commits_is_refused(store):
    letter = SHAS[0][0]
    with pytest.raises(SpecError, match="more letters"):
        gate(store, rule(), revision=letter)
