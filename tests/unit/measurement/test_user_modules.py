"""PyTorch modules as implementations: called by their own arguments, weights taken from the case."""

import pytest

import nearpeak
from nearpeak.case_tensors.user_functions import function_of
from nearpeak.errors import SpecError
from nearpeak.validation import validate

torch = pytest.importorskip("torch")

NORM = nearpeak.case("layer_norm", rows=6, hidden=33, dtype="fp32")
SOFTMAX = nearpeak.case("softmax", rows=4, columns=9, dtype="fp32")


class Named(torch.nn.Module):
    """Takes the input of the case by its name, and one of its arguments."""

    def forward(self, x, log):
        """Return the softmax, or its logarithm."""
        return torch.log_softmax(x, -1) if log else torch.softmax(x, -1)


@pytest.mark.parametrize("module", [torch.nn.Softmax(-1), Named()])
def test_a_module_is_called_with_the_inputs_in_order_or_by_their_names(module):
    assert validate(SOFTMAX, module, seed=0).status == "PASS"


@pytest.mark.parametrize(("eps", "status"), [(1e-5, "PASS"), (0.1, "NUMERIC_FAIL")])
def test_weights_of_a_module_are_the_inputs_of_their_names(eps, status):
    module = torch.nn.LayerNorm(33, eps=eps)
    assert validate(NORM, module, seed=0).status == status
    assert torch.equal(module.weight, torch.ones(33)), "its own weights stay as they are"


def test_a_module_that_does_not_take_the_inputs_says_which_there_are():
    found = validate(NORM, torch.nn.Softmax(-1), seed=0)
    assert found.failed[0] == "V1"
    assert "Softmax.forward does not take the inputs input, weight, bias" in str(found.reason)


def test_a_forward_that_takes_whatever_comes_is_called_like_any_function():
    class Whole(torch.nn.Module):
        def forward(self, tensors, **_):
            return {"y": torch.softmax(tensors["x"], -1)}

    assert validate(SOFTMAX, Whole(), seed=0).status == "PASS"


def test_a_class_is_refused_where_an_object_of_it_is_meant():
    with pytest.raises(SpecError, match="is a class; name a function, or an object of the class"):
        function_of("torch:nn.Softmax")
