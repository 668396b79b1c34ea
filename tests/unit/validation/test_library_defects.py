"""Kernels of a library that are wrong in one format: what they do wrong is named, and they count as no variants."""

from collections import Counter

import pytest
from benchmarks.mutants import DEFECT, LEFT_OUT, _judge, judged_variants

import nearpeak
from nearpeak.ops import OPS
from nearpeak.validation import pytorch, validate
from nearpeak.validation.mutants.legitimate_variants import PLAIN
from nearpeak.validation.mutants.torch_defects import defect, refused_gradient
from nearpeak.validation.running.implementation_run import Implementation

torch = pytest.importorskip("torch")

CASE = nearpeak.case("gemm", m=4, n=3, k=33, dtype="bf16")


def reading_past_the_row(formats):
    """Return a product that multiplies the first number of the next row with 0, as a padded tail does."""

    def kernel(tensors, **arguments):
        found = OPS["gemm"].torch_call({k: t.float() for k, t in tensors.items()}, **arguments)["y"]
        a = tensors["a"]
        if a.dtype in formats:
            found[..., :-1, :] += 0.0 * a[..., 1:, :1].float()
        return {"y": found.to(a.dtype)}

    return Implementation(name=PLAIN, call=kernel)


def test_an_infinity_that_reaches_a_result_which_does_not_depend_on_it_is_named():
    found = validate(CASE, reading_past_the_row([torch.bfloat16]), seed=1)
    (wrong,) = [one for one in found.results if one.failed]
    assert wrong.check == "V4"
    assert wrong.reason.endswith("is nan and does not depend on it")


def test_a_kernel_that_is_wrong_in_one_format_alone_is_a_defect_of_that_kernel():
    assert "in fp32 it is right" in defect(CASE, reading_past_the_row([torch.bfloat16]), 1)
    assert defect(CASE, reading_past_the_row([torch.bfloat16, torch.float32]), 1) == ""
    assert defect(CASE, reading_past_the_row([]), 1) == ""


def test_an_optimizer_that_loses_its_epsilon_in_fp16_is_a_defect_of_that_optimizer():
    in_fp16, in_bf16 = (nearpeak.case("optimizer", parameters=9, rule="rmsprop", dtype=one) for one in ("fp16", "bf16"))
    assert "in fp32 it is right" in defect(in_fp16, pytorch(in_fp16), 1)
    assert defect(in_bf16, pytorch(in_bf16), 1) == ""
    outcomes = dict(judged_variants(in_fp16))
    assert outcomes[PLAIN].startswith(DEFECT)


def test_a_defective_kernel_is_neither_accepted_nor_refused_and_tells_nothing_about_mutants(monkeypatch):
    padded = reading_past_the_row([torch.bfloat16])
    monkeypatch.setattr("benchmarks.mutants.variants_of", lambda case: [padded])
    ((name, outcome),) = judged_variants(CASE)
    assert (name, outcome.startswith(DEFECT)) == (PLAIN, True)
    counts, said = Counter(), []
    _judge(CASE, counts, said)
    assert dict(counts) == {"defective": 1}
    assert LEFT_OUT in said[-1]


def test_a_gradient_that_the_library_refuses_is_a_defect_of_it_and_a_wrong_one_is_not():
    class Refused(torch.autograd.Function):
        @staticmethod
        def forward(context, y):
            return y.clone()

        @staticmethod
        def backward(context, grad):
            raise RuntimeError("grad_weight must be contiguous")

    def kernel(change):
        return Implementation(
            name=PLAIN,
            call=lambda tensors, **arguments: {"y": change(OPS["gemm"].torch_call(tensors, **arguments)["y"])},
        )

    assert refused_gradient(CASE, kernel(Refused.apply), 1) == "no gradient: grad_weight must be contiguous"
    assert refused_gradient(CASE, kernel(lambda y: 2 * y - y.detach()), 1) == ""
