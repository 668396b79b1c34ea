"""Functions of users: the names of what they return, of whatever size."""

import sys

import numpy as np
import pytest

import nearpeak
from nearpeak.measure.outputs import output_names, outputs_of
from nearpeak.measure.user_functions import naming

NONZERO = nearpeak.case("nonzero", elements=9, found=4, dtype="fp32")
"""Its outputs are as long as the data say."""


def test_the_name_of_a_bare_result_is_found_without_computing_the_case():
    pytest.importorskip("torch")
    case = nearpeak.case("gemm", m=10**6, n=10**6, k=10**6, dtype="bf16")
    result = np.zeros(3)
    assert naming(case, lambda inputs, **_: result)({}) == {"y": result}


def test_without_pytorch_a_bare_array_has_its_name_too(monkeypatch):
    case = nearpeak.case("softmax", rows=4, columns=4, dtype="fp32")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert [output_names.__wrapped__(one) for one in (case, NONZERO)] == [("y",), ("y",)]


def test_outputs_that_the_data_decide_are_computed():
    torch = pytest.importorskip("torch")
    (found,) = outputs_of(NONZERO).values()
    assert (found.dtype, tuple(found.shape)) == (torch.int64, (4, 1))
