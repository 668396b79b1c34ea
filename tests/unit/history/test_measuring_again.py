"""Commits of a real repository checked out, built and measured again: confirmations, searches, and what goes wrong."""

import json
import subprocess

import pytest

from nearpeak.bisection.commit_search import commit_axis, record_culprits, searched
from nearpeak.bisection.noisy_search import BisectAxis
from nearpeak.core.history.stored_run import TIME, Device, RunRecord, SampleSet, Source, Testbed
from nearpeak.errors import MeasureError, SpecError
from nearpeak.history.regression_groups import regressed, save_regressions
from nearpeak.history.revision_builds import Workshop, launch_of
from nearpeak.history.series_tracks import track_of
from nearpeak.history.suspect_confirmation import confirmed, rounds_in
from nearpeak.store import open_store
from nearpeak.store.git_commits import git_history

pytestmark = pytest.mark.slow
COMMITS, SLOW = 24, 15
RUN = 'echo "$(cat slow.txt) ms"'


def git(folder, *words):
    subprocess.run(["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *words], check=True)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Commits whose command takes 1 ms, and 1.05 ms from one on; the one before cannot be built."""
    folder = tmp_path_factory.mktemp("repository")
    git(folder, "init", "-q", "-b", "main")
    for number in range(COMMITS):
        (folder / "slow.txt").write_text("1.05" if number >= SLOW else "1.0")
        (folder / "build.sh").write_text(f"exit {int(number == SLOW - 1)} # {number}\n")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"commit {number}")
    return folder


@pytest.fixture(scope="module")
def shas(repository):
    return [one.sha for one in git_history(repository)]


def test_the_culprit_is_found_beside_a_commit_that_cannot_be_built(repository, shas):
    with Workshop(repository, RUN, "sh build.sh") as workshop:
        found = searched([commit_axis(repository, shas[0], "HEAD")], workshop).found
    assert found.culprits[0].after in (shas[SLOW - 1], shas[SLOW])
    assert found.culprits[0].time_ratio == pytest.approx(1.05, rel=1e-3)
    assert any(step.time_ratio is None for step in found.steps)
    assert len(found.steps) <= 15


def test_what_a_search_finds_is_what_its_alert_is_blamed_on(repository, shas, tmp_path):
    store, group = history_of(tmp_path / "a.db", repository, 1.05)
    with store, Workshop(repository, RUN) as workshop:
        record_culprits(store, group.alert_id, searched([commit_axis(repository, shas[0], "HEAD")], workshop))
        (found,) = [one for one in store.investigations.attributions(group.alert_id) if one.method == "bisect"]
        steps = store.investigations.bisect(1).steps
    assert (found.axis, found.what) == ("commit", shas[SLOW])
    assert {one.verdict for one in steps} == {"good", "bad"}


def test_versions_of_a_component_are_searched_without_a_repository(tmp_path):
    axis = BisectAxis(name="lib", versions=("1", "2", "3", "4"))
    with Workshop(tmp_path, 'if [ {lib} -ge 3 ]; then echo "1.1 ms"; else echo "1.0 ms"; fi') as workshop:
        found = searched([axis], workshop).found
    assert (found.culprits[0].before, found.culprits[0].after) == ("2", "3")


def test_equal_ends_are_not_searched(repository, shas):
    with Workshop(repository, "echo '1 ms'") as workshop:
        assert searched([commit_axis(repository, shas[0], shas[5])], workshop).found is None


def test_checked_out_folders_are_gone_afterwards(repository, shas):
    with Workshop(repository, RUN) as workshop:
        workshop.launch({"commit": shas[3]}, "baseline")
    listed = subprocess.run(["git", "-C", repository, "worktree", "list"], capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()) == 1


def test_a_commit_that_is_not_there_or_ends_that_are_exchanged_are_named(repository, shas):
    with pytest.raises(SpecError, match="abcdef1: is not in the repository"):
        commit_axis(repository, "abcdef1", "HEAD")
    with pytest.raises(SpecError, match="no earlier first-parent commit"):
        commit_axis(repository, "HEAD", shas[0])


def test_ends_that_cannot_run_and_commands_that_hang_are_said(repository, shas):
    for command in ("false", "sleep 30"):
        with (
            Workshop(repository, command, limit_s=0.2) as workshop,
            pytest.raises(MeasureError, match="cannot be built"),
        ):
            searched([commit_axis(repository, shas[0], "HEAD")], workshop)


@pytest.mark.parametrize("output", ["", "hello", "1.5", "-1 ms", "0 s", '{"samples_s": ["a"]}', "nan ms"])
def test_output_without_a_time_is_refused(output):
    with pytest.raises(MeasureError, match="--run"):
        launch_of(output, "baseline")


def test_lines_of_nearpeak_measure_count_by_their_medians():
    lines = [json.dumps({"samples_s": samples}) for samples in ([1e-3, 2e-3, 9e-3], [8e-3])]
    assert launch_of("\n".join(lines), "baseline").time_s == pytest.approx(4e-3)


def history_of(place, repository, slow_ratio):
    """A store whose series gets slower at the slow commit, with its group of changes followed by an alert."""
    opened = open_store(place, create=True)
    for number, revision in enumerate(git_history(repository)):
        value = (1 + 0.0004 * (number % 3)) * (slow_ratio if number >= SLOW else 1.0)
        samples = SampleSet(case="c", label="case", metric=TIME, testbed=Testbed(name="b"), values=(value,) * 3)
        opened.ingest(
            RunRecord(device=Device(name="d"), samples=(samples,), source=Source(digest=str(number)), revision=revision)
        )
    tracks = [track_of(opened, 1)]
    (group,) = save_regressions(opened, tracks, regressed(tracks, suspects=True))
    return opened, group


@pytest.mark.parametrize(
    ("command", "status", "verdict"),
    [(RUN, "active", "regression"), ("echo '1 ms'", "invalid-noise", "invariant")],
)
def test_a_suspect_measured_again_moves_its_alert(repository, tmp_path, command, status, verdict):
    store, group = history_of(tmp_path / "a.db", repository, 1.05)
    with store, Workshop(repository, command) as workshop:
        found = confirmed(store, group, rounds_in(workshop, repository))
        events = [one.to_status for one in store.findings.events(group.alert_id)]
        kept = store.findings.comparisons()
        tiers = {one.tier for one in store.findings.changes()}
    assert (found.group.status, found.found.judgement.verdict) == (status, verdict)
    assert events == ["new", "verifying", status]
    assert [(one.verdict, one.launch_count) for one in kept] == [(verdict, 12)]
    assert status != "active" or tiers == {"confirmed"}


def test_a_suspect_that_cannot_be_built_is_new_again_with_its_reason(repository, tmp_path):
    store, group = history_of(tmp_path / "a.db", repository, 1.05)
    with store, Workshop(repository, RUN, "exit 1") as workshop:
        with pytest.raises(MeasureError, match="cannot be built"):
            confirmed(store, group, rounds_in(workshop, repository))
        assert [one.to_status for one in store.findings.events(group.alert_id)] == ["new", "verifying", "new"]
