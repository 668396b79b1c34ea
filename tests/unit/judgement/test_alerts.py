"""Alerts: legal steps only, groups that do not depend on order, declared changes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearpeak.core.history.alert import STATUSES, check_step, next_statuses
from nearpeak.core.history.alert_group import Candidate, Expectation, Suppression
from nearpeak.core.history.level_change import ChangePoint
from nearpeak.errors import SpecError
from nearpeak.judgement.alert_rules import after_verdict, declared, grouped

LIFE = ("new", "verifying", "active", "acknowledged", "fixing", "fix-pending-verification", "fixed")


def candidate(series, index, ratio=1.05, gap=1.0, axes=None, upstream=()):
    point = ChangePoint(
        index=index, low_index=index - 2, high_index=index + 2, tier="confirmed", probability_ratio=0.9,
        time_ratio=ratio, low_ratio=ratio - 0.01, high_ratio=ratio + 0.01, before_count=20, after_count=20,
    )  # fmt: skip
    return Candidate(series=series, point=point, axes=axes or {"op": "gemm"}, gap_s=gap, upstream=upstream)


def test_the_whole_life_of_an_alert_is_legal():
    for before, after in itertools.pairwise(LIFE):
        check_step(before, after)


@pytest.mark.parametrize(("before", "after"), [*itertools.product(STATUSES, STATUSES)])
def test_every_step_is_legal_or_refused(before, after):
    if after in next_statuses(before):
        check_step(before, after)
    else:
        with pytest.raises(SpecError, match="does not follow"):
            check_step(before, after)


def test_nothing_is_fixed_without_verification_and_unknown_states_are_refused():
    assert [one for one in STATUSES if "fixed" in next_statuses(one)] == ["fix-pending-verification"]
    with pytest.raises(SpecError, match="not known"):
        check_step("new", "solved")


@given(st.permutations([("a", 50, 1.0), ("b", 52, 5.0), ("c", 90, 2.0), ("d", 53, 3.0)]))
def test_groups_do_not_depend_on_the_order(order):
    first, second = grouped([candidate(name, index, gap=gap) for name, index, gap in order])
    assert [(one.series, role) for one, role in first.members] == [
        ("b", "primary"), ("d", "related"), ("a", "related"),
    ]  # fmt: skip
    assert (first.low_index, first.high_index) == (51, 52)
    assert [one.series for one, _ in second.members] == ["c"]


def test_changes_without_a_shared_axis_or_of_other_direction_stay_apart():
    apart = [candidate("a", 50), candidate("b", 50, axes={"op": "softmax"}), candidate("c", 50, ratio=0.95)]
    assert len(grouped(apart)) == 3


def test_what_is_built_on_a_member_is_downstream():
    rows = [candidate("kernel", 50, gap=9.0), candidate("model", 51, gap=5.0, upstream=("kernel",))]
    assert [role for _, role in grouped(rows)[0].members] == ["primary", "downstream"]


def test_ranges_that_nearly_touch_are_one_and_those_further_apart_are_not():
    assert [len(grouped([candidate("a", 50), candidate("b", index)])) for index in (56, 57)] == [1, 2]


def test_a_declared_change_is_expected_inside_its_range_and_at_its_commit_only():
    meant = Expectation(sha="abc", selector={"operator": "ge*"}, low_ratio=0.02, high_ratio=0.06, author="kim")
    gemm = {"operator": "gemm", "device": "d"}
    assert declared(gemm, "abc", 1.05, [meant])
    assert not declared(gemm, "abc", 1.10, [meant])
    assert not declared(gemm, "abd", 1.05, [meant])
    assert not declared({"operator": "softmax"}, "abc", 1.05, [meant])
    with pytest.raises(SpecError, match="wrong way round"):
        Expectation(sha="abc", selector={}, low_ratio=0.2, high_ratio=0.1, author="kim")


def test_a_suppression_needs_a_reason():
    with pytest.raises(SpecError, match="reason"):
        Suppression(selector={"case": "a"}, until_ns=100, reason=" ", author="kim")


@pytest.mark.parametrize(
    ("status", "verdict", "after"),
    [
        ("verifying", "regression", "active"), ("verifying", "improvement", "active"),
        ("verifying", "invariant", "invalid-noise"), ("verifying", "inconclusive", None),
        ("fix-pending-verification", "invariant", "fixed"), ("fix-pending-verification", "improvement", "fixed"),
        ("fix-pending-verification", "regression", "active"), ("fix-pending-verification", "inconclusive", None),
        ("new", "regression", None),
    ],
)  # fmt: skip
def test_a_verdict_moves_an_alert_that_waits_for_one(status, verdict, after):
    step = after_verdict(status, verdict, 1.05)
    assert (step[0] if step else None) == after
    if step:
        check_step(status, after)
        assert "+5.00 %" in step[1]
