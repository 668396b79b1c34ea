"""Change points: planted ones are found where they are, and neither drift, spikes, states nor bad values make any."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from benchmarks._series import FAMILIES, hits, one_step
from benchmarks.change_points import QUOTED, by_kernel, by_squares, ours_confirmed, scored
from hypothesis import given, settings
from hypothesis import strategies as st

from nearpeak.judgement.change_points import WINDOW_VALUES, changes

RNG = np.random.default_rng(3)
QUIET = 100 * np.exp(RNG.normal(0, 0.002, 200))


def stepped(ratio, place=120, size=200):
    return np.where(np.arange(size) < place, 1.0, ratio) * 100 * np.exp(np.random.default_rng(5).normal(0, 0.003, size))


@pytest.mark.slow
def test_the_generator_gives_the_public_detectors_their_stated_figures():
    rbf, pelt = scored(by_kernel, range(30)), scored(by_squares, range(30))
    assert rbf.f1 == pytest.approx(0.82, abs=0.03)
    assert rbf.false_per_1000 == pytest.approx(1.4, abs=0.4)
    assert pelt.f1 == pytest.approx(0.22, abs=0.03)


@pytest.mark.slow
def test_the_detector_beats_its_floors_on_seeds_that_nothing_was_fitted_on():
    ours = scored(ours_confirmed, QUOTED[:10])
    assert ours.f1 >= 0.82
    assert ours.false_per_1000 <= 1
    assert ours.recall[0.02] >= 0.75
    assert ours.recall[0.05] >= 0.99
    assert ours.four_f1 >= 0.91


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_of_five_per_cent_is_found_in_every_noise(family):
    values, planted = one_step(family, 0.05, 77)
    found = changes(values).confirmed
    assert hits([one.index for one in found], planted) == 1
    near = min(found, key=lambda one: abs(one.index - planted[0]))
    assert near.time_ratio == pytest.approx(1.05, abs=0.02)
    assert near.low_ratio <= near.time_ratio <= near.high_ratio
    assert near.low_index <= near.index <= near.high_index


@pytest.mark.parametrize("ratio", [0.95, 0.98, 1.02, 1.05])
def test_the_sign_of_the_effect_is_that_of_the_step(ratio):
    (one,) = changes(stepped(ratio)).confirmed
    assert one.index == pytest.approx(120, abs=2)
    assert (one.time_ratio > 1) == (ratio > 1)
    assert one.before_count == one.index
    assert one.after_count == 200 - one.index


@pytest.mark.parametrize(
    "values",
    [
        np.full(200, 5.0), np.where(np.arange(200) == 77, 9.0, 5.0), np.linspace(100, 200, 200),
        np.exp(np.linspace(0, 1, 200)), np.where(np.arange(200) % 2, 100.0, 102.0), np.round(QUIET),
        np.where(np.arange(200) == 60, 1.4, 1.0) * QUIET, np.linspace(100, 120, 200) * QUIET,
        np.concatenate([np.full(100, 100.0), np.linspace(100, 130, 100)]) * QUIET,
    ],
    ids=["constant", "spike", "line", "exponential", "alternating", "ties", "noisy spike", "noisy line", "hinge"],
)  # fmt: skip
def test_what_is_no_step_gives_none(values):
    assert changes(values).confirmed == ()


@pytest.mark.parametrize(
    ("values", "outcome"),
    [
        ([], "too-short"), ([1.0] * 11, "too-short"), ([1.0] * 20 + [float("nan")], "not-finite"),
        ([1.0] * 20 + [float("inf")], "not-finite"), ([1.0] * 20 + [0.0], "not-positive"),
        ([1.0] * 20 + [-1.0], "not-positive"),
    ],
)  # fmt: skip
def test_bad_values_have_an_outcome_and_no_change(values, outcome):
    found = changes(values)
    assert (found.outcome, found.points) == (outcome, ())


def test_twelve_values_are_enough_and_results_can_be_written_as_json():
    found = changes([100.0, 100.2, 99.9, 100.1, 100.0, 99.9, 110.0, 110.1, 109.9, 110.2, 110.0, 110.1])
    assert [one.index for one in found.confirmed] == [6]
    assert json.loads(json.dumps(asdict(found)))["points"][0]["index"] == 6


def test_only_the_newest_values_are_searched_and_indices_count_from_the_start():
    values = stepped(1.1, place=620, size=700)
    assert [one.index for one in changes(values).confirmed] == [620]
    assert changes(stepped(1.1, place=700 - WINDOW_VALUES - 20, size=700)).confirmed == ()


def test_a_tenfold_step_and_a_huge_drop_are_found_as_one():
    assert [one.index for one in changes(stepped(10.0)).confirmed] == [120]
    assert [one.index for one in changes(stepped(1e-5)).confirmed] == [120]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(FAMILIES), st.floats(1e-9, 1e9))
def test_scaling_the_values_changes_nothing(seed, family, factor):
    values, _ = one_step(family, 0.05, seed)
    places = [one.index for one in changes(values).confirmed]
    assert [one.index for one in changes(values * factor).confirmed] == pytest.approx(places, abs=1)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["quiet", "skewed", "realgpu"]))
def test_reversing_the_series_mirrors_the_changes(seed, family):
    values, planted = one_step(family, 0.05, seed)
    there = [one.index for one in changes(values).confirmed]
    back = sorted(len(values) - one.index for one in changes(values[::-1]).confirmed)
    assert hits(there, planted, 2) == hits(back, planted, 2) == 1


@settings(max_examples=30, deadline=None)
@given(st.lists(st.one_of(st.floats(), st.sampled_from([0.0, 1.0, 1e300, 5e-324])), max_size=60))
def test_any_numbers_at_all_give_a_typed_result(values):
    found = changes(values)
    assert found.outcome in {"searched", "too-short", "not-finite", "not-positive"}
    assert all(0 < one.index < len(values) for one in found.points)


@pytest.mark.parametrize("ratio", [1.1, 1.3, 3.0, 30.0])
@pytest.mark.parametrize("length", [8, 10])
def test_a_slowdown_that_is_soon_taken_back_is_two_changes_at_their_places(length, ratio):
    values = np.exp(0.01 * np.random.default_rng(1).standard_normal(120))
    values[50 : 50 + length] *= ratio
    found = changes(values).points
    assert [point.tier for point in found] == ["confirmed"] * 2
    assert [abs(point.index - place) <= 1 for point, place in zip(found, (50, 50 + length), strict=True)] == [True] * 2
    assert [point.time_ratio for point in found] == pytest.approx([ratio, 1 / ratio], rel=0.05)


def test_no_confirmed_change_may_be_none():
    generator = np.random.default_rng(3)
    for _ in range(12):
        values = np.exp(0.01 * generator.standard_normal(80))
        values[30 : 30 + generator.integers(3, 12)] *= 1 + generator.random()
        for point in changes(values).points:
            assert point.tier == "suspect" or not point.low_ratio < 1 < point.high_ratio
