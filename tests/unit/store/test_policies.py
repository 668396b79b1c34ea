"""Suppressions end, expectations have two ends, a baseline has one meaning, a message is edited and not repeated."""

import time

import pytest

from nearpeak.core.history.alert_group import Expectation, Suppression
from nearpeak.core.history.gate import GateLine, GatePolicy, GateResult, GateRule
from nearpeak.core.runs.paired_rounds import Judgement
from nearpeak.errors import SpecError
from nearpeak.store.rows.policy_rows import Baseline

SOON_NS = 10**9


def suppression(until_ns, reason="driver update"):
    return Suppression(selector={"workload": "gemm"}, until_ns=until_ns, reason=reason, author="me")


def test_a_suppression_needs_a_reason_and_an_end_and_expires(store):
    now_ns = time.time_ns()
    store.policies.suppress(suppression(now_ns + 60 * SOON_NS))
    assert [one.selector for one in store.policies.suppressions()] == [{"workload": "gemm"}]
    assert store.policies.suppressions(now_ns + 61 * SOON_NS) == ()
    with pytest.raises(SpecError, match="an end that lies ahead"):
        store.policies.suppress(suppression(now_ns - 1))


def test_an_expectation_is_found_by_its_commit(store):
    one = Expectation(sha="abc", selector={}, low_ratio=0.01, high_ratio=0.05, author="me")
    store.policies.expect(one)
    assert store.policies.expectations("abc") == (one,) == store.policies.expectations()
    assert store.policies.expectations("abd") == ()


def test_a_baseline_is_replaced_by_name(store):
    for selector in ("a1", "a2"):
        store.policies.set_baseline(Baseline(name="release", kind="commit", selector=selector))
    assert store.policies.baselines() == {"release": Baseline(name="release", kind="commit", selector="a2")}
    with pytest.raises(SpecError, match="kind 'best' is not known"):
        store.policies.set_baseline(Baseline(name="x", kind="best", selector=""))


def test_what_a_gate_said_is_kept_with_its_reasons(store):
    why = Judgement(
        verdict="regression", time_ratio=1.1, low_ratio=1.0, high_ratio=1.2, tolerance_ratio=0.02,
        detectable_ratio=0.03, round_count=5,
    )  # fmt: skip
    lines = (
        GateLine(rule="r", series="s", verdict="fail", exit_code=10, text="+10 %", judgement=why),
        GateLine(rule="r", series="t", verdict="pass", exit_code=0, text="0 %"),
    )
    policy = GatePolicy(name="p", source="p.toml", rules=(GateRule(name="r", baseline="previous"),))
    one = GateResult(policy=policy, revision="abc", verdict="fail", exit_code=10, lines=lines)
    store.policies.record_gate(one)
    assert store.policies.gates("abc") == (one,)
    assert store.policies.gates("abd") == ()
