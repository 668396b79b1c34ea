"""Verdicts against history: false alarms and power on seeded noise, mirrored, silent where nothing tells the noise."""

import numpy as np
import pytest

from nearpeak.errors import SpecError
from nearpeak.judgement.newest_value_test import judged_against


def verdicts(ratio, *, window, trials=400, sigma=0.004, count=40):
    rng = np.random.default_rng(7)
    found = []
    for _ in range(trials):
        values = np.exp(sigma * rng.standard_normal(count + 1))
        before, newest = list(values[:-1]), values[-1] * ratio
        found.append(judged_against([newest], before[-window:], before, 0.02).verdict)
    return found


@pytest.mark.parametrize("window", [1, 10])
def test_nothing_changed_is_almost_never_called_a_change(window):
    found = verdicts(1.0, window=window)
    assert found.count("regression") + found.count("improvement") <= 4  # 1 % of 400


@pytest.mark.parametrize(("window", "lag"), [(1, 1), (10, 1), (1, 30)])
def test_noise_with_memory_is_not_taken_for_a_change(window, lag):
    rng, found = np.random.default_rng(11), []
    for _ in range(400):
        values = [0.0]
        for fresh in 0.008 * rng.standard_normal(60):
            values.append(0.7 * values[-1] + fresh)
        values = list(np.exp(values))
        baseline = values[-1 - lag - window + 1 : len(values) - lag]
        found.append(judged_against([values[-1]], baseline, values[:-1], 0.02, lag=lag).verdict)
    assert found.count("regression") + found.count("improvement") <= 8


def test_five_percent_are_found_and_mirrored():
    assert verdicts(1.05, window=10).count("regression") >= 392
    assert verdicts(1 / 1.05, window=10).count("improvement") >= 392


def test_swapping_the_sides_mirrors_the_verdict():
    before = [1.0, 1.001, 0.999, 1.002, 1.0, 0.998, 1.001]
    one, other = judged_against([1.05], [1.0], before, 0.02), judged_against([1.0], [1.05], before, 0.02)
    assert (one.verdict, other.verdict) == ("regression", "improvement")
    assert one.time_ratio * other.time_ratio == pytest.approx(1)
    assert one.low_ratio * other.high_ratio == pytest.approx(1)


def test_a_spike_in_the_history_does_not_hide_a_change():
    before = [1.0, 1.001, 0.999, 1.5, 1.002, 1.0, 0.998, 1.001, 1.0]
    assert judged_against([1.05], before[-3:], before, 0.02).verdict == "regression"


def test_without_history_launches_tell_the_noise_and_single_values_tell_nothing():
    assert judged_against([1.05, 1.051, 1.049], [1.0, 1.001, 0.999], [], 0.02).verdict == "regression"
    assert judged_against([1.05], [1.0], [1.0], 0.02) is None


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_values_that_are_none_are_refused(wrong):
    with pytest.raises(SpecError, match="positive and finite"):
        judged_against([wrong], [1.0], [], 0.02)
    with pytest.raises(SpecError, match="a value each"):
        judged_against([], [1.0], [], 0.02)
