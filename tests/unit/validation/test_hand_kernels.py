"""Kernels that people write: each mistake is told, and no order of computing that good kernels choose is refused."""

import pytest

pytest.importorskip("torch")

from tests.sampling import first_of_each
from tests.unit.validation.hand_kernels import RIGHT, WRONG

import nearpeak
from nearpeak.validation import validate


def of_each_operator(kernels):
    """Names of kernels, of which the first of each operator is no `long` one."""
    return first_of_each([(name,) for name in kernels], lambda values: kernels[values[0]][0][0])


def judged(case, kernel):
    op, arguments = case
    return validate(nearpeak.case(op, **arguments), kernel, seed=11)


@pytest.mark.parametrize("mistake", of_each_operator(WRONG))
def test_a_mistake_is_told(mistake):
    assert judged(*WRONG[mistake]).status == "NUMERIC_FAIL"


@pytest.mark.parametrize("way", of_each_operator(RIGHT))
def test_a_right_kernel_is_accepted(way):
    found = judged(*RIGHT[way])
    assert found.status == "PASS", found.reason
