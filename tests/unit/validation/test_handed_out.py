"""Results that a caller holds: a later call with other inputs leaves them as they are."""

import pytest

import nearpeak
from nearpeak.validation import pytorch, validate

torch = pytest.importorskip("torch")
from tests.unit.validation import own_softmax as own  # noqa: E402

SOFTMAX = nearpeak.case("softmax", rows=6, columns=9, dtype="fp32")


def test_a_buffer_that_is_handed_out_again_is_refused():
    held = {}

    def call(tensors, **_):
        x = tensors["x"].detach()
        buffer = held.setdefault(x.shape, torch.empty(x.shape))
        return {"y": buffer.copy_(x.softmax(-1))}

    found = validate(SOFTMAX, call, seed=0)
    assert found.status == "ALIASED_OUTPUT"
    assert found.failed[0] == "V2"
    assert "a later call changes y of an earlier one" in found.reason


def test_a_buffer_inside_a_kernel_may_be_used_again():
    held = {}

    def call(tensors, **_):
        x = tensors["x"].detach()
        buffer = held.setdefault(x.shape, torch.empty(x.shape))
        return {"y": buffer.copy_(x.softmax(-1)).clone()}

    assert validate(SOFTMAX, call, seed=0).status == "PASS"


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_gradient_in_a_buffer_that_is_used_again_is_refused(is_shared):
    held = torch.empty(6, 9)

    def backward(y, grad):
        held.copy_(own.gradient(y, grad))
        return held if is_shared else held.clone()

    found = validate(SOFTMAX, own.softmax(backward), seed=0)
    assert found.failed == (("V9",) if is_shared else ())


@pytest.mark.parametrize("op", ["adamw", "sgd"])
def test_what_is_updated_in_place_by_its_definition_passes(op):
    case = nearpeak.case(op, parameters=40, dtype="fp32")
    assert validate(case, pytorch(case), seed=0).status == "PASS"
