"""V8 and V9 beyond one call: replayed graphs, other streams, gradients without a rule of their own."""

import numpy as np
import pytest

import nearpeak
from nearpeak.ops import OPS
from nearpeak.validation import Implementation, pytorch, validate
from nearpeak.validation.oracle.autograd_gradients import differentiable, gradients_in_fp64
from nearpeak.validation.oracle.float64_oracle import draw_inputs

torch = pytest.importorskip("torch")
GEMM = nearpeak.case("gemm", m=24, n=40, k=96, dtype="fp32")


def multiply(tensors, **arguments):
    return OPS["gemm"].torch_call(tensors, **arguments)


def replaying(fault):
    """A runner of graphs without a GPU: what is captured is run again on the same tensors, with a fault."""

    def captured(tensors, arguments):
        fixed = {name: tensor.clone() for name, tensor in tensors.items()}
        static = multiply(fixed, **arguments)
        result = {"y": torch.zeros_like(static["y"])}

        def replay(others):
            for name in fixed if fault != "baked" else ():
                fixed[name].copy_(others[name])
            if fault != "accumulates":
                result["y"].zero_()
            result["y"].add_(multiply(fixed, **arguments)["y"])
            return {"y": result["y"][:, :-1]} if fault == "cut" else result

        return replay

    return Implementation(name="graphs", call=multiply, captured=captured)


def v8(implementation):
    return validate(GEMM, implementation, seed=1).results[8]


def test_a_right_replay_passes_and_is_recorded():
    found = v8(replaying("none"))
    assert found.status == "PASS"
    assert found.figures == {"bitwise": "yes", "replay": "3 times"}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("baked", "replay with positive inputs"),
        ("accumulates", "replay with normal inputs"),
        ("cut", "other outputs than before"),
    ],
)
def test_a_replay_that_keeps_inputs_adds_up_or_loses_outputs_is_seen(fault, said):
    found = v8(replaying(fault))
    assert found.status == "NONDET"
    assert said in found.reason


def test_what_cannot_be_captured_is_said_and_no_fault():
    def captured(tensors, arguments):
        raise RuntimeError("operation not permitted when stream is capturing")

    found = v8(Implementation(name="graphs", call=multiply, captured=captured))
    assert found.status == "PASS"
    assert "not permitted" in found.figures["replay"]


def test_an_answer_that_changes_beside_other_work_is_seen():
    def racing(tensors, **arguments):
        return {"y": multiply(tensors, **arguments)["y"].roll(1, -1)}

    found = v8(Implementation(name="streams", call=multiply, concurrent=racing))
    assert found.status == "NONDET"
    assert "beside other work" in found.reason
    assert v8(Implementation(name="streams", call=multiply, concurrent=multiply)).figures["concurrent"] == "yes"


def test_the_gradient_of_a_product_is_judged_without_a_rule_of_its_own():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(context, a, b):
            context.save_for_backward(a, b)
            return a @ b

        @staticmethod
        def backward(context, grad):
            a, b = context.saved_tensors
            return grad @ b.mT, (a * 1.001).mT @ grad

    assert validate(GEMM, pytorch(GEMM), seed=1).results[9].status == "PASS"
    found = validate(GEMM, lambda tensors, **_: {"y": Wrong.apply(tensors["a"], tensors["b"])}, seed=1)
    assert found.failed == ("V9",)
    assert "grad_b" in found.results[9].reason


SMALL = {
    "gemm": {"m": 3, "n": 4, "k": 5}, "trilinear": {"batch": 2, "out": 2, "left": 3, "right": 2},
    "reduce": {"outputs": 2, "reduced": 5, "function": "logsumexp"}, "scan": {"rows": 2, "length": 4},
    "cross": {"vectors": 3},
}  # fmt: skip


@pytest.mark.parametrize("op", SMALL)
def test_the_oracle_of_gradients_agrees_with_differences_of_the_reference(op):
    case = nearpeak.case(op, **SMALL[op], dtype="fp64")
    assert differentiable(case)
    asked, random = draw_inputs(case, 3, "normal"), np.random.default_rng(5)
    arrays = {name: tensor.numpy() for name, tensor in asked.tensors.items()}
    upstream = {f"grad_{name}": random.standard_normal(one.values.shape) for name, one in asked.expected.items()}
    gradients = gradients_in_fp64(asked, {**arrays, **upstream})
    step, direction = 1e-6, {name: random.standard_normal(array.shape) for name, array in arrays.items()}

    def lost(sign):
        moved = {name: array + sign * step * direction[name] for name, array in arrays.items()}
        found = OPS[op].reference(moved, **asked.arguments)
        return sum((found[name] * upstream[f"grad_{name}"]).sum() for name in found)

    along = sum((gradients[f"grad_{name}"] * one).sum() for name, one in direction.items())
    assert along == pytest.approx((lost(1) - lost(-1)) / (2 * step), rel=1e-6, abs=1e-8)


def test_a_function_that_leaves_autograd_is_told_how_it_may():
    def through_numpy(tensors, **_):
        with np.errstate(invalid="ignore"):  # where NaN and infinities are asked about
            x = np.exp(np.asarray(tensors["x"]) - np.asarray(tensors["x"].max(-1, keepdim=True).values.detach()))
        return {"y": torch.as_tensor(x / x.sum(-1, keepdims=True))}

    def detached(tensors, **_):
        return through_numpy({"x": tensors["x"].detach()})

    case = nearpeak.case("softmax", rows=4, columns=40, dtype="fp32")
    found = validate(case, through_numpy, seed=1).results[9]
    assert found.status == "CRASH"
    assert "\n" not in found.reason
    for said in ("test_repeats.py:", "np.asarray(tensors", 'arrays = "numpy"', "detach()"):
        assert said in found.reason
    assert validate(case, detached, seed=1).results[9].status == "SKIPPED"
