"""Histories at one clock: the share is that of the work, and changes that the clock hid come out."""

import numpy as np
import pytest
from benchmarks._series import one_step

from nearpeak.errors import SpecError
from nearpeak.judgement.change_points import changes
from nearpeak.judgement.clock_adjustment import at_usual_clock, clock_share

RNG = np.random.default_rng(0)


def launches(share, commits=30):
    clocks = 1.5e9 * np.exp(RNG.choice([0.0, -0.02], (commits, 4)))
    levels = np.where(np.arange(commits) < 15, 1.0, 1.1)[:, None]
    times = levels * (1.5e9 / clocks) ** share * np.exp(RNG.normal(0, 0.001, clocks.shape))
    return [list(zip(t.tolist(), f.tolist(), strict=True)) for t, f in zip(times, clocks, strict=True)]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_share_of_the_clock_is_found_in_spite_of_a_change(share):
    assert clock_share(launches(share)) == pytest.approx(share, abs=0.05)


def test_clocks_that_do_not_differ_say_nothing():
    assert clock_share([[(1.0, 1.5e9), (1.1, 1.5e9)]]) is None
    assert clock_share([[(1.0, 1.5e9)], []]) is None


def test_a_step_as_large_as_the_gap_between_clocks_is_found_at_one_clock():
    found = 0
    for seed in range(20):
        states = np.random.default_rng(seed).random(200) < 0.35
        values, (change,) = one_step("quiet", 0.02, seed)
        clocks = np.where(states, 1.5e9 / 1.02, 1.5e9)
        seen = at_usual_clock((values * 1.5e9 / clocks).tolist(), clocks.tolist(), 1.0)
        found += any(abs(one.index - change) <= 1 for one in changes(seen).confirmed)
    assert found == 20


@pytest.mark.parametrize(
    ("values", "clocks", "share", "word"),
    [([1.0], [], 1.0, "each value"), ([1.0], [1.0], 2.0, "share"), ([0.0], [1.0], 1.0, "positive")],
)
def test_bad_input_is_refused_by_name(values, clocks, share, word):
    with pytest.raises(SpecError, match=word):
        at_usual_clock(values, clocks, share)
