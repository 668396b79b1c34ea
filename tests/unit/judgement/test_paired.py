"""Verdicts on paired rounds: few false ones, planted changes found, mirrored when the roles are swapped."""

import random

import pytest

from nearpeak.core.runs.paired_rounds import Round
from nearpeak.errors import SpecError
from nearpeak.judgement.paired_verdict import LOOKS, judged, rounds_needed
from nearpeak.measurement.timing.interleaved_rounds import log_ratio


def rounds(*four_log_ratio):
    return [Round(four_log_ratio=(one,)) for one in four_log_ratio]


def verdict_of(draw, tolerance=0.02):
    """The verdict at the first look that gives one, as `compare` looks."""
    seen = []
    while True:
        seen += rounds(draw())
        if len(seen) in LOOKS:
            found = judged(seen, tolerance).verdict
            if found != "inconclusive" or len(seen) == LOOKS[-1]:
                return found


@pytest.mark.parametrize("spread", [0.005, 0.01, 0.02, 0.04])
def test_the_same_work_is_hardly_ever_called_different(spread):
    noise = random.Random(2)
    verdicts = [verdict_of(lambda: noise.gauss(0.0, spread)) for _ in range(1000)]
    assert sum(one in ("regression", "improvement") for one in verdicts) <= 10
    if spread <= 0.02:
        assert verdicts.count("inconclusive") <= 200


@pytest.mark.parametrize("spread", [0.005, 0.01, 0.02, 0.03])
def test_five_per_cent_more_work_is_found(spread):
    noise = random.Random(3)
    verdicts = [verdict_of(lambda: noise.gauss(0.0488, spread)) for _ in range(1000)]
    assert verdicts.count("regression") >= 950
    assert "improvement" not in verdicts


def test_rounds_that_are_far_off_now_and_then_raise_no_alarm():
    noise = random.Random(4)
    draw = lambda: noise.gauss(0.0, 0.01 if noise.random() < 0.9 else 0.1)  # noqa: E731
    verdicts = [verdict_of(draw) for _ in range(1000)]
    assert sum(one in ("regression", "improvement") for one in verdicts) <= 10


def test_rounds_that_are_far_off_now_and_then_hide_no_change():
    noise = random.Random(5)
    draw = lambda: noise.gauss(0.0296, 0.01 if noise.random() < 0.9 else 0.1)  # noqa: E731
    verdicts = [verdict_of(draw) for _ in range(500)]
    assert verdicts.count("regression") >= 475
    assert "improvement" not in verdicts


@pytest.mark.parametrize("values", [(0.05, 0.052, 0.049, 0.051, 0.05), (0.01, -0.01, 0.0, 0.002, 0.001)])
def test_swapped_roles_mirror_the_verdict(values):
    mirror = {"regression": "improvement", "improvement": "regression"}
    there, back = judged(rounds(*values), 0.02), judged(rounds(*(-one for one in values)), 0.02)
    assert back.verdict == mirror.get(there.verdict, there.verdict)
    assert back.time_ratio == pytest.approx(1 / there.time_ratio)
    assert (back.low_ratio, back.high_ratio) == pytest.approx((1 / there.high_ratio, 1 / there.low_ratio))


def test_a_change_within_the_tolerance_is_invariant_however_sure():
    found = judged(rounds(0.01, 0.0101, 0.0099, 0.01, 0.01), 0.02)
    assert found.verdict == "invariant"
    assert found.low_ratio > 1


def test_what_is_too_noisy_says_what_it_would_take():
    noisy = rounds(0.1, -0.1, 0.08, -0.06, 0.02)
    found = judged(noisy, 0.02)
    assert found.verdict == "inconclusive"
    assert found.detectable_ratio > 0.2
    assert rounds_needed(noisy, 0.02) > 100


@pytest.mark.parametrize(("values", "tolerance", "message"), [
    ((0.0,), 0.02, "at least 2"),
    ((0.0, 0.0), 0.0, "between 0 and 1"),
    ((float("nan"), 0.0), 0.02, "finite"),
])  # fmt: skip
def test_what_cannot_be_judged_is_refused(values, tolerance, message):
    with pytest.raises(SpecError, match=message):
        judged(rounds(*values), tolerance)


@pytest.mark.parametrize("drift", [0.9, 1.0, 1.001, 1.3])
@pytest.mark.parametrize("order", [(0, 1, 1, 0), (1, 0, 0, 1)])
def test_steady_drift_cancels_in_four_turns(order, drift):
    times = [drift**turn * (1.05 if arm else 1.0) for turn, arm in enumerate(order)]
    import math

    assert log_ratio(order, times) == pytest.approx(math.log(1.05))
