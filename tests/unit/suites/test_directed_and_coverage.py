"""Directed cases of any operator meet what can be met; the three coverage numbers are what hand counts say."""

import re

import pytest
from tests.golden.directed import directed

from nearpeak.api import suite_construction
from nearpeak.case_tensors.random_inputs import drawn
from nearpeak.case_tensors.torch_tensors import tensors_of
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.ops import OPS, case, work_of
from nearpeak.ops.shared.reference.elementwise_functions import FUNCTIONS
from nearpeak.suites.coverage_numbers import coverage_of
from nearpeak.suites.directed_cases import directed_suite, met_by, obligations_of
from nearpeak.suites.mutation_scores import read_scores
from nearpeak.suites.parameter_levels import choices, parameters_of
from nearpeak.suites.run_plan import planned
from nearpeak.suites.suite_merge import merged, suite_of

QUICK = ("gemm", "softmax", "cross_entropy", "adamw", "embedding", "group_norm", "reduce", "scaled_gemm", "recurrent")


@pytest.mark.parametrize("op", QUICK)
def test_every_obligation_is_met_or_named_with_a_reason(op):
    suite = directed_suite(op)
    stated = frozenset().union(*(obligations_of(op, phase) for phase in OPS[op].signatures))
    met = set().union(*(met_by(one.case) for one in suite.cases))
    assert met <= stated
    assert stated - met == set(suite.infeasible)
    assert all(suite.infeasible.values())
    for one in suite.cases:
        work_of(one.case)
        assert one.why


def test_directed_cases_reach_the_boundaries_that_catch_kernels():
    found = {name for one in directed_suite("gemm").cases for name in met_by(one.case)}
    for level in ("0", "1", "2", "odd", "below_tile", "tile", "above_tile"):
        assert f"gemm forward k={level}" in found
    assert "gemm forward bias=true layout=tt" in found
    assert "gemm forward m=1 k=odd" in found


def test_directed_cases_are_the_same_each_time():
    assert directed_suite("max_pool") == directed_suite("max_pool")


def test_every_stated_choice_is_legal_with_some_other_parameters():
    wrong = []
    for op, rows in choices().items():
        own = directed_suite(op) if op in QUICK else None
        for name, values in rows.items():
            known = {one.name for phase in OPS[op].signatures for one in parameters_of(op, phase)}
            wrong += [] if name in known else [f"{op}.{name}"]
            held = (
                {str(dict((*c.case.dtypes, *c.case.attributes)).get(name)) for c in own.cases} if own else set(values)
            )
            wrong += [f"{op}.{name}={value}" for value in values if value not in held]
    assert wrong == []


TEXT = [
    (op, phase, name)
    for op in OPS
    for phase, signature in OPS[op].signatures.items()
    for name, kind in signature.attributes.items()
    if kind is str and not name.endswith("_dtype") and name not in ("master", "load")
]
"""Choices that are words; formats, and loads, which are written as one likes, are no closed sets."""


@pytest.mark.parametrize(("op", "phase", "name"), TEXT)
def test_every_value_that_a_choice_may_have_is_stated(op, phase, name):
    """An operator that is given another one says which there are: all of them, or the first and how many more."""
    line = {key: value for key, value in directed(op)[0].items() if key in OPS[op].signatures[phase].names()}
    with pytest.raises(NearpeakError) as refused:
        work_of(OPS[op].case(phase, **{"dtype": "fp32", **line, name: "zzz?"}))
    said = str(refused.value).partition(";")[2] or str(refused.value).partition(" is not one of ")[2]
    words = re.findall(r"\w+", said.partition(" and ")[0] if " more" in said else said)
    (stated,) = (one for one in parameters_of(op, phase) if one.name == name)
    more = int(found[1]) if (found := re.search(r"and (\d+) more", said)) else 0
    shown = set(stated.edges) & set(words)
    assert len(stated.edges) == len(set(stated.edges)) == len(shown) + more
    assert set(words) - shown <= {"known", "there", "are", "and", "layouts", "tables", "half", "full", "interleaved"}


