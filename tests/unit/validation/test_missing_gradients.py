"""Gradients that do not come out: what a case names is due, and no kernel that trains leaves one of them out."""

import pytest

import nearpeak
from nearpeak.ops import OPS
from nearpeak.validation import Implementation, validate

torch = pytest.importorskip("torch")
F = torch.nn.functional
SHAPE = {"rows": 7, "hidden": 33, "dtype": "fp32"}
FORWARD, BACKWARD = nearpeak.case("layer_norm", **SHAPE), nearpeak.case("layer_norm", "backward", **SHAPE)
TRAINED = {"batch": 3, "channels": 5, "spatial": 49, "train": True, "dtype": "fp32"}


def layer_norm_without(*names):
    """PyTorch's layer norm, whose inputs `names` are cut off from the graph."""

    def call(tensors, **_):
        x, weight, bias = (
            tensors[name].detach() if name in names else tensors[name] for name in ("input", "weight", "bias")
        )
        return {"output": F.layer_norm(x, x.shape[-1:], weight, bias)}

    return call


def v9(case, call):
    return next(one for one in validate(case, call, seed=0).results if one.check == "V9")


def test_a_case_of_the_gradient_names_those_that_are_missing():
    assert v9(BACKWARD, layer_norm_without("weight")).reason == "grad_weight is missing"
    assert v9(BACKWARD, layer_norm_without("input", "weight", "bias")).reason.startswith("grad_input, grad_weight, gra")
    assert v9(BACKWARD, layer_norm_without()).status == "PASS"


def test_a_gradient_that_the_case_does_not_ask_for_may_be_left_out():
    without_weight = nearpeak.case("layer_norm", "backward", **SHAPE, grad_weight=False)
    assert v9(without_weight, layer_norm_without("weight")).status == "PASS"
    assert v9(without_weight, layer_norm_without("bias")).reason == "grad_bias is missing"


def test_a_forward_pass_has_all_of_its_gradients_or_none():
    assert v9(FORWARD, layer_norm_without("bias")).reason == "grad_bias is missing"
    nothing = v9(FORWARD, layer_norm_without("input", "weight", "bias"))
    assert (nothing.status, nothing.reason) == ("SKIPPED", "results carry no gradient")


def test_a_function_on_arrays_is_no_answer_to_a_case_of_the_gradient():
    def on_arrays(arrays, **arguments):
        return OPS["layer_norm"].reference(dict(arrays), **arguments)

    tested = Implementation(name="arrays", call=on_arrays, arrays="numpy")
    assert v9(BACKWARD, tested).status == "UNSUPPORTED"
    assert v9(FORWARD, tested).status == "SKIPPED"


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_running_statistics_that_are_updated_in_place_need_no_gradient(phase):
    def in_place(tensors, **_):
        held = {name: tensors[name] for name in ("running_mean", "running_var")}
        y = F.batch_norm(tensors["input"], *held.values(), tensors["weight"], tensors["bias"], True, 0.1, 1e-5)
        return {"output": y, **held}

    found = validate(nearpeak.case("batch_norm", phase, **TRAINED), in_place, seed=0)
    assert found.status == "PASS", [result for result in found.results if result.failed]
    assert v9(nearpeak.case("batch_norm", phase, **TRAINED), in_place).status == "PASS"
