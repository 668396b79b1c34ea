"""Runners on a GPU: relations that hold on any, no absolute times."""

import numpy as np
import pytest

import nearpeak
from nearpeak.api.measured_analysis import compare, measure
from nearpeak.case_tensors.random_inputs import drawn
from nearpeak.core.runs.measurement import TIMED, Outcome, Timing
from nearpeak.measurement.runners import runner_of

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch sees"),
]
LIMIT_S = 60.0
"""Time after which a case is given up: all tests of a device together have a quarter of an hour."""
TAKEN = TIMED | {Outcome.THROTTLED}
"""A large product may draw more power than the device is allowed, and its clock falls."""
LARGE = nearpeak.case("gemm", m=4096, n=4096, k=4096, dtype="bf16")
SMALL = nearpeak.case("softmax", rows=64, columns=512, dtype="fp32")


def timing(cache):
    return Timing(cache=cache, validate=False, limit_s=LIMIT_S)


def needs_a_compiler(runner):
    if runner == "torch_compile_cuda":
        pytest.importorskip("triton", reason="TorchInductor compiles for GPUs through Triton")


@pytest.mark.parametrize("runner", ["torch_cuda", "cuda_graph", "torch_compile_cuda"])
@pytest.mark.parametrize("cache", ["cold", "hot"])
def test_a_case_is_timed_in_a_process_of_its_own_and_not_below_its_bound(runner, cache):
    needs_a_compiler(runner)
    for case in (LARGE, SMALL):
        (found,) = measure(case, runner, timing(cache))
        assert found.outcome in TAKEN, found.note
        assert found.method.mode == ("graph" if runner == "cuda_graph" else "device")
        assert found.environment.device == torch.cuda.get_device_name(0)
        assert all(host >= own for own, host in zip(found.samples_s, found.host_samples_s, strict=True))


def test_cold_inputs_take_at_least_as_long_as_hot_ones():
    case = nearpeak.case("elementwise", function="add", elements=2**21, b=2**21, dtype="fp32")
    times = {}
    for cache in ("cold", "hot"):
        (found,) = measure(case, "torch_cuda", timing(cache))
        times[cache] = found.estimate().centre_s
    assert times["cold"] >= 0.9 * times["hot"]


def test_a_replay_takes_neither_next_to_nothing_nor_much_longer_than_the_call():
    times = {}
    for runner in ("torch_cuda", "cuda_graph"):
        (found,) = measure(LARGE, runner, timing("hot"))
        times[runner] = found.estimate().centre_s
    assert 0.5 <= times["cuda_graph"] / times["torch_cuda"] <= 1.5


def test_launches_are_queued_before_a_batch_begins_so_that_the_host_is_not_timed():
    (found,) = measure(nearpeak.case("elementwise", function="relu", elements=1024, dtype="fp32"), "torch_cuda",
                       timing("hot"))  # fmt: skip
    assert found.outcome in TAKEN, found.note
    if found.activity_s is None:
        pytest.skip("the device's activity may not be recorded here")
    assert found.estimate().centre_s <= 5 * found.activity_s


@pytest.mark.parametrize("runner", ["torch_cuda", "cuda_graph", "torch_compile_cuda"])
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_what_is_timed_is_right(runner, phase):
    needs_a_compiler(runner)
    case = nearpeak.case("softmax", phase, rows=8, columns=33, dtype="fp32")
    gpu, host = (runner_of(name, Timing(cache="hot")).backend for name in (runner, "torch_cpu"))
    got, wanted = (one.prepare(case, drawn(case)) for one in (gpu, host))
    left, right = (one.outputs(one.runs[0]()) for one in (got, wanted))
    if phase == "forward":  # the gradient from above is drawn on the device, so that gradients differ
        np.testing.assert_allclose(left["y"], right["y"], rtol=1e-5, atol=1e-6)
    assert left.keys() == right.keys()


def test_a_case_too_large_for_the_device_is_a_row():
    (found,) = measure(nearpeak.case("elementwise", function="relu", elements=2**40, dtype="fp32"), "torch_cuda")
    assert found.outcome is Outcome.UNSUPPORTED
    assert "GiB" in found.note


def test_the_same_work_is_no_regression():
    from nearpeak.measurement.timing.interleaved_rounds import Arm

    arm = Arm(runner="torch_cuda")
    found = compare(LARGE, arm, arm, timing("hot"), budget_s=LIMIT_S)
    assert found.judgement.verdict in ("invariant", "inconclusive")
    assert found.clock == "device"