def test_every_element_wise_function_has_a_directed_case():
    suite = directed_suite("elementwise")
    have = {(one.case.phase, dict(one.case.attributes)["function"]) for one in suite.cases}
    assert {name for phase, name in have if phase == "forward"} == set(FUNCTIONS)
    without = {
        name
        for name in FUNCTIONS
        if ("backward", name) not in have
        and "no rule for the gradient" not in suite.infeasible[f"elementwise backward function={name}"]
    }
    assert without == set()


@pytest.mark.slow
def test_element_wise_functions_are_computed_at_every_directed_case():
    torch = pytest.importorskip("torch")
    for one in directed_suite("elementwise").cases:
        if one.case.phase == "forward":
            arguments = OPS["elementwise"].forward_arguments(one.case)
            (arrays,) = drawn(one.case)
            tensors = tensors_of(torch, one.case, arrays, "cpu")
            found = OPS["elementwise"].torch_call(tensors, **arguments)["y"]
            assert found.shape == (arguments["elements"],), one.case.label()


A, B, C = (case("gemm", m=m, n=64, k=64, dtype="bf16") for m in (64, 8192, 16384))


def workload(name, lost=0, **counts):
    by_name = {"a": A, "b": B, "c": C}
    calls = [Call(case=by_name[key], operator="mm", phase="forward", call_count=n) for key, n in counts.items()]
    calls += [Call(case=None, operator="odd", phase="forward", call_count=lost)] if lost else []
    return suite_of(Workload(name=name, step="forward", calls=tuple(calls)))


def shares(suite, **options):
    found = coverage_of(suite, **options).use
    return {(one.workload, one.currency, one.identity): one for one in found}


def leaving(suite, *left_out):
    costs = {one.case: 1.0 for one in suite.cases if one.case not in left_out}
    return planned(suite, costs, goal_ratio=1.0, time="test", identity="exact").suite


def test_use_case_coverage_equals_hand_counts():
    both = merged([workload("x", a=3, b=1), workload("y", b=1, c=1)], "s")
    found = shares(leaving(both, C))
    assert found["x forward", "calls", "exact"].covered_ratio == 1
    assert found["y forward", "calls", "exact"].covered_ratio == 0.5
    assert found["y forward", "flop", "exact"].covered_ratio == pytest.approx(1 / 3)  # c has twice the FLOP of b
    assert found["fleet", "flop", "exact"].covered_ratio == pytest.approx((1 + 1 / 3) / 2)
    assert found["y forward", "flop", "class"].covered_ratio == pytest.approx(1 / 3)
    assert found["y forward", "flop", "saturated"].covered_ratio == 1
    assert found["y forward", "flop", "exact"].effective_ratio is None


def test_calls_without_an_operator_count_as_uncovered_calls():
    found = shares(workload("x", a=3, lost=1))
    assert found["x forward", "calls", "exact"].covered_ratio == 0.75
    assert dict(coverage_of(workload("x", a=3, lost=1)).uncovered) == {"odd": 1}


def test_time_weighs_only_where_times_are_given():
    suite = merged([workload("x", a=1, b=1)], "s")
    assert ("fleet", "time", "exact") not in shares(suite)
    found = shares(leaving(suite, B), time_s={A: 1.0, B: 3.0})
    assert found["fleet", "time", "exact"].covered_ratio == 0.25


def test_a_share_of_time_that_lacks_the_time_of_a_case_is_unknown_and_so_is_the_fleets():
    suite = merged([workload("x", a=1), workload("y", a=1, b=1)], "s")
    found = shares(suite, time_s={A: 1.0}, passed={A.digest})
    assert found["x forward", "time", "exact"].covered_ratio == 1
    for name in ("y forward", "fleet"):
        assert found[name, "time", "exact"].covered_ratio is None
        assert found[name, "time", "exact"].untimed_count == 1
        assert found[name, "calls", "exact"].covered_ratio is not None
        assert found[name, "calls", "exact"].untimed_count == 0


