"""Each operator states the family that reports group it with."""

import dataclasses

import pytest

from nearpeak.core.work.family import FAMILIES
from nearpeak.errors import SpecError
from nearpeak.ops import OPS


def test_every_family_has_an_operator():
    assert {OPS[name].family for name in OPS} == set(FAMILIES)


def test_a_family_that_no_report_knows_is_refused_with_those_that_are_known():
    with pytest.raises(SpecError, match="gemm: family='matmul' is not one of attention, convolution, product"):
        dataclasses.replace(OPS["gemm"], family="matmul")


def test_an_operator_without_a_family_is_refused():
    stated = {field.name: getattr(OPS["gemm"], field.name) for field in dataclasses.fields(OPS["gemm"])}
    del stated["family"]
    with pytest.raises(TypeError, match="family"):
        type(OPS["gemm"])(**stated)


@pytest.mark.parametrize(
    ("operator", "family"), [("recurrent", "attention"), ("linalg", "product"), ("max_unpool", "reduction")]
)
def test_a_family_does_not_depend_on_the_words_in_a_name(operator, family):
    assert OPS[operator].family == family
