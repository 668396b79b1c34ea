"""What was found in series is kept with its history: nothing is deleted, every step of an alert is logged."""

import itertools

import pytest
from tests.unit.store.records import random_run

from nearpeak.errors import NotFoundError, SpecError, StoreError
from nearpeak.store import Detector, StoredChange, StoredComparison
from nearpeak.store.sql_dialect import writing

R1 = Detector(name="r1", parameters={"penalty": 4})


def change(order_key, **fields):
    return StoredChange(series=1, order_key=order_key, rev_lo="a", rev_hi="b", effect_ratio=0.05, **fields)


@pytest.fixture
def filled(store):
    store.ingest(random_run(0))
    return store


def test_a_change_point_is_updated_retracted_and_comes_back(filled):
    first = filled.findings.record_changes(1, R1, [change(10), change(20)])
    assert [one.order_key for one in first] == [10, 20]
    (kept,) = filled.findings.record_changes(1, R1, [change(20, tier="confirmed")])
    assert (kept.id, kept.tier) == (first[1].id, "confirmed")
    gone = [one for one in filled.findings.changes(series=1, retracted=True) if one.retracted_ns is not None]
    assert [one.order_key for one in gone] == [10]
    back = filled.findings.record_changes(1, R1, [change(10), change(20)])
    assert [one.id for one in back] == [one.id for one in first]


def test_detectors_do_not_retract_what_others_found(filled):
    filled.findings.record_changes(1, R1, [change(10)])
    filled.findings.record_changes(1, Detector(name="other"), [])
    filled.findings.record_changes(1, Detector(name="r1", parameters={"penalty": 5}), [change(30)])
    assert [one.order_key for one in filled.findings.changes(series=1)] == [10, 30]


def test_a_suspect_is_confirmed_with_its_evidence(filled):
    (one,) = filled.findings.record_changes(1, R1, [change(10, evidence={"z": 4.5})])
    filled.findings.confirm(one.id, {"comparison": 7})
    (found,) = filled.findings.changes(tier="confirmed")
    assert found.evidence == {"z": 4.5, "comparison": 7}
    (again,) = filled.findings.record_changes(1, R1, [change(10, evidence={"z": 5.0})])
    assert (again.tier, again.evidence) == ("confirmed", {"z": 5.0, "comparison": 7})
    with pytest.raises(NotFoundError, match="change point 99"):
        filled.findings.confirm(99, {})


def test_comparisons_keep_what_they_were_based_on(filled):
    one = StoredComparison(series=1, baseline="run 1", candidate="run 2", verdict="regression", theta_ratio=0.02,
                           inputs={"rounds": [[1.0, 1.1]]}, look_count=2)  # fmt: skip
    identity = filled.findings.record_comparison(one)
    (found,) = filled.findings.comparisons(verdict="regression")
    assert (found.id, found.theta_ratio, found.inputs, found.look_count) == (
        identity,
        0.02,
        {"rounds": [[1.0, 1.1]]},
        2,
    )
    assert filled.findings.comparisons(verdict="improvement") == ()


def test_every_step_of_an_alert_is_logged_and_illegal_ones_are_refused(filled):
    (one,) = filled.findings.record_changes(1, R1, [change(10)])
    alert = filled.findings.open_alert("gemm is 5 % slower", {one.id: "primary"}, rev_lo="a", rev_hi="b")
    for status in ("verifying", "active", "acknowledged", "fixing", "fix-pending-verification", "fixed"):
        filled.findings.move_alert(alert, status, actor="me", note=f"to {status}")
    with pytest.raises(SpecError, match="fixing does not follow fixed; what may: active"):
        filled.findings.move_alert(alert, "fixing", actor="me")
    steps = [(event.from_status, event.to_status) for event in filled.findings.events(alert)]
    assert steps[0] == ("", "new")
    assert steps[-1] == ("fix-pending-verification", "fixed")
    assert len(steps) == 7
    assert filled.findings.alerts(is_open=True) == ()
    assert filled.findings.alerts(status="fixed")[0].members == ((one.id, "primary"),)


def test_nothing_is_lost_or_changes_places_where_the_clock_runs_backwards(store, monkeypatch):
    hours = itertools.count(500_000, -1)
    monkeypatch.setattr("time.time_ns", lambda: next(hours) * 3_600 * 10**9)
    for number in range(3):
        store.ingest(random_run(number))
    assert store.history(1).positions.tolist() == [0, 1, 2]
    (one,) = store.findings.record_changes(1, R1, [change(10)])
    store.findings.record_changes(1, R1, [])
    (back,) = store.findings.record_changes(1, R1, [change(10)])
    assert (back.id, back.retracted_ns) == (one.id, None)
    alert = store.findings.open_alert("gemm is 5 % slower", {one.id: "primary"}, rev_lo="a", rev_hi="b")
    steps = ["verifying", "active", "acknowledged", "fixing"]
    for status in steps:
        store.findings.move_alert(alert, status, actor="me")
    assert [event.to_status for event in store.findings.events(alert)] == ["new", *steps]
    text = store.access.add_token("ci", "submit", days=1)
    assert store.access.token(text).name == "ci"


@pytest.mark.parametrize("words", ["UPDATE alert_event SET note = ''", "DELETE FROM alert_event"])
def test_the_log_of_an_alert_only_grows(filled, words):
    alert = filled.findings.open_alert("slower", {}, note="seen")
    refused = pytest.raises(StoreError, match="events of alerts are never changed")
    with refused, writing(filled.engine, filled.name) as connection:
        connection.exec_driver_sql(words)
    assert [event.note for event in filled.findings.events(alert)] == ["seen"]


def test_assigning_an_alert_is_logged_and_members_keep_their_role(filled):
    found = filled.findings.record_changes(1, R1, [change(10), change(20)])
    alert = filled.findings.open_alert("two", {found[0].id: "primary"})
    filled.findings.add_members(alert, {found[0].id: "related", found[1].id: "downstream"})
    filled.findings.assign_alert(alert, actor="me", assignee="you", priority=1)
    (one,) = filled.findings.alerts(is_open=True)
    assert (one.assignee, one.priority) == ("you", 1)
    assert one.members == ((found[0].id, "primary"), (found[1].id, "downstream"))
    assert filled.findings.events(alert)[-1].note == "assignee you, priority 1"
    with pytest.raises(NotFoundError, match="alert 9"):
        filled.findings.move_alert(9, "active", actor="me")
