"""Recorded operators that lack arguments: never called by an overload that would go through a tensor as a list."""

import pytest

pytest.importorskip("torch")
from nearpeak.frontends.torch.profiled_calls import Recorded, recorded_calls

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
