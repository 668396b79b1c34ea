"""What could not be looked at is said: runs that ended early, histories too short to search, causes and ages."""

from dataclasses import replace

import pytest
from tests.unit.store.records import random_run, run, samples
from typer.testing import CliRunner

from nearpeak.cli import application
from nearpeak.core.history.stored_run import Revision, Source
from nearpeak.history.failed_series import failed_groups, save_failures
from nearpeak.history.opportunity_ranking import ranking_of
from nearpeak.history.series_tracks import track_of
from nearpeak.ops import case
from nearpeak.reports.document.terminal import to_terminal
from nearpeak.reports.history.regressions import regressions_document
from nearpeak.store import open_store

GEMM = case("gemm", m=8, n=8, k=8, dtype="fp32")


def gemm(outcome="converged", launch=0, label="gemm", **more):
    values = (1e-6, 1.1e-6) if outcome == "converged" else ()
    fields = {"parameters": GEMM.record(), "outcome": outcome, "launch": launch}
    return samples(GEMM.digest if label == "gemm" else label, values, **fields, **more)


def at(number, *sets):
    revision = Revision(sha=f"{number:040x}", repository="r", position=number, subject=f"Commit {number}")
    return run(number, sets, revision=revision)


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "a.db", create=True) as opened:
        yield opened


def groups(store):
    return failed_groups(store, store.series())


@pytest.mark.parametrize("outcome", ["crash", "timeout", "oom", "failed", "incorrect"])
def test_a_series_that_no_longer_runs_is_a_group_with_its_own_word_and_one_alert(store, outcome):
    words = {"crash": "crashed", "timeout": "did not end within its limit", "oom": "ran out of memory",
             "failed": "ended with an error", "incorrect": "gave a wrong result"}  # fmt: skip
    store.ingest(at(1, gemm(), gemm(label="b")))
    store.ingest(at(2, gemm(outcome), gemm(outcome, label="b")))
    store.ingest(at(3, gemm(outcome), gemm(outcome, label="b")))
    (group,) = groups(store)
    assert group.title == f"2 series {words[outcome]}: Commit 2"
    assert (group.good_sha[-1], group.bad_sha[-1], group.failures[0].commit_count) == ("1", "2", 2)
    for _ in range(2):
        (saved,) = save_failures(store, store.series(), groups(store))
    (alert,) = store.findings.alerts()
    assert (alert.title, alert.status, saved.alert_id) == (group.title, "new", alert.id)
    text = to_terminal(regressions_document((), [track_of(store, item.id) for item in store.series()], (saved,)))
    assert f"✗ 0000000000 2 series {words[outcome]}: Commit 2\n  ran until 0000000000; alert 1, new\n" in text


def test_what_runs_again_is_no_failure_and_its_change_is_retracted(store):
    store.ingest(at(1, gemm("crash")))
    assert groups(store)[0].good_sha == ""
    save_failures(store, store.series(), groups(store))
    store.ingest(at(2, gemm()))
    assert groups(store) == ()
    save_failures(store, store.series(), ())
    assert store.findings.changes() == ()


def test_an_alert_of_failures_is_closed_when_all_of_its_series_run_again_and_active_when_one_fails_again(store):
    def saved():
        save_failures(store, store.series(), groups(store))
        return [(alert.status, store.findings.events(alert.id)[-1].note) for alert in store.findings.alerts()]

    store.ingest(at(1, gemm(), gemm(label="b")))
    store.ingest(at(2, gemm("crash"), gemm("crash", label="b")))
    assert saved() == [("new", "")]
    store.ingest(at(3, gemm(), gemm("crash", label="b")))
    assert saved() == [("new", "")]  # one of the two still fails
    store.ingest(at(4, gemm(), gemm(label="b")))
    assert [saved(), saved()] == [[("went-away", "its series run again")]] * 2
    store.ingest(at(5, gemm("crash"), gemm(label="b")))
    assert saved() == [("went-away", "its series run again"), ("new", "")]  # at another commit: another alert


def test_a_search_for_improvements_leaves_alerts_of_failures_alone(store):
    store.ingest(at(1, gemm()))
    store.ingest(at(2, gemm("crash")))
    save_failures(store, store.series(), groups(store))
    done = CliRunner().invoke(application(), ["regressions", "--better", "--save", "--store", store.name])
    assert done.exit_code == 0, done.output
    assert ([alert.status for alert in store.findings.alerts()], len(store.findings.changes())) == (["new"], 1)


def test_an_alert_whose_failure_comes_back_at_its_commit_is_active_again(store):
    store.ingest(at(1, gemm()))
    store.ingest(at(2, gemm("crash")))
    failures = groups(store)
    save_failures(store, store.series(), failures)
    save_failures(store, store.series(), ())
    assert [alert.status for alert in store.findings.alerts()] == ["went-away"]
    (group,) = save_failures(store, store.series(), failures)
    assert (group.status, [alert.status for alert in store.findings.alerts()]) == ("active", ["active"])


def test_one_launch_of_several_that_crashed_is_a_failure_until_the_commit_is_measured_again(store):
    store.ingest(at(1, gemm(), gemm("crash", launch=1)))
    assert [group.outcome for group in groups(store)] == ["crash"]
    store.ingest(replace(at(1, gemm(), gemm(launch=1)), source=Source(digest="later"), started_ns=9))
    assert groups(store) == ()


def test_a_case_whose_newest_run_crashed_is_named_as_not_ranked(store):
    store.ingest(at(1, gemm()))
    assert not any("crashed" in item.reason for item in ranking_of(store, store.series()).abstentions)
    store.ingest(at(2, gemm("crash")))
    (missing,) = ranking_of(store, store.series()).abstentions
    assert missing.reason == "its newest run crashed, and has no time"


def test_two_commits_are_too_few_and_the_largest_difference_is_told(tmp_path):
    place = str(tmp_path / "a.db")
    with open_store(place, create=True) as store:
        for number, value in enumerate((1e-3, 1.2e-3)):
            store.ingest(at(number, samples("a", (value,)), samples("b", (1e-3,))))
        text = to_terminal(regressions_document((), [track_of(store, item.id) for item in store.series()]))
    plain = " ".join(text.split())
    assert "2 series not searched: a search needs 12 commits, these have 2 at most" in plain
    assert "largest difference between neighbours there: +20.0 %, series 2, 0000000000 to 0000000000" in plain
    done = CliRunner().invoke(application(), ["regressions", "--store", place, "--json"])
    assert (done.exit_code, done.stdout) == (0, "")
    assert "a search needs 12 commits" in done.stderr


def test_a_searched_history_says_nothing_of_what_it_needs(store):
    for number in range(12):
        store.ingest(random_run(number, cases=1))
    assert "not searched" not in to_terminal(regressions_document((), [track_of(store, 1)]))


def test_the_age_of_an_alert_is_told_in_commits(store):
    for number in range(5):
        store.ingest(random_run(number, cases=1))
    assert store.commits.ages([f"{2:040x}", "elsewhere"]) == {f"{2:040x}": 2}
