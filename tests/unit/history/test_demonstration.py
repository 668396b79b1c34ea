"""The made-up history: the same from the same seed, written once, and what is planted in it is found with its cause."""

import pytest

from nearpeak.errors import SpecError
from nearpeak.history.demo_series import demo_runs, planted
from nearpeak.history.demo_store import SUBJECTS, bound_on, filled
from nearpeak.history.regression_groups import regressed
from nearpeak.store import open_store

COMMITS = 120
PLANTS = planted(COMMITS)


def groups_at(tracks, commit, **options):
    """The groups whose first bad commit is within two of a position."""
    positions = {point.sha: point.position for track in tracks for point in track.points}
    return [one for one in regressed(tracks, **options) if abs(positions[one.bad_sha] - commit) <= 2]


def shown(group):
    return {(str(series.parameters["op"]), series.device) for series, _ in group.changes}


def test_the_same_seed_gives_the_same_history_and_another_seed_another(tmp_path):
    runs = [list(demo_runs(SUBJECTS, bound_on, commits=40, seed=seed)) for seed in (3, 3, 4)]
    assert runs[0] == runs[1]
    assert runs[0][0].samples[0].values != runs[2][0].samples[0].values
    with open_store(tmp_path / "a.db", create=True) as store:
        assert filled(store, commits=40).run_count == 120
        assert filled(store, commits=40).run_count == 0


@pytest.mark.parametrize("commits", [39, 2001])
def test_too_few_or_too_many_commits_are_refused(commits):
    with pytest.raises(SpecError, match=str(commits)):
        list(demo_runs(SUBJECTS, bound_on, commits=commits))


def test_the_commit_that_slows_all_products_is_one_group_on_all_devices(tracks):
    (group,) = groups_at(tracks, PLANTS[0].commit)
    assert {device for _, device in shown(group)} == {"NVIDIA H100 80GB HBM3", "NVIDIA H200", "AMD Instinct MI300X"}
    assert {op for op, _ in shown(group)} == {"gemm"}
    assert group.suspects[-1] == ("commit", PLANTS[0].subject)
    assert group.suspects[0][0] == "operator"  # all that shifted are products, and no other operator did
    assert all(1.04 < one.value_ratio < 1.06 for _, one in group.changes)


def test_the_improvement_is_found_among_improvements_alone(tracks):
    (group,) = groups_at(tracks, PLANTS[1].commit, better=True)
    assert {op for op, _ in shown(group)} == {"attention"}
    assert groups_at(tracks, PLANTS[1].commit) == []


def test_the_driver_is_named_where_it_changed_with_the_level(tracks):
    (group,) = groups_at(tracks, PLANTS[3].commit)
    assert group.suspects[0] == ("component", "driver 570.86 → 580.65")
    assert ("device", "only on NVIDIA H100 80GB HBM3") in group.suspects
    assert {op for op, _ in shown(group)} == {"layer_norm", "softmax", "elementwise"}


def test_the_commit_that_one_vendor_alone_shows_is_named_with_the_device(tracks):
    (group,) = groups_at(tracks, PLANTS[4].commit)
    assert shown(group) == {("softmax", "AMD Instinct MI300X")}
    assert ("device", "only on AMD Instinct MI300X") in group.suspects


def test_the_clock_episode_is_laid_to_the_clock_or_not_found_at_all(tracks):
    for group in groups_at(tracks, PLANTS[2].commit):
        assert group.suspects[0][0] == "clock"


def test_nothing_is_found_where_nothing_was_planted(tracks):
    positions = {point.sha: point.position for track in tracks for point in track.points}
    known = {one.commit for one in PLANTS} | {one.stop for one in PLANTS}
    for group in (*regressed(tracks), *regressed(tracks, better=True)):
        assert min(abs(positions[group.bad_sha] - one) for one in known if one is not None) <= 3
