"""A function that gives no gradient, or not all of them, is not timed as if it gave them."""

import dataclasses

import pytest

import nearpeak
from nearpeak.core.runs.measurement import Outcome, Timing
from nearpeak.measurement.runners.callable import UserCallable
from nearpeak.measurement.timed_runner import TimedRunner

torch = pytest.importorskip("torch")
F = torch.nn.functional
TIMING = Timing(budget_s=0.01, flush_bytes=0)
LAYER_NORM = nearpeak.case("layer_norm", "backward", rows=7, hidden=33, dtype="fp32")
BATCH_NORM = nearpeak.case("batch_norm", "backward", batch=3, channels=5, spatial=49, train=True, dtype="fp32")


def layer_norm_of(tensors, names):
    given = {name: one if name in names else one.detach() for name, one in tensors.items()}
    return {"output": F.layer_norm(given["input"], (33,), given["weight"], given["bias"])}


def nothing(tensors, **_):
    return layer_norm_of(tensors, ())


def part(tensors, **_):
    return layer_norm_of(tensors, ("input",))


def in_place(tensors, **_):
    held = {name: tensors[name] for name in ("running_mean", "running_var")}
    y = F.batch_norm(tensors["input"], *held.values(), tensors["weight"], tensors["bias"], True, 0.1, 1e-5)
    return {"output": y, **held}


def measured(case, function, **timing):
    timed = dataclasses.replace(TIMING, **timing)
    return TimedRunner(UserCallable.of(function, timed), timed).measure(case)


@pytest.mark.parametrize("validate", [True, False])
def test_a_function_without_gradients_is_incorrect(validate):
    found = measured(LAYER_NORM, nothing, validate=validate)
    assert (found.outcome, found.note) == (Outcome.INCORRECT, "no gradient of input, weight, bias")


@pytest.mark.parametrize(("validate", "said"), [(True, "grad_weight, grad_bias"), (False, "weight, bias")])
def test_a_function_with_some_of_them_is_incorrect(validate, said):
    found = measured(LAYER_NORM, part, validate=validate)
    assert found.outcome is Outcome.INCORRECT
    assert said in found.note
    assert not found.samples_s


def test_what_the_case_does_not_ask_for_may_be_missing():
    asked = nearpeak.case("layer_norm", "backward", rows=7, hidden=33, dtype="fp32", grad_weight=False, grad_bias=False)
    assert measured(asked, part).samples_s


def test_running_statistics_are_updated_in_place_where_a_gradient_is_timed():
    assert measured(BATCH_NORM, in_place).samples_s
