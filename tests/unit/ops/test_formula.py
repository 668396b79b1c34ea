"""Formulas of element-wise functions: cost counted once per distinct part, values right on the whole domain."""

import numpy as np
import pytest
import torch
from tests.sampling import sampled

from nearpeak.errors import NotModelledError, SpecError, UnknownNameError
from nearpeak.ops import OPS, case, work_of
from nearpeak.ops.shared.reference.elementwise_functions import FUNCTIONS
from nearpeak.ops.shared.reference.formula import formula, formulas
from nearpeak.validation import Implementation, validate
from nearpeak.validation.oracle.float64_oracle import draw_inputs
from nearpeak.validation.oracle.gradient_oracle import differentiated, expected_gradients, upstream_of


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


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("asin", -0.9, 0.9), ("acos", -0.9, 0.9), ("hardsigmoid", -0.9, 0.9), ("atanh", -0.9, 0.9),
     ("erfinv", -0.99, 0.99), ("logit", 0.02, 0.98), ("ndtri", 0.02, 0.98), ("acosh", 1.1, 5.0),
     ("lgamma", 0.1, 9.0), ("airy_ai", -2.0, 5.0), ("digamma", -2.3, 8.0)],
)  # fmt: skip
def test_functions_with_a_narrow_domain_agree_with_torch(name, low, high):
    arguments = dict(case("elementwise", elements=5, dtype="fp64", function=name).record().items())
    a = np.linspace(low, high, 5)
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


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if "polynomial" in name])
def test_polynomials_agree_with_torch_in_every_degree(name):
    arguments = dict(case("elementwise", elements=4, dtype="fp64", function=name, b=4).record().items())
    tensors = {"a": torch.tensor([-0.7, 0.2, 0.6, 0.9]).double(), "b": torch.tensor([0.0, 1.0, 2.0, 5.0]).double()}
    got = OPS["elementwise"].torch_call(tensors, **{k: arguments[k] for k in arguments if k != "op"})
    arrays = {operand: tensor.numpy() for operand, tensor in tensors.items()}
    np.testing.assert_allclose(got["y"], OPS["elementwise"].reference(arrays, **arguments)["y"], rtol=1e-9)


def test_zeta_agrees_with_torch_where_the_sum_converges():
    arguments = dict(case("elementwise", elements=3, dtype="fp64", function="zeta", b=3).record().items())
    tensors = {"a": torch.tensor([1.2, 2.0, 7.5]).double(), "b": torch.tensor([0.3, 1.0, 4.0]).double()}
    got = OPS["elementwise"].torch_call(tensors, **{k: arguments[k] for k in arguments if k != "op"})
    arrays = {operand: tensor.numpy() for operand, tensor in tensors.items()}
    np.testing.assert_allclose(got["y"], OPS["elementwise"].reference(arrays, **arguments)["y"], rtol=1e-12)


@pytest.mark.parametrize("name", ["polygamma", *(f"bessel_{kind}{order}" for kind in "jy" for order in (0, 1))])
def test_functions_that_torch_approximates_agree_with_it_to_nine_digits(name):
    arguments = dict(case("elementwise", elements=6, dtype="fp64", function=name).record().items())
    a = np.linspace(0.1, 2.3, 6)
    got = OPS["elementwise"].torch_call({"a": torch.tensor(a)}, **{k: arguments[k] for k in arguments if k != "op"})
    np.testing.assert_allclose(got["y"], OPS["elementwise"].reference({"a": a}, **arguments)["y"], 1e-9, 1e-10)


def test_incomplete_gamma_functions_add_up_to_one():
    a, x = np.array([0.3, 1.0, 4.5]), np.array([0.2, 2.0, 3.0])
    lower, upper = (OPS["elementwise"].reference(
        {"a": a, "b": x}, **case("elementwise", elements=3, dtype="fp64", function=name, b=3).record()
    )["y"] for name in ("igamma", "igammac"))  # fmt: skip
    np.testing.assert_allclose(upper, torch.special.gammaincc(torch.tensor(a), torch.tensor(x)), rtol=1e-10)
    np.testing.assert_allclose(lower + upper, 1.0, rtol=1e-12)


_IN_FLOAT = {"hardsigmoid": 3e-8}
"""Functions whose gradient PyTorch takes with constants of fp32, also in fp64, and how far that puts it off."""


@pytest.mark.parametrize("name", [name for name, row in FUNCTIONS.items() if row.gradients])
def test_gradients_agree_with_those_of_pytorch_in_fp64(name):
    row = FUNCTIONS[name]
    sizes = {key: 257 for key in row.operand_names[1:] if row.takes.get(key) != "scalar"}
    formats = {f"{key}_dtype": kind for key, kind in row.takes.items() if kind == "bool"}
    asked = draw_inputs(case("elementwise", elements=257, dtype="fp64", function=name, **sizes, **formats), 3, "normal")
    upstream = upstream_of(asked, 3)
    got, _ = differentiated(Implementation(name="PyTorch", call=OPS["elementwise"].torch_call), asked, upstream)
    for key, one in expected_gradients(asked, 3, tuple(got), (), of_sum=False).items():
        limit = _IN_FLOAT.get(name, 1e-11) * np.maximum(np.abs(one.values), np.abs(one.values).mean())
        assert (np.abs(got[key].numpy() - one.values) <= limit).all(), key


@pytest.mark.parametrize(
    ("function", "axes", "said"),
    [("where", {"b": 8, "c": 8}, "a_dtype=fp32, but where takes truth values there; say a_dtype=bool"),
     ("gcd", {"b": 8}, "gcd takes whole numbers there; say a_dtype=int32"),
     ("polar", {"b": 8}, "polar gives complex numbers there; say out_dtype=complex64"),
     ("threshold", {"b": 8}, "threshold takes a number there, no tensor; leave it out")],
)  # fmt: skip
def test_what_a_function_cannot_be_computed_with_is_named(function, axes, said):
    with pytest.raises(SpecError, match=said):
        validate(
            case("elementwise", elements=8, dtype="fp32", function=function, **axes),
            OPS["elementwise"].torch_call,
            seed=1,
        )


@pytest.mark.parametrize(
    "name", sampled(["acosh", "logit", "ndtri", "zeta", "polygamma", "chebyshev_polynomial_w", "polar"], 3)
)
def test_functions_that_few_numbers_have_are_validated_inside_their_domain(name):
    more = {"b": 500} if "b" in FUNCTIONS[name].operand_names else {}
    more |= {"out_dtype": "complex64"} if name == "polar" else {}
    found = validate(
        case("elementwise", elements=500, dtype="fp32", function=name, **more), OPS["elementwise"].torch_call, seed=1
    )
    assert found.status == "PASS", found.results
    wrong = validate(
        case("elementwise", elements=500, dtype="fp32", function=name, **more),
        lambda tensors, **given: {"y": OPS["elementwise"].torch_call(tensors, **given)["y"] * 1.001},
        seed=1,
    )
    assert wrong.status == "NUMERIC_FAIL"