def test_effective_coverage_multiplies_by_the_score_and_is_never_larger():
    suite = merged([workload("x", a=1, b=1), directed_suite("softmax")], "s")
    none = coverage_of(suite)
    assert none.scored_count is None
    assert none.directed[-1].effective_ratio is None
    scored = coverage_of(suite, scores={A.digest: 0.5})
    found = {(one.workload, one.currency, one.identity): one for one in scored.use}
    assert found["x forward", "calls", "exact"].effective_ratio == 0.25
    assert scored.scored_count == 1
    everything = coverage_of(suite, scores={one.case.digest: 0.5 for one in suite.cases})
    assert everything.directed[-1].effective_ratio == pytest.approx(everything.directed[-1].covered_ratio / 2)
    assert all(one.effective_ratio <= one.covered_ratio for one in (*everything.use, *everything.directed))


def test_only_what_passed_counts_where_results_are_given():
    suite = workload("x", a=1, b=1)
    assert shares(suite, passed={A.digest})["x forward", "calls", "exact"].covered_ratio == 0.5


def test_what_a_case_that_did_not_run_meets_stays_an_obligation():
    found, vector = (
        directed_suite("elementwise"),
        case("elementwise", function="add", dtype="fp32", elements=3552, b=3552),
    )
    assert set(found.infeasible) & met_by(vector)
    suite = merged(
        [found, suite_construction.suite([], sweeps=["op=elementwise function=add dtype=fp32 elements=3552 b=3552"])],
        "s",
    )
    whole, others = (coverage_of(suite, passed={one.case.digest for one in suite.cases} - lost).directed[-1]
                     for lost in (set(), {vector.digest}))  # fmt: skip
    assert whole.met_count == whole.valid_count == others.valid_count > others.met_count
    assert coverage_of(leaving(suite, vector)).directed[-1].valid_count == whole.valid_count


def test_a_plan_keeps_one_case_of_each_operator_and_every_obligation():
    suite = merged([workload("x", a=1, b=5, c=5), directed_suite("softmax")], "s")
    plan = suite_construction.cheapest(suite, "h100_sxm", goal_ratio=0.9)
    before, after = coverage_of(suite), coverage_of(plan.suite)
    assert after.directed[-1].met_count == before.directed[-1].met_count
    assert len(plan.suite.chosen) < len(suite.cases)
    assert len(plan.suite.cases) == len(suite.cases)
    fleet = next(
        one for one in after.use if (one.workload, one.currency, one.identity) == ("fleet", "flop", "saturated")
    )
    assert fleet.covered_ratio >= 0.9


@pytest.mark.parametrize(
    "line", ["{}", "[]", "x", '{"digest": "a", "killed": -1, "survived": 0}', '{"digest": "a", "killed": 1}']
)
def test_lines_that_are_no_scores_are_refused_by_line(line):
    with pytest.raises(SpecError, match="s:2: needs digest, killed and survived"):
        read_scores('{"digest": "b", "killed": 1, "survived": 1}\n' + line, "s")


@pytest.mark.parametrize("op", ["gemm", "decomposition", "dequantise", "elementwise", "quantise"])
def test_the_inputs_of_every_directed_case_can_be_made(op):
    for one in directed_suite(op).cases:
        assert OPS[op].inputs(**OPS[op].forward_arguments(one.case)) is not None


def test_what_no_inputs_can_be_made_for_is_infeasible_with_the_reason():
    suite = directed_suite("gemm")
    reason = "gemm: batch=8 contradicts a_batch=7; it must be a multiple of it"
    assert suite.infeasible["gemm forward batch=vector a_batch=odd"] == reason
    assert {dict(one.case.axes)["b_batch"] for one in suite.cases} >= {1, 7, 8}
