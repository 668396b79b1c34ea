"""Flips between two levels: one series of two states, whatever the distance, and never several confirmed changes."""

import numpy as np
import pytest

from nearpeak.judgement.change_points import changes
from nearpeak.judgement.state_flips import state_flips


def two_states(low, high, seed, *, chance=0.08, noise=(0.01, 0.01), size=150):
    rng = np.random.default_rng(seed)
    is_high = np.cumsum(rng.random(size) < chance) % 2 == 1
    spread = np.where(is_high, noise[1], noise[0])
    return np.where(is_high, high, low) * np.exp(spread * rng.standard_normal(size)), is_high


@pytest.mark.parametrize(("low", "high"), [(530.0, 20700.0), (100.0, 400.0), (100.0, 150.0)])
@pytest.mark.parametrize("chance", [0.04, 0.1, 0.25])
def test_two_states_are_no_changes_whatever_the_distance(low, high, chance):
    for seed in range(4):
        values, is_high = two_states(low, high, seed, chance=chance)
        if np.count_nonzero(np.diff(is_high)) >= 5:
            assert len(changes(values).confirmed) <= 1, seed


@pytest.mark.parametrize("noise", [(0.002, 0.1), (0.1, 0.002)])
def test_a_state_with_noise_of_its_own_makes_no_change(noise):
    for seed in range(3):
        assert changes(two_states(530, 20700, seed, noise=noise, size=200)[0]).confirmed == ()


@pytest.mark.parametrize("seed", range(3))
def test_a_step_of_both_states_is_found(seed):
    values, _ = two_states(530, 20700, seed, chance=0.1)
    values[80:] *= 1.1
    (one,) = changes(values).confirmed
    assert one.index == pytest.approx(80, abs=2)
    assert one.time_ratio == pytest.approx(1.1, abs=0.02)


def test_a_state_that_stays_for_good_is_a_change():
    values = np.concatenate([two_states(530, 20700, 3, chance=0.3, size=40)[0], np.full(100, 20700.0)])
    (one,) = changes(values).confirmed
    assert one.time_ratio > 30
    assert one.after_count >= 100


def test_a_change_made_twice_and_taken_back_stays_several_changes():
    values = 100 * np.exp(0.002 * np.random.default_rng(0).standard_normal(200))
    values[40:70] *= 1.1
    values[110:150] *= 1.1
    assert [one.index for one in changes(values).confirmed] == [40, 70, 110, 150]


def test_spikes_and_one_step_are_no_states():
    values = np.log(100 * np.exp(0.005 * np.random.default_rng(0).standard_normal(200)))
    values[[20, 50, 90]] += 0.3
    assert state_flips(values) is None
    assert state_flips(np.where(np.arange(100) < 50, 1.0, 2.0)) is None
    assert state_flips(np.ones(100)) is None
    assert state_flips(np.ones(3)) is None
