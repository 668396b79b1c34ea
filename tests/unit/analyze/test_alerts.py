"""Alerts: legal steps only, groups that do not depend on order, declared and suppressed changes, orphans."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearpeak.analyze.alerts import after_verdict, expected, grouped, orphaned, suppressed
from nearpeak.core.alert import CLOSED, STATUSES, check_step, next_statuses
from nearpeak.core.alert_group import Candidate, Expectation, Suppression
from nearpeak.core.change import ChangePoint
from nearpeak.errors import SpecError

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


def test_a_declared_change_is_expected_inside_its_range_only():
    declared = Expectation(index=51, select={"op": "ge*"}, low_ratio=1.02, high_ratio=1.06, actor="kim")
    assert expected(candidate("a", 50), [declared])[0] == "expected"
    assert expected(candidate("a", 50, ratio=1.10), [declared]) is None
    assert expected(candidate("a", 80), [declared]) is None
    assert expected(candidate("a", 50, axes={"op": "softmax"}), [declared]) is None
    with pytest.raises(SpecError, match="range"):
        Expectation(index=1, select={"op": "*"}, low_ratio=2.0, high_ratio=1.0, actor="kim")


def test_a_suppression_needs_a_reason_and_ends():
    quiet = Suppression(select={"series": "a"}, until_ns=100, reason="known", actor="kim")
    assert suppressed(candidate("a", 50), [quiet], 99) is quiet
    assert suppressed(candidate("a", 50), [quiet], 100) is None
    assert suppressed(candidate("b", 50), [quiet], 99) is None
    with pytest.raises(SpecError, match="reason"):
        Suppression(select={"series": "a"}, until_ns=100, reason="", actor="kim")


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


def test_an_alert_whose_series_or_policy_is_gone_is_closed_with_a_reason():
    assert orphaned("active", "a", {"a"}, has_policy=True) is None
    assert "series a" in orphaned("active", "a", set(), has_policy=True)[1]
    assert "policy" in orphaned("new", "a", {"a"}, has_policy=False)[1]
    assert all(orphaned(one, "a", set(), has_policy=True) is None for one in CLOSED)
