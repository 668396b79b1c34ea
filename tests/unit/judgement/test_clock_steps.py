"""The clock from commit to commit: the share that was planted comes back, and a change of the code stays in."""

import numpy as np
import pytest

from nearpeak.judgement.change_points import changes
from nearpeak.judgement.clock_adjustment import at_usual_clock, clock_share_of_steps


def history(share, *, step=1.0, seed=0, count=120):
    """Times and clocks: the clock is 3 % lower for a while, times follow by `share`; the code gets slower once."""
    rng = np.random.default_rng(seed)
    low = (np.arange(count) >= 60) & (np.arange(count) < 75)
    clocks = np.where(low, 0.97, 1.0) * (1 + 0.0007 * rng.standard_normal(count))
    code = np.where(np.arange(count) >= 90, step, 1.0)
    times = code * clocks**-share * np.exp(0.003 * rng.standard_normal(count))
    return times.tolist(), (2e9 * clocks).tolist()


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_planted_share_comes_back(share):
    found = [clock_share_of_steps(*history(share, seed=seed)) for seed in range(20)]
    assert np.median(found) == pytest.approx(share, abs=0.1)


def test_an_episode_of_the_clock_is_gone_at_equal_clocks_and_a_change_of_the_code_is_not():
    hits = []
    for seed in range(20):
        values, clocks = history(1.0, step=1.05, seed=seed)
        points = changes(at_usual_clock(values, clocks, clock_share_of_steps(values, clocks))).confirmed
        hits.append([one.index for one in points])
    assert sum(len(one) == 1 and abs(one[0] - 90) <= 2 for one in hits) >= 19


def test_a_steady_clock_and_a_single_step_decide_nothing():
    assert clock_share_of_steps([1.0, 1.1, 1.2], [2e9, 2e9, 2e9]) is None
    assert clock_share_of_steps([1.0, 1.1, 1.1], [2e9, 1.9e9, 1.9e9]) is None
