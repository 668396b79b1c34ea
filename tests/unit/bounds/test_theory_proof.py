"""Proofs: what is recorded suffices to work a bound out again, and what was altered is found."""

import dataclasses
import json

import pytest
from tests.sampling import sampled

import nearpeak
from nearpeak.bounds.case_bound import case_bound
from nearpeak.bounds.proof_checker import evaluated, proof_of, verify
from nearpeak.core.answers.bound import Policy
from nearpeak.core.answers.proof import Proof
from nearpeak.errors import SpecError
from nearpeak.ops import OPS
from nearpeak.reports import case_bound_report
from nearpeak.reports.analysis.json import RECORDS
from nearpeak.targets import TARGETS, target_of

GEMM = nearpeak.case("gemm", m=40_000, n=40_000, k=40_000, dtype="bf16")
RECURRENT = nearpeak.case("recurrent", batch=2, steps=64, features=32, hidden=32, layers=2, dtype="fp16", cell="gru")
WIDE = nearpeak.case("softmax", rows=2, columns=10**9, dtype="fp32")
H100 = target_of("h100_sxm")


def proof(case=GEMM, device=H100, policy=Policy()):
    return proof_of(case.digest, case_bound(case, device, policy), device, policy)


@pytest.mark.parametrize("name", sampled(sorted(TARGETS), 16))
def test_proofs_on_every_device_are_worked_out_again(name):
    device = target_of(name)
    for case in (GEMM, RECURRENT, WIDE):
        found = proof(case, device)
        verify(found)
        assert all(one.source for term in found.terms for one in term.quantities), name


def test_a_proof_survives_json_and_is_checked_from_there():
    bound = case_bound(GEMM, H100)
    stated = proof_of(GEMM.digest, bound, H100, Policy(), "0.1")
    record = json.loads(case_bound_report.to_json(GEMM, H100, bound, stated))
    read = RECORDS.value(record["proof"], Proof, "proof")
    verify(read)
    assert (read.bound_s, read.engine, read.policy) == (bound.time_s, "0.1", Policy())


def test_each_figure_names_its_origin():
    origins = {one.name: one for term in proof().terms for one in term.quantities}
    assert origins["dram_bytes_per_s"].origin == "datasheet"
    assert origins["storage_bytes"].origin == "derived"
    assert origins["read_bytes"].origin == "rule"
    assert origins["matrix_bf16_flop_per_s"].source.startswith("tensor.bf16 at the highest permitted clock: ")


def altered(found, index, **changes):
    terms = list(found.terms)
    terms[index] = dataclasses.replace(terms[index], **changes)
    return dataclasses.replace(found, terms=tuple(terms))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: altered(p, 0, time_s=p.terms[0].time_s * (1 + 1e-9)), "dram: states"),
        (lambda p: altered(p, 0, expression="read_bytes * unknown"), "unknown"),
        (lambda p: altered(p, 0, expression="__import__('os')"), "cannot be evaluated"),
        (lambda p: altered(p, 0, expression="read_bytes ** 9"), "cannot be evaluated"),
        (lambda p: dataclasses.replace(p, bound_s=p.bound_s * 0.9), "bound_s: states"),
        (lambda p: dataclasses.replace(p, limiter="special"), "is no proved term"),
        (lambda p: dataclasses.replace(p, limiter="dram"), "limiter dram"),
        (lambda p: dataclasses.replace(p, terms=()), "has no proved term"),
    ],
)
def test_an_altered_proof_is_refused_by_the_name_of_what_does_not_follow(change, message):
    with pytest.raises(SpecError, match=message.replace("(", r"\(")):
        verify(change(proof()))


def test_expressions_know_arithmetic_and_nothing_else():
    assert evaluated("max(a - b, 0) / sqrt(4) + log2(8)", {"a": 5, "b": 1}) == 5.0
    for text in ("a.b", "[1]", "max", "a if b else c", "1 / 0", "'x'", "max(a, key=b)"):
        with pytest.raises(SpecError, match="cannot be evaluated"):
            evaluated(text, {"a": 1, "b": 2, "c": 3})


def test_model_terms_stay_models_under_policies_that_narrow_products():
    def status(policy, case, name):
        return next(term.status for term in case_bound(case, H100, policy).terms if term.name == name)

    for name, case in (("capacity", GEMM), ("barrier", WIDE)):
        assert status(Policy(), case, name) == "proved"
        assert status(Policy(dtype="hard"), case, name) == "model"


def test_a_device_that_does_not_state_its_storage_has_no_term_that_needs_it():
    bare = dataclasses.replace(H100, on_chip_bytes=None)
    assert {"capacity", "barrier", "ingress"}.isdisjoint(case_bound(WIDE, bare).terms_s)
    assert "A14" not in case_bound(WIDE, bare).assumptions
    assert "A14" in case_bound(WIDE, H100).assumptions


def test_dependent_steps_take_a_clock_each_and_more_at_the_usual_latency():
    terms = case_bound(RECURRENT, H100).terms_s
    assert terms["depth"] == (64 + 2 - 1) / H100.clock_hz
    assert terms["latency"] == pytest.approx(65 * 4 * (5 + 1) / H100.clock_hz)


def test_the_ingress_term_follows_from_the_storage_of_the_multiprocessors():
    device = dataclasses.replace(H100, l2=dataclasses.replace(H100.l2, bandwidth_bytes_per_s=5.5e12))
    words = H100.on_chip_bytes / 2
    expected = 2 * (2 * 40_000**3 / words**0.5 - 3 * words) / 5.5e12
    assert case_bound(GEMM, device).terms_s["ingress"] == pytest.approx(expected)


def test_data_axes_of_all_operators_are_axes_whose_limits_exist():
    for name in OPS:
        signature = OPS[name].signatures["forward"]
        for axis, limits in OPS[name].data_axes.items():
            assert {axis, *(one for limit in limits for one in limit.split("*"))} <= set(signature.axes), name


def test_the_proof_of_a_simplified_step_names_its_rewrites_and_its_time_as_written():
    torch = pytest.importorskip("torch")
    workload = nearpeak.capture(torch.nn.Linear(4096, 4096), inputs=(torch.empty(8192, 4096),))
    module = torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.Linear(4096, 1))
    simple = nearpeak.capture(module, inputs=(torch.empty(8192, 4096),))
    assert nearpeak.analyze(workload, H100).targets[0].proof.rewrites == ()
    found = nearpeak.analyze(simple, H100).targets[0].proof
    verify(found)
    assert {one.name for one in found.rewrites} == {"product_order"}
    assert found.as_written_s > found.bound_s
    assert RECORDS.value(json.loads(json.dumps(RECORDS.plain(found))), Proof, "proof") == found
    altered = [
        ({"rewrites": ()}, "or neither"),
        ({"as_written_s": found.bound_s}, "not above the simplified"),
        ({"assumptions": ("A1",)}, "rests on A8, A18"),
    ]
    for change, message in altered:
        with pytest.raises(SpecError, match=message):
            verify(dataclasses.replace(found, **change))
