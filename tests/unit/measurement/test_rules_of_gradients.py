"""Functions of users that carry a rule of their gradient: it is what is checked, and what is timed."""

import pytest

import nearpeak
from nearpeak.core.runs.measurement import Outcome, Timing
from nearpeak.measurement.runners.callable import UserCallable
from nearpeak.measurement.timed_runner import TimedRunner

torch = pytest.importorskip("torch")
from tests.unit.validation import own_softmax as own  # noqa: E402

TIMING = Timing(cache="hot", budget_s=0.02)
CASE = nearpeak.case("softmax", "backward", rows=8, columns=16, dtype="fp32")


def measured(function):
    return TimedRunner(UserCallable.of(function, TIMING), TIMING, argument="own").measure(CASE)


def softmax(*, writes):
    """Return a softmax without autograd, that writes into a given output or returns one."""

    def into(tensors, out, **_):
        out["y"].copy_(torch.softmax(tensors["x"].detach(), -1))

    def returned(tensors, **_):
        return torch.softmax(tensors["x"].detach(), -1)

    return into if writes else returned


def with_rule(change, *, writes=False):
    """Return a softmax whose rule gives `change` of the right gradient, and the list of its calls."""
    calls = []

    def backward(tensors, **_):
        calls.append(1)
        return change(own.gradient(torch.softmax(tensors["x"], -1), tensors["grad_y"]))

    function = softmax(writes=writes)
    function.backward = backward
    return function, calls


@pytest.mark.parametrize("writes", [False, True])
def test_the_rule_is_timed(writes):
    function, calls = with_rule(lambda grad: {"grad_x": grad}, writes=writes)
    found = measured(function)
    assert found.samples_s, found.note
    assert found.validation.status == "PASS"
    assert len(calls) > len(found.samples_s)


@pytest.mark.parametrize("change", [lambda grad: {"grad_x": 1.01 * grad}, lambda _: {}])
def test_a_wrong_rule_and_one_that_leaves_a_gradient_out_are_refused(change):
    found = measured(with_rule(change)[0])
    assert not found.samples_s
    assert found.outcome is Outcome.INCORRECT


def test_a_function_without_rule_and_without_autograd_has_no_gradient():
    assert not measured(softmax(writes=False)).samples_s
