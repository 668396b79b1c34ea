"""Kernels that people write: each mistake is told, and no order of computing that good kernels choose is refused."""

import pytest

pytest.importorskip("torch")

from tests.unit.validation.hand_kernels import RIGHT, WRONG

import nearpeak
from nearpeak.validation import validate


def judged(case, kernel):
    op, arguments = case
    return validate(nearpeak.case(op, **arguments), kernel, seed=11)


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_told(mistake):
    assert judged(*WRONG[mistake]).status == "NUMERIC_FAIL"


@pytest.mark.parametrize("way", RIGHT)
def test_a_right_kernel_is_accepted(way):
    found = judged(*RIGHT[way])
    assert found.status == "PASS", found.reason
