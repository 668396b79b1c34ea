"""Gaps: calls × (measured − max(bound, best known)), what is proven of them, how they are grouped, what has none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.judgement.opportunities.factory import gap, mover, product, timed

from nearpeak.core.answers.gap import PROVEN, THEORETICAL, Abstention
from nearpeak.errors import SpecError
from nearpeak.judgement.opportunities import RULES, grouped, ranked


def test_without_a_faster_runner_the_gap_is_theoretical_and_reaches_to_the_bound():
    found = gap(call_count=10)
    assert (found.kind, found.proven_s) == (THEORETICAL, 0.0)
    assert found.gain_s == pytest.approx(10 * (200e-6 - 128e-6))
    assert found.theoretical_s == pytest.approx(found.gain_s)


def test_with_a_faster_runner_the_gap_is_proven_and_reaches_to_that_runner():
    found = gap(best_known_s=150e-6, best_known_by="other", call_count=2)
    assert found.kind == PROVEN
    assert found.gain_s == pytest.approx(2 * 50e-6) == found.proven_s
    assert found.theoretical_s == pytest.approx(2 * 72e-6)


def test_a_slower_runner_proves_nothing():
    assert gap(best_known_s=300e-6).kind == THEORETICAL


def test_a_best_known_below_the_bound_counts_as_the_bound():
    assert gap(best_known_s=100e-6).gain_s == pytest.approx(72e-6)


def test_a_time_below_its_bound_is_said_to_be_a_fault_and_has_no_gap():
    found = gap(measured_s=100e-6)
    assert isinstance(found, Abstention)
    assert "below its bound" in found.reason


def test_without_bound_and_faster_runner_nothing_is_claimed():
    assert isinstance(gap(bound_s=None), Abstention)
    assert isinstance(gap(bound_s=None, best_known_s=300e-6), Abstention)
    assert gap(bound_s=None, best_known_s=150e-6).kind == PROVEN


@pytest.mark.parametrize("wrong", [{"measured_s": 0.0}, {"measured_s": float("nan")}, {"call_count": 0}])
def test_times_and_calls_that_are_none_are_refused(wrong):
    with pytest.raises(SpecError, match="must be positive"):
        gap(**wrong)


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(1e-6, 1.0), st.sampled_from("abc")), min_size=1, max_size=20))
def test_groups_add_up_to_all_gaps_whatever_they_are_grouped_by(rows):
    gaps = [gap(call_count=count, measured_s=1.0 + time_s, team=team, model=team) for count, time_s, team in rows]
    total = sum(one.gain_s for one in gaps)
    for by in ("kernel", "module", "model", "team"):
        found = grouped(gaps, by)
        assert sum(one.gain_s for one in found) == pytest.approx(total)
        assert [one.gain_s for one in found] == sorted((one.gain_s for one in found), reverse=True)


def test_grouping_by_what_is_no_key_is_refused_by_name():
    with pytest.raises(SpecError, match="colour"):
        grouped([gap()], "colour")


def test_the_largest_gap_stands_first_and_faults_are_listed():
    rows = [timed(call_count=1), timed(product(k=64), call_count=50), timed(mover(), measured_s=1e-6)]
    found = ranked(rows)
    assert [one.timed.call_count for one in found.gaps] == [50, 1]
    assert [one.kind for one in found.abstentions if one.kind == "gap"] == ["gap"]


def test_every_rule_of_the_issue_has_its_file():
    assert set(RULES) == {"precision", "fusion", "layout", "padding", "split_k", "batching", "graph_launch"}
