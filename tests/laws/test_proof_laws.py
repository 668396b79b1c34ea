"""Every proof is worked out again: each operator, device and policy; steps as written, simplified and summed."""

import pytest
import torch
from tests.brute_force.graphs import random_graph
from tests.golden.directed import directed
from tests.sampling import sampled
from tests.unit.bounds.evaluate import captured
from tests.unit.bounds.random_networks import Drawn

import nearpeak
from nearpeak.bounds.case_bound import case_bound
from nearpeak.bounds.proof_checker import proof_of, verify
from nearpeak.bounds.step.step_analysis import analysis_of
from nearpeak.core.answers.bound import Policy
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import NotModelledError
from nearpeak.ops import OPS
from nearpeak.targets import TARGETS, target_of

POLICIES = (
    Policy(),
    Policy(dtype="hard", algorithm="any", output_credit=False),
    Policy(dtype="tf32", cold_inputs=False, switch_reduction=False),
)
DEVICES = tuple(target_of(name) for name in ("h100_sxm", "mi300x", "gaudi3", "jetson_agx_orin", "gtx_1080_ti"))


def golden_cases(op):
    """Give the directed cases of an operator in all its phases."""
    for line in directed(op):
        for phase, signature in OPS[op].signatures.items():
            if phase == "forward" or not line.get("_forward_only"):
                given = line if phase == "forward" else line | line.get("_backward", {})
                yield OPS[op].case(phase, **{"dtype": "fp32"} | {k: given[k] for k in given if k in signature.names()})


def checked(proof, device):
    """Work the proof out again; every figure names a document or a rule, and no rate is counted by a rule."""
    verify(proof)
    for one in (one for term in proof.terms for one in term.quantities):
        assert one.source, one
        assert one.origin != "rule" or not one.name.endswith(("_per_s", "_hz")), (device.name, one)


@pytest.mark.parametrize("op", OPS)
def test_the_proof_of_every_golden_case_is_worked_out_again_each_on_a_device_and_with_every_policy(op):
    count = 0
    for number, case in enumerate(golden_cases(op)):
        for policy in POLICIES:
            for device in (*DEVICES[number % len(DEVICES) :], *DEVICES):  # the next that has a model of the case
                try:
                    bound = case_bound(case, device, policy)
                except NotModelledError:
                    continue
                checked(proof_of(case.digest, bound, device, policy), device)
                count += 1
                break
    assert count >= len(POLICIES)


@pytest.mark.parametrize("name", sampled(sorted(TARGETS), 16))
def test_the_proof_of_a_list_of_cases_is_worked_out_again_on_every_device(name):
    cases = [
        nearpeak.case("gemm", m=300, n=200, k=100, dtype="fp32"),
        nearpeak.case("softmax", rows=2, columns=10**9, dtype="fp32"),
        nearpeak.case("recurrent", batch=2, steps=64, features=32, hidden=32, dtype="fp32", cell="gru"),
    ]
    calls = tuple(Call(case=case, operator=case.op, phase="forward", call_count=3) for case in cases)
    checked_on(Workload(name="list", step="sweep", calls=calls), (target_of(name),))


def checked_on(workload, devices):
    for policy in POLICIES:
        for device, one in zip(devices, analysis_of(workload, devices, policy).targets, strict=True):
            checked(one.proof, device)
            assert one.proof.bound_s == one.bound_s


@pytest.mark.parametrize("seed", sampled(range(20), 8))
def test_the_proof_of_random_steps_is_worked_out_again(seed):
    checked_on(random_graph(seed)[1], DEVICES)


@pytest.mark.parametrize("seed", sampled(range(12), 4))
def test_the_proof_of_random_networks_of_pytorch_is_worked_out_again(seed):
    try:
        workload = captured(Drawn(seed), torch.randn(2, 4, 6, dtype=torch.float64))
    except nearpeak.CaptureError:
        pytest.skip("the network only moves its input")
    checked_on(workload, DEVICES[:2])
