"""Functions of users on a GPU that is only pretended: all that the contract asks of them on the host."""

import pytest

import nearpeak
from nearpeak.core.runs.measurement import Outcome, Timing
from nearpeak.measurement.runners.callable_cuda import CallableOnGpu
from nearpeak.measurement.timed_runner import TimedRunner
from nearpeak.validation import validate

torch = pytest.importorskip("torch")
from tests.unit.validation import own_softmax as own  # noqa: E402

from .pretended_gpu import pretend  # noqa: E402

TIMING = Timing(cache="hot", budget_s=0.02)
SOFTMAX = nearpeak.case("softmax", rows=8, columns=16, dtype="fp32")


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    mode = pretend(monkeypatch)
    yield
    mode.__exit__(None, None, None)


def judged(function, case=SOFTMAX):
    return validate(case, CallableOnGpu.of(function, TIMING).implementation(case), seed=0)


def into(change):
    """Return a function that writes its result into the output that it is given, and then changes that."""

    def function(tensors, out, **_):
        out["y"].copy_(torch.softmax(tensors["x"], -1))
        change(out["y"])

    return function


def nothing(_):
    """Change nothing."""


def test_a_function_that_writes_into_given_outputs_is_checked_and_timed():
    assert judged(into(nothing)).status == "PASS"
    found = TimedRunner(CallableOnGpu.of(into(nothing), TIMING), TIMING, argument="own").measure(SOFTMAX)
    assert found.samples_s, found.note
    assert found.validation.status == "PASS"


@pytest.mark.parametrize(("change", "status"), [
    (lambda y: y.mul_(1.01), "NUMERIC_FAIL"),
    (lambda y: y.detach().as_strided((1,), (1,), y.storage_offset() + y.numel()).fill_(1.0), "OOB_WRITE"),
])  # fmt: skip
def test_what_is_wrong_in_a_given_output_or_beside_it_is_seen(change, status):
    assert judged(into(change)).status == status


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_buffer_on_the_gpu_that_is_handed_out_again_is_refused(is_shared):
    held = torch.empty(8, 16)

    def function(tensors, **_):
        held.copy_(torch.softmax(tensors["x"].detach(), -1))
        return held if is_shared else held.clone()

    found = judged(function)
    assert (found.status, "V2" in found.failed) == (("ALIASED_OUTPUT", True) if is_shared else ("PASS", False))


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_gradient_on_the_gpu_in_a_buffer_that_is_used_again_is_refused(is_shared):
    held = torch.empty(8, 16)

    def backward(y, grad):
        held.copy_(own.gradient(y, grad))
        return held if is_shared else held.clone()

    assert judged(own.softmax(backward)).failed == (("V9",) if is_shared else ())


@pytest.mark.parametrize(("factor", "failed"), [(1.0, ()), (1.01, ("V9",))])
def test_the_rule_of_a_gradient_is_asked_on_the_gpu(factor, failed):
    def function(tensors, **_):
        return torch.softmax(tensors["x"].detach(), -1)

    def backward(tensors, **_):
        y = torch.softmax(tensors["x"], -1)
        return {"grad_x": factor * own.gradient(y, tensors["grad_y"])}

    function.backward = backward
    case = nearpeak.case("softmax", "backward", rows=8, columns=16, dtype="fp32")
    found = judged(function, case)
    assert found.failed == failed
    assert "V9" in {result.check for result in found.results if result.status != "SKIPPED"}
    timed = TimedRunner(CallableOnGpu.of(function, TIMING), TIMING, argument="own").measure(case)
    assert bool(timed.samples_s) == (not failed), timed.note


def test_a_function_on_arrays_of_the_host_is_refused():
    def function(arrays, **_):
        return arrays["x"]

    function.arrays = "numpy"
    found = TimedRunner(CallableOnGpu.of(function, TIMING), TIMING, argument="own").measure(SOFTMAX)
    assert found.outcome is Outcome.UNSUPPORTED
    assert "runner callable" in found.note
