"""Recorded operators that lack arguments: never called by an overload that would go through a tensor as a list."""

import pytest

pytest.importorskip("torch")
from nearpeak.frontends.torch.plain_operators import Recorded
from nearpeak.frontends.torch.profiled_calls import recorded_calls

WIDE = ((1 << 30,),)


@pytest.mark.parametrize("name", ["aten::mul_", "aten::add_", "aten::mul", "aten::add"])
def test_a_huge_tensor_alone_is_refused_with_a_reason(name):
    (said,) = recorded_calls([Recorded(name, WIDE, ("float",))])
    assert "cannot be run as recorded" in said


def test_a_scalar_whose_value_was_not_recorded_is_no_list():
    (said,) = recorded_calls([Recorded("aten::mul_", (*WIDE, ()), ("float", "Scalar"))])
    assert isinstance(said, str)


def test_whole_records_are_run_as_before():
    (calls,) = recorded_calls([Recorded("aten::mul", ((64, 64), (64, 64)), ("float", "float"))])
    assert [call.case.op for call in calls] == ["elementwise"]


B = "c10::BFloat16"
OUT = {
    "aten::mm": (((8, 4), (4, 16), (8, 16)), (B, B, B), (), "gemm"),
    "aten::addmm": (((16,), (8, 4), (4, 16), (), (), (8, 16)), (B, B, B, "Scalar", "Scalar", B),
                    ("", "", "", "1", "1", ""), "gemm"),
    "aten::add": (((8, 4), (8, 4), (), (8, 4)), (B, B, "Scalar", B), ("", "", "1", ""), "elementwise"),
    "aten::max": (((8, 4), (), (), (8,), (8,)), (B, "Scalar", "Scalar", B, "long int"),
                  ("", "1", "False", "", ""), "reduce"),
    "aten::silu": (((8, 4), (8, 4)), (B, B), (), "elementwise"),
}  # fmt: skip


@pytest.mark.parametrize("name", OUT)
def test_operators_that_write_into_a_given_tensor_are_the_functional_ones(name):
    shapes, dtypes, concrete, operator = OUT[name]
    (calls,) = recorded_calls([Recorded(name, shapes, dtypes, (), concrete)])
    assert [call.case.op for call in calls] == [operator]
    assert "out" not in calls[0].operator


def test_lists_of_tensors_have_the_format_of_the_others_or_are_indices():
    joined, picked = recorded_calls(
        [Recorded("aten::cat", (((8, 4), (8, 4)), (), (16, 4)), ("TensorList", "Scalar", B), (), ("", "0", "")),
         Recorded("aten::index", ((8, 4), ((3,),)), (B, "TensorList"))]
    )  # fmt: skip
    assert dict(joined[0].case.dtypes)["dtype"] == "bf16"
    assert dict(picked[0].case.axes)["rows"] == 3 if "rows" in dict(picked[0].case.axes) else picked[0].case is not None


def test_what_no_overload_takes_is_said_with_the_overloads():
    many, foreign, fused = recorded_calls(
        [Recorded("aten::relu", ((4,), (4,), (4,), (4,)), (B,) * 4), Recorded("mine::op", ((4,),), (B,)),
         Recorded("triton_poi_fused_add_0", ((4,),), (B,))]
    )  # fmt: skip
    assert many == (
        "aten::relu cannot be run as recorded: no overload takes the 4 recorded arguments: default takes 1, out takes 2"
    )
    assert foreign == "no rule for mine::op, which is no operator of this PyTorch"
    assert "TorchInductor fused" in fused
