"""Gradients from above that do not lie densely: a kernel that takes them for dense is wrong."""

import pytest

import nearpeak
from nearpeak.validation import pytorch, validate
from nearpeak.validation.oracle.float64_oracle import draw_inputs
from nearpeak.validation.oracle.gradient_oracle import upstream_of

torch = pytest.importorskip("torch")
from tests.unit.validation import own_softmax as own  # noqa: E402

SOFTMAX = nearpeak.case("softmax", "backward", rows=6, columns=9, dtype="fp32")
SUM = nearpeak.case("reduce", outputs=12, reduced=5, function="sum", dtype="fp32")


def taken_for_dense(y, grad):
    return own.gradient(y, torch.as_strided(grad, y.shape, (y.shape[-1], 1)))


def test_a_kernel_that_takes_the_upstream_gradient_for_dense_is_refused():
    found = validate(SOFTMAX, own.softmax(taken_for_dense), seed=0)
    assert found.failed == ("V9",)
    assert validate(SOFTMAX, own.softmax(own.gradient), seed=0).status == "PASS"


def taken_for_dense_of_a_sum(y, grad):
    return own.gradient(y, torch.as_strided(grad, y.shape, grad.stride() if all(grad.stride()) else (y.shape[-1], 1)))


def test_a_kernel_that_takes_the_upstream_gradient_of_a_sum_for_dense_is_refused():
    found = validate(SOFTMAX, own.softmax(taken_for_dense_of_a_sum), seed=0)
    assert found.failed == ("V9",)


@pytest.mark.parametrize("case", [SOFTMAX, SUM], ids=lambda case: case.op)
def test_the_first_upstream_gradient_is_dense_and_the_second_is_not(case):
    forward = nearpeak.ops.OPS[case.op].forward_case(case)
    dense, other = (upstream_of(draw_inputs(forward, 0, kind), 0)["y"] for kind in ("normal", "positive"))
    assert dense.is_contiguous()
    assert not other.is_contiguous()
    assert other.reshape(-1)[0] == 0.0
    assert other.reshape(-1)[-1] == 1.0


@pytest.mark.parametrize(("m", "dtype"), [(7, "fp32"), (7, "bf16"), (12, "bf16")])
def test_products_that_ask_for_aligned_strides_pass(m, dtype):
    case = nearpeak.case("grouped_gemm", m=m, n=8, k=16, groups=3, dtype=dtype)
    found = validate(case, pytorch(case), seed=0)
    assert found.status == "PASS", [result.reason for result in found.results if result.failed]
