"""Results have the format that the case states, not that of the operands, and are rounded to it once."""

import pytest
from tests.sampling import in_turn

import nearpeak
from nearpeak.ops import OPS
from nearpeak.validation import pytorch, validate
from nearpeak.validation.oracle.float64_oracle import declared_formats

torch = pytest.importorskip("torch")
WINDOW = {"batch": 1, "in_channels": 2, "out_channels": 2, "h": 5, "w": 6, "kh": 2, "kw": 3}
AXES = {
    "gemm": {"m": 6, "n": 8, "k": 32},
    "grouped_gemm": {"m": 16, "n": 8, "k": 32, "groups": 2, "touched_groups": 2},
    "conv": WINDOW,
    "conv_transpose": WINDOW,
    "reduce": {"outputs": 6, "reduced": 40},
    "scan": {"rows": 4, "length": 40},
    "softmax": {"rows": 4, "columns": 40},
}


@pytest.mark.parametrize(("op", "formats"), in_turn(AXES, [("bf16", "fp32"), ("fp32", "bf16"), ("bf16", "fp16")]))
def test_results_have_the_format_that_the_case_states(op, formats):
    dtype, out_dtype = formats
    case = nearpeak.case(op, dtype=dtype, out_dtype=out_dtype, **AXES[op])
    assert {str(one).removeprefix("torch.") for one in declared_formats(case).values()} == {
        {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}[out_dtype]
    }
    if (dtype, out_dtype) == ("bf16", "fp32"):
        assert validate(case, pytorch(case), seed=0).status == "PASS"


def test_a_wider_result_is_not_rounded_to_the_format_of_the_operands():
    case = nearpeak.case("gemm", m=6, n=8, k=32, dtype="bf16", out_dtype="fp32")

    def rounded_on_the_way(tensors, **_):
        return {"y": (tensors["a"] @ tensors["b"]).float()}

    assert validate(case, lambda t, **_: t["a"].float() @ t["b"].float(), seed=0).status == "PASS"
    assert validate(case, rounded_on_the_way, seed=0).status == "NUMERIC_FAIL"


@pytest.mark.parametrize("op", ["gemm", "grouped_gemm", "conv"])
def test_sums_of_products_of_narrow_whole_numbers_do_not_wrap_in_int32(op):
    case = nearpeak.case(op, dtype="int8", out_dtype="int32", **AXES[op])
    assert validate(case, pytorch(case), seed=0).status == "PASS"
    narrow = nearpeak.case(op, dtype="int8", **AXES[op])
    assert validate(narrow, pytorch(narrow), seed=0).status == "PASS", "where the result is narrow, its upper bits go"

    def wrapping(tensors, **arguments):
        found = OPS[op].torch_call(tensors, **arguments)
        return {name: one.to(torch.int8).int() for name, one in found.items()}

    assert validate(case, wrapping, seed=0).status == "NUMERIC_FAIL"


def test_what_pytorch_refuses_of_a_format_is_said():
    with pytest.raises(nearpeak.errors.NotModelledError, match="Expected a floating point"):
        validate(nearpeak.case("linalg", batch=1, n=4, function="inverse", dtype="int8"), lambda t, **_: t, seed=0)
