"""Followed change points: never lost, never doubled, measured again once, closed when the level is back."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks._replay import delay, replayed
from benchmarks._series import one_step
from hypothesis import given
from hypothesis import strategies as st

from nearpeak.analyze.changes import changes
from nearpeak.analyze.online import followed, measured_again, remeasurements, wants_measuring, went_away
from nearpeak.core.change import ChangePoint, Detection
from nearpeak.core.tracked import Tracked


def point(index, tier="suspect", ratio=1.05, reach=1):
    return ChangePoint(
        index=index, low_index=index - reach, high_index=index + reach, tier=tier, probability_ratio=0.3,
        time_ratio=ratio, low_ratio=ratio - 0.01, high_ratio=ratio + 0.01, before_count=20, after_count=5,
    )  # fmt: skip


def seen(*indices, tier="suspect"):
    return Detection(outcome="searched", points=tuple(point(one, tier) for one in indices))


def tracked(index, **parts):
    return replace(Tracked(point=point(index), first_seen_index=index + 2, last_seen_index=index + 2), **parts)


@given(st.lists(st.lists(st.integers(20, 90), max_size=4, unique=True), max_size=12))
def test_a_followed_point_is_never_dropped_and_two_are_never_near(runs):
    kept = ()
    for newest, indices in enumerate(runs, 95):
        after = followed(kept, seen(*sorted(indices)), newest)
        assert len(after) >= len(kept)
        assert [one.first_seen_index for one in after[: len(kept)]] == [one.first_seen_index for one in kept]
        there = [new.point.index for old, new in zip(kept, after, strict=False) if old.retracted_index is None]
        assert all(abs(one.point.index - other) > 4 for one in after[len(kept) :] for other in there)
        kept = after


def test_a_point_that_is_found_two_values_away_is_the_same_and_three_away_no_new_one():
    once = followed((), seen(50), 55)
    (moved,) = followed(once, seen(52), 56)
    assert (moved.point.index, moved.first_seen_index, moved.last_seen_index) == (52, 55, 56)
    (left,) = followed(once, seen(53), 56)
    assert (left.point.index, left.retracted_index) == (50, 56)
    assert [one.point.index for one in followed(once, seen(50, 55), 56)] == [50, 55]


def test_a_mark_stays_at_its_first_commit_and_goes_when_the_point_is_found_again():
    once = followed((), seen(50), 55)
    gone = followed(followed(once, seen(), 56), seen(), 57)
    assert gone[0].retracted_index == 56
    assert followed(gone, seen(51), 58)[0].retracted_index is None


def test_a_suspect_is_measured_once_and_an_undecided_one_again_when_confirmed():
    one = tracked(50)
    assert wants_measuring(one)
    assert not wants_measuring(replace(one, retracted_index=60))
    undecided = measured_again(one, "inconclusive")
    assert not wants_measuring(undecided)
    assert wants_measuring(replace(undecided, point=point(50, "confirmed")))
    assert wants_measuring(replace(measured_again(one, "invariant"), point=point(50, "confirmed")))
    assert not wants_measuring(measured_again(replace(undecided, point=point(50, "confirmed")), "inconclusive"))
    assert [measured_again(one, verdict).measured for verdict in ("regression", "improvement", "invariant")] == [
        "proved", "proved", "refuted",
    ]  # fmt: skip


def test_jobs_are_one_for_each_range_and_five_series_run_first():
    points = {f"s{i}": point(50 + i % 2, ratio=1.01 + 0.01 * i) for i in range(8)} | {"late": point(80)}
    first, second = remeasurements(points, range(0, 90, 2), {"s0": 100.0})
    assert (first.good_index, first.bad_index) == (46, 88)
    assert first.series[0] == "s0"
    assert (len(first.series), len(first.waiting)) == (5, 3)
    assert (second.series, second.good_index) == (("late",), 76)
    assert remeasurements({"early": point(2)}, [5, 6], {}) == ()


@given(st.permutations(range(6)))
def test_jobs_do_not_depend_on_the_order_of_the_series(order):
    points = {f"s{i}": point(40 + 3 * i, reach=2) for i in order}
    assert remeasurements(points, range(100), {}) == remeasurements(dict(sorted(points.items())), range(100), {})


def test_a_level_that_is_back_for_eight_commits_went_away():
    values = [100.0] * 50 + [105.0] * 10 + [100.1] * 8
    one = tracked(50)
    assert went_away(one, values[:66], 65).went_away_index is None
    assert went_away(one, values, 67).went_away_index == 67
    assert went_away(replace(one, point=point(50, ratio=1.004)), values, 67).went_away_index is None
    assert went_away(one, [*values[:60], *[0.0] * 8], 67).went_away_index is None


def test_changes_seen_commit_by_commit_are_kept_as_the_series_grows():
    values, (change,) = one_step("quiet", 0.05, 1002, 100)
    kept = ()
    for newest in range(40, 100):
        after = followed(kept, changes(values[: newest + 1]), newest)
        assert len(after) >= len(kept)
        kept = after
    assert min(one.first_seen_index - change for one in kept if abs(one.point.index - change) <= 2) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("family", ["quiet", "realgpu"])
def test_a_step_is_told_within_three_commits_after_measuring_again_and_nothing_else_is(family):
    slower = replayed(family, 0.05, 3)
    assert delay(slower, slower.alerts) <= 3
    assert len(slower.alerts) == 1
    assert replayed(family, 0.0, 3).alerts == ()
    assert np.isfinite(slower.launches)
