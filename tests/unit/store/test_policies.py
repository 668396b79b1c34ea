"""Suppressions end, expectations have two ends, a baseline has one meaning, a message is edited and not repeated."""

import time

import pytest

from nearpeak.errors import SpecError
from nearpeak.store.policies import Baseline, Expectation, GateResult, Suppression

SOON_NS = 10**9


def suppression(until_ns, reason="driver update"):
    return Suppression(selector={"workload": "gemm"}, until_ns=until_ns, reason=reason, author="me")


def test_a_suppression_needs_a_reason_and_an_end_and_expires(store):
    now_ns = time.time_ns()
    store.policies.suppress(suppression(now_ns + 60 * SOON_NS))
    assert [one.selector for one in store.policies.suppressions()] == [{"workload": "gemm"}]
    assert store.policies.suppressions(now_ns + 61 * SOON_NS) == ()
    for wrong in (suppression(now_ns - 1), suppression(now_ns + SOON_NS, " ")):
        with pytest.raises(SpecError, match="needs a reason and an end"):
            store.policies.suppress(wrong)


def test_an_expectation_is_found_by_its_commit(store):
    one = Expectation(sha="abc", selector={}, low_ratio=0.01, high_ratio=0.05, author="me")
    store.policies.expect(one)
    assert store.policies.expectations("abc") == (one,) == store.policies.expectations()
    assert store.policies.expectations("abd") == ()
    with pytest.raises(SpecError, match="wrong way round"):
        store.policies.expect(Expectation(sha="a", selector={}, low_ratio=0.2, high_ratio=0.1, author="me"))


def test_a_baseline_is_replaced_by_name(store):
    for selector in ("a1", "a2"):
        store.policies.set_baseline(Baseline(name="release", kind="commit", selector=selector))
    assert store.policies.baselines() == {"release": Baseline(name="release", kind="commit", selector="a2")}
    with pytest.raises(SpecError, match="kind 'best' is not known"):
        store.policies.set_baseline(Baseline(name="x", kind="best", selector=""))


def test_what_a_gate_said_is_kept_with_its_reasons(store):
    one = GateResult(run_group="pr 7", policy_hash="h", verdict="fail", exit_code=10, counts={"slow": 1}, result={})
    store.policies.record_gate(one)
    assert store.policies.gates("pr 7") == (one,)
    assert store.policies.gates("pr 8") == ()


def test_a_message_is_remembered_by_where_it_was_sent(store):
    assert store.policies.notification("github", "comment 7") == ""
    for body in ("first", "second"):
        store.policies.notified("github", "comment 7", body)
    assert store.policies.notification("github", "comment 7") == "second"
