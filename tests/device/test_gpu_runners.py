"""Runners on a GPU: relations that hold on any, no absolute times."""

import numpy as np
import pytest

import nearpeak
from nearpeak.core.measurement import TIMED, Outcome, Timing
from nearpeak.measure.inputs import drawn
from nearpeak.measure.runners import runner_of
from nearpeak.measuring import compare, measure

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch sees"),
]
LARGE = nearpeak.case("gemm", m=4096, n=4096, k=4096, dtype="bf16")
SMALL = nearpeak.case("softmax", rows=64, columns=512, dtype="fp32")


@pytest.mark.parametrize("runner", ["torch_cuda", "cuda_graph", "torch_compile_cuda"])
@pytest.mark.parametrize("cache", ["cold", "hot"])
def test_a_case_is_timed_in_a_process_of_its_own_and_not_below_its_bound(runner, cache):
    for case in (LARGE, SMALL):
        (found,) = measure(case, runner, Timing(cache=cache, validate=False))
        assert found.outcome in TIMED, found.note
        assert found.method.mode == ("graph" if runner == "cuda_graph" else "device")
        assert found.environment.device == torch.cuda.get_device_name(0)
        assert all(host >= own for own, host in zip(found.samples_s, found.host_samples_s, strict=True))


def test_cold_inputs_take_at_least_as_long_as_hot_ones():
    times = {}
    for cache in ("cold", "hot"):
        case = nearpeak.case("elementwise", function="add", elements=2**20, b=2**20, dtype="fp32")
        (found,) = measure(case, "torch_cuda", Timing(cache=cache, validate=False))
        times[cache] = found.estimate().centre_s
    assert times["cold"] >= 0.9 * times["hot"]


def test_a_graph_of_a_small_case_is_no_slower_than_its_eager_call():
    times = {}
    for runner in ("torch_cuda", "cuda_graph"):
        (found,) = measure(SMALL, runner, Timing(cache="hot", validate=False))
        times[runner] = found.estimate().centre_s
    assert times["cuda_graph"] <= 1.1 * times["torch_cuda"]


@pytest.mark.parametrize("runner", ["torch_cuda", "cuda_graph", "torch_compile_cuda"])
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_what_is_timed_is_right(runner, phase):
    case = nearpeak.case("softmax", phase, rows=8, columns=33, dtype="fp32")
    gpu, host = (runner_of(name, Timing(cache="hot")).backend for name in (runner, "torch_cpu"))
    got, wanted = (one.prepare(case, drawn(case)) for one in (gpu, host))
    left, right = (one.outputs(one.runs[0]()) for one in (got, wanted))
    if phase == "forward":  # the gradient from above is drawn on the device, so that gradients differ
        np.testing.assert_allclose(left["y"], right["y"], rtol=1e-5, atol=1e-6)
    assert left.keys() == right.keys()


def test_a_case_too_large_for_the_device_is_a_row():
    (found,) = measure(nearpeak.case("elementwise", elements=2**40, dtype="fp32"), "torch_cuda")
    assert found.outcome is Outcome.UNSUPPORTED
    assert "GiB" in found.note


def test_the_same_work_is_no_regression():
    from nearpeak.measure.turns import Arm

    arm = Arm(runner="torch_cuda")
    found = compare(LARGE, arm, arm, Timing(cache="hot", validate=False), budget_s=120.0)
    assert found.judgement.verdict in ("invariant", "inconclusive")
    assert found.clock == "device"
