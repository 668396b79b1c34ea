"""Bisection: the planted culprit, few steps, skips, two causes, and refusals."""

import math

import numpy as np
import pytest
from benchmarks.bisection import trial

from nearpeak.bisection.noisy_search import BisectAxis, bisected
from nearpeak.errors import SpecError

COMMITS = BisectAxis(name="commit", versions=tuple(f"c{i}" for i in range(17)))
DRIVER = BisectAxis(name="driver", versions=("550", "570"))


def test_the_culprit_is_found_over_commits_and_components_within_the_steps():
    rows = [trial((256, 1, 1, 1), seed) for seed in range(60)]
    assert sum(right for _, right in rows) >= 59
    assert max(len(found.steps) for found, _ in rows) <= 20
    assert np.median([len(found.steps) for found, _ in rows]) <= 15


def test_versions_that_cannot_be_built_are_passed_by():
    rows = [trial((256, 3, 3), seed, broken_ratio=0.2) for seed in range(40)]
    assert sum(right for _, right in rows) >= 38
    assert any(step.time_ratio is None for found, _ in rows for step in found.steps)


def test_two_causes_are_both_found():
    assert sum(trial((128, 2), seed, causes=2)[1] for seed in range(40)) >= 37


def test_a_driver_given_last_is_exchanged_only_when_nothing_else_is_left():
    def measure(good, bad):
        return 1.05 if bad["driver"] == "570" and good["driver"] == "550" else 1.0

    found = bisected([COMMITS, DRIVER], 1.05, 0.001, measure)
    assert (found.culprits[0].axis, found.culprits[0].after) == ("driver", "570")
    exchanged = [step for step in found.steps if step.candidate["driver"] == "570"]
    assert all(step.candidate["commit"] == "c16" for step in exchanged)
    assert len(exchanged) == 1


def test_a_likely_axis_is_asked_first():
    likely = BisectAxis(name="torch", versions=("2.8", "2.9"), weight_ratio=1000.0)

    def measure(good, bad):
        return 1.05 if bad["torch"] == "2.9" and good["torch"] == "2.8" else 1.0

    found = bisected([COMMITS, likely], 1.05, 0.01, measure)
    assert found.culprits[0].axis == "torch"
    assert len(found.steps) <= 3


def test_a_slowdown_that_is_gone_is_not_pinned_on_anybody():
    rng = np.random.default_rng(0)
    found = bisected([COMMITS], 1.05, 0.01, lambda good, bad: math.exp(rng.normal(0, 0.01)))
    assert found.outcome == "not-there"
    assert found.culprits == ()


def test_an_improvement_is_bisected_alike():
    def measure(good, bad):
        return 0.9 if int(bad["commit"][1:]) >= 5 > int(good["commit"][1:]) else 1.0

    assert bisected([COMMITS], 0.9, 0.01, measure).culprits[0].after == "c5"


def test_a_budget_that_ends_early_leaves_a_likely_culprit():
    found = bisected([COMMITS], 1.05, 0.01, lambda good, bad: 1.05 if bad["commit"] == "c16" else 1.0, most_steps=2)
    assert found.outcome == "likely"
    assert len(found.steps) == 2


@pytest.mark.parametrize(
    ("axes", "ratio", "spread", "word"),
    [
        ([], 1.05, 0.01, "at least one"), ([COMMITS, COMMITS], 1.05, 0.01, "each once"),
        ([COMMITS], 1.0, 0.01, "must differ"), ([COMMITS], math.nan, 0.01, "must differ"),
        ([COMMITS], 1.05, 0.0, "spread"),
    ],
)  # fmt: skip
def test_a_search_that_cannot_be_is_refused(axes, ratio, spread, word):
    with pytest.raises(SpecError, match=word):
        bisected(axes, ratio, spread, lambda good, bad: 1.0)


def test_an_axis_on_which_nothing_changes_is_refused():
    with pytest.raises(SpecError, match="two versions"):
        BisectAxis(name="commit", versions=("a",))
    with pytest.raises(SpecError, match="weight"):
        BisectAxis(name="commit", versions=("a", "b"), weight_ratio=0.0)
