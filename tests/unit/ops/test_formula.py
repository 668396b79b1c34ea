"""Formulas of element-wise functions: cost counted once per distinct part, values right on the whole domain."""

import numpy as np
import pytest
import torch

from nearpeak.errors import NotModelledError, SpecError, UnknownNameError
from nearpeak.ops import OPS, case, work_of
from nearpeak.ops._formula import formula, formulas
from nearpeak.ops._functions import FUNCTIONS


def test_a_part_that_occurs_twice_is_counted_once():
    assert formula("(a - b) * (a - b)").flop_count == 2
    assert [f.special_count for f in formulas("g * sigmoid(b)", "g * a * sigmoid(b)")] == [1, 0]


def test_unknown_function_in_a_formula_is_refused():
    with pytest.raises(SpecError, match="'open' is no known function"):
        formula("open(a)")


def test_unknown_elementwise_function_names_near_ones():
    with pytest.raises(UnknownNameError, match="gelu"):
        work_of(case("elementwise", elements=4, dtype="fp32", function="gelu_erf"))


def test_operand_that_the_function_lacks_is_refused():
    with pytest.raises(SpecError, match="relu has no such operand"):
        work_of(case("elementwise", elements=4, dtype="fp32", function="relu", b=4))


def test_gradient_without_a_formula_is_not_modelled():
    with pytest.raises(NotModelledError, match="gradient of floor"):
        work_of(case("elementwise", "backward", elements=4, dtype="fp32", function="floor"))


def test_every_function_states_a_gradient_per_operand_or_none():
    for row in FUNCTIONS.values():
        assert len(row.gradients) <= len(row.operand_names), row.name


@pytest.mark.parametrize("name", ["asin", "acos", "hardsigmoid"])
def test_functions_with_a_narrow_domain_agree_with_torch(name):
    arguments = dict(case("elementwise", elements=5, dtype="fp64", function=name).record().items())
    a = np.linspace(-0.9, 0.9, 5)
    got = OPS["elementwise"].torch_call({"a": torch.tensor(a)}, **{k: arguments[k] for k in arguments if k != "op"})
    np.testing.assert_allclose(got["y"], OPS["elementwise"].reference({"a": a}, **arguments)["y"], rtol=1e-12)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_binary_cross_entropy_agrees_with_torch(reduction):
    a, b = np.linspace(0.1, 0.9, 5), np.linspace(0.8, 0.2, 5)
    arguments = {"elements": 5, "dtype": "fp64", "function": "bce", "reduction": reduction}
    tensors = {"a": torch.tensor(a, requires_grad=True), "b": torch.tensor(b)}
    y = OPS["pointwise_loss"].torch_call(tensors, **arguments)["y"]
    np.testing.assert_allclose(y.detach(), OPS["pointwise_loss"].reference({"a": a, "b": b}, **arguments)["y"])
    y.sum().backward()
    arrays = {"a": a, "b": b, "grad_y": np.ones(y.shape)}
    expected = OPS["pointwise_loss"].backward_reference(arrays, **arguments)["grad_a"]
    np.testing.assert_allclose(tensors["a"].grad, expected)
