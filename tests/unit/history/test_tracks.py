"""Tracks: values by commit, names of series, changes kept in the store and followed by alerts."""

import shutil

import pytest

from nearpeak.core.history.stored_run import TIME, Device, Revision, RunRecord, SampleSet, Source, Testbed
from nearpeak.errors import NotFoundError
from nearpeak.history.demo_series import planted
from nearpeak.history.regression_groups import regressed, save_regressions
from nearpeak.history.series_tracks import series_named, track_of
from nearpeak.store import open_store

PLANTS = planted(120)


def run(position, *medians, sha=None, number=0, outcome="budget"):
    samples = tuple(
        SampleSet(case="c", label="case one", metric=TIME, testbed=Testbed(name="b"), launch=launch, outcome=outcome,
                  values=(value,) * 3 if outcome == "budget" else (), clock_hz=None)
        for launch, value in enumerate(medians)
    )  # fmt: skip
    return RunRecord(
        device=Device(name="A device"), samples=samples, source=Source(digest=f"{position} {number}"),
        revision=Revision(sha=sha or f"{position:040d}", repository="r", position=position), started_ns=position,
    )  # fmt: skip


@pytest.fixture
def small(tmp_path):
    with open_store(tmp_path / "small.db", create=True) as opened:
        yield opened


def test_launches_and_runs_of_one_commit_are_one_value_their_median(small):
    small.ingest_all([run(0, 1.0, 2.0), run(0, 9.0, number=1), run(1, 4.0)])
    found = track_of(small, 1)
    assert [one.value for one in found.points] == [2.0, 4.0]
    assert found.points[0].values == (1.0, 2.0, 9.0)
    assert found.outcome == "too-short"


def test_launches_that_failed_are_counted_and_not_valued(small):
    small.ingest_all([run(0, 1.0), run(1, 0.0, outcome="timeout")])
    found = track_of(small, 1)
    assert (len(found.points), found.failed_count) == (1, 1)


def test_commits_stand_in_the_order_of_the_history_whatever_was_measured_first(small):
    small.ingest_all([run(5, 5.0), run(2, 2.0), run(9, 9.0)])
    assert [one.value for one in track_of(small, 1).points] == [2.0, 5.0, 9.0]


def test_series_are_named_by_number_by_words_and_by_digest(store):
    everything = series_named(store, [])
    assert len(series_named(store, [str(everything[3].id)])) == 1
    softmax = series_named(store, ["softmax", "h200"])
    assert {(one.workload, one.device) for one in softmax} == {("softmax", "NVIDIA H200")}
    assert series_named(store, [everything[0].fingerprint[:12]]) == (everything[0],)
    assert {one.case for one in series_named(store, [everything[0].case[:12]])} == {everything[0].case}


def test_series_that_are_not_there_are_named(store):
    with pytest.raises(NotFoundError, match="softmaxx"):
        series_named(store, ["softmaxx"])
    with pytest.raises(NotFoundError, match="of device 'TPU'"):
        series_named(store, [], device="TPU")
    with pytest.raises(NotFoundError):
        track_of(store, 12345)


def test_changes_of_runs_without_commits_are_told_apart_by_their_times(small):
    for number in range(60):
        level = 1.0 if number < 20 else 1.1 if number < 40 else 1.25
        for device in ("a", "b"):
            value = level * (1 + 0.0005 * (number % 3)) if device == "a" else 1 + 0.0005 * (number % 3)
            one = SampleSet(case="c", label="case", metric=TIME, testbed=Testbed(name="b"), values=(value,) * 3)
            source = Source(digest=f"{device}{number}")
            small.ingest(
                RunRecord(device=Device(name=device), samples=(one,), source=source, started_ns=10**9 * (number + 1))
            )
    tracks = [track_of(small, one.id) for one in small.series()]
    assert [len(one.changes) for one in regressed(tracks)] == [1, 1]


def test_what_is_saved_twice_opens_no_second_alert_and_moves_none(made_up, tracks, tmp_path):
    place = shutil.copy(made_up, tmp_path / "copy.db")
    with open_store(place) as store:
        groups = regressed(tracks)
        first, again = save_regressions(store, tracks, groups), save_regressions(store, tracks, groups)
        assert [one.alert_id for one in first] == [one.alert_id for one in again]
        assert len(store.findings.alerts()) == sum(not one.by_clock for one in groups) < len(groups)
        assert len(store.findings.changes()) == sum(len(one.changes) for one in tracks)
        store.findings.move_alert(first[0].alert_id, "active", actor="me")
        assert save_regressions(store, tracks, groups)[0].status == "active"


def test_an_episode_of_the_clock_opens_no_alert_and_is_known_to_be_over(made_up, tracks, tmp_path):
    place = shutil.copy(made_up, tmp_path / "copy.db")
    with open_store(place) as store:
        episode = save_regressions(store, tracks, regressed(tracks))[-1]
    (start, stop) = (PLANTS[2].commit, 1 / PLANTS[2].time_ratio)
    assert (episode.by_clock, episode.over, episode.alert_id) == (True, True, 0)
    for _, one in episode.changes:
        assert one.index == start
        assert one.low_ratio <= 1.03 <= one.high_ratio or abs(one.value_ratio - 1.03) < 0.003
        assert one.clock_ratio == pytest.approx(stop, rel=0.002)


def test_a_change_that_is_taken_back_is_over_and_its_alert_goes_away(small):
    levels = [1.0] * 30 + [1.1] * 20
    small.ingest_all([run(place, one * (1 + 0.001 * (place % 3))) for place, one in enumerate(levels)])
    tracks = [track_of(small, 1)]
    (group,) = save_regressions(small, tracks, regressed(tracks))
    assert (group.status, group.over) == ("new", False)
    small.ingest_all([run(50 + place, 1 + 0.001 * (place % 3)) for place in range(20)])
    tracks = [track_of(small, 1)]
    (group,) = save_regressions(small, tracks, regressed(tracks))
    assert (group.status, group.over) == ("went-away", True)
