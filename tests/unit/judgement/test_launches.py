"""Verdicts on launches in turns: mirrored, honest about clocks and drift, refused on bad input, in three looks."""

import math
from dataclasses import replace

import numpy as np
import pytest
from benchmarks._launches import gaussian, two_clocks, verdict
from hypothesis import given
from hypothesis import strategies as st

from nearpeak.core.runs.launch_pairs import BASELINE, BY_CLOCKS, CANDIDATE, Launch
from nearpeak.errors import SpecError
from nearpeak.judgement.launch_verdict import TURN, compared_in_looks, judged_launches

STILL = np.zeros(80)
MIRROR = {"regression": "improvement", "improvement": "regression"}


def launches(*times, clocks=None):
    arms = (TURN * len(times))[: len(times)]
    clocks = clocks or (None,) * len(times)
    return [Launch(arm=a, time_s=t, clock_hz=f) for a, t, f in zip(arms, times, clocks, strict=True)]


@given(st.integers(0, 1000), st.sampled_from([-0.02, -0.01, 0.0, 0.005, 0.02]), st.sampled_from([3, 5, 10]))
def test_swapped_arms_mirror_the_verdict(seed, effect, rounds):
    there = gaussian(0.005, effect, rounds, STILL, np.random.default_rng(seed))
    swapped = [replace(one, arm=BASELINE if one.arm == CANDIDATE else CANDIDATE) for one in there]
    one, other = judged_launches(there).judgement, judged_launches(swapped).judgement
    assert other.verdict == MIRROR.get(one.verdict, one.verdict)
    assert other.time_ratio == pytest.approx(1 / one.time_ratio)


@pytest.mark.parametrize("kind", ["steady", "walk", "warm-up"])
def test_drift_in_turns_raises_hardly_any_alarm(kind):
    rng = np.random.default_rng(1)
    drifts = {
        "steady": lambda: np.linspace(0, 0.01, 20), "walk": lambda: np.cumsum(rng.normal(0, 0.002, 20)),
        "warm-up": lambda: 0.02 * np.exp(-np.arange(20) / 2),
    }  # fmt: skip
    found = [verdict(gaussian(0.0035, 0.0, 5, drifts[kind](), rng)) for _ in range(300)]
    assert sum(one in MIRROR for one in found) <= 8


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_clocks_that_differ_hide_no_change_and_make_none(share):
    rng = np.random.default_rng(2)
    slower = [judged_launches(two_clocks(share, 0.01, 10, rng)) for _ in range(100)]
    assert sum(one.judgement.verdict == "regression" for one in slower) >= 97
    assert np.mean([one.clock_share_ratio for one in slower]) == pytest.approx(share, abs=0.05)
    same = [verdict(two_clocks(share, 0.0, 10, rng)) for _ in range(100)]
    assert sum(one in MIRROR for one in same) <= 4


def test_a_slowdown_through_clocks_is_named():
    clocks = [1.5e9, 1.41e9, 1.41e9, 1.5e9, 1.5e9, 1.41e9, 1.5e9, 1.5e9, 1.41e9, 1.41e9, 1.41e9, 1.5e9] * 2
    noise = np.random.default_rng(0).normal(0, 0.0003, 24)
    times = [1.5e9 / f * math.exp(e) for f, e in zip(clocks, noise, strict=True)]
    found = judged_launches(launches(*times, clocks=clocks))
    assert (found.plain.verdict, found.judgement.verdict) == ("regression", "invariant")
    assert found.cause == BY_CLOCKS
    assert found.clock_ratio < 0.99


def test_a_build_that_always_lowers_the_clock_cannot_be_told_from_the_clock():
    clocks = [1.5e9 if arm == BASELINE else 1.4e9 for arm in TURN * 3]
    found = judged_launches(launches(*(1.5e9 / f for f in clocks), clocks=clocks))
    assert found.judgement.verdict == "inconclusive"
    assert found.plain.verdict == "regression"
    assert found.clock_ratio == pytest.approx(1.4 / 1.5)


def test_equal_times_are_invariant_and_three_launches_of_an_arm_too_few_to_say():
    assert judged_launches(launches(*[1.0] * 12)).judgement.verdict == "invariant"
    assert judged_launches(launches(1.0, 1.01, 1.03, 1.02)).judgement.verdict == "inconclusive"


@pytest.mark.parametrize(
    ("given_launches", "word"),
    [
        (launches(1.0, 1.0), "1 launches of the baseline"), (launches(1.0, 1.0, 1.0, 0.0), "not positive"),
        (launches(1.0, 1.0, 1.0, math.nan), "not positive"),
        (launches(1.0, 1.0, 1.0, 1.0, clocks=[1.0, 1.0, 1.0, -1.0]), "clock"),
    ],
)  # fmt: skip
def test_bad_launches_are_refused_by_name(given_launches, word):
    with pytest.raises(SpecError, match=word):
        judged_launches(given_launches)


def test_only_an_inconclusive_look_buys_more_rounds():
    rng, bought = np.random.default_rng(3), []

    def one_round(spread, effect):
        bought.append(1)
        return gaussian(spread, effect, 1, STILL, rng)

    assert compared_in_looks(lambda: one_round(0.001, 0.05)).judgement.verdict == "regression"
    assert len(bought) == 3
    bought.clear()
    assert compared_in_looks(lambda: one_round(0.05, 0.0)).judgement.verdict == "inconclusive"
    assert len(bought) == 10
