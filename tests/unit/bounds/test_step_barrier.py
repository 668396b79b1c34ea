"""A step's barrier holds only where no program can do without the second read."""

import pytest
import torch
from tests.brute_force.check import tiny
from tests.unit.bounds.evaluate import captured
from torch import nn

import nearpeak


class Net(nn.Module):
    """A function of one tensor of 8 elements."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def terms(function):
    """Terms of the bound on a chip that holds 4 elements."""
    workload = captured(Net(function).eval(), torch.randn(1, 8, dtype=torch.float32))
    return nearpeak.bound(workload, tiny(4, 0)).terms_s


@pytest.mark.parametrize(
    "function", [lambda x: torch.softmax(x, -1), lambda x: x / x.sum(), lambda x: x * torch.linalg.vector_norm(x)]
)
def test_a_normalised_tensor_that_is_returned_is_read_again(function):
    found = terms(function)
    assert found["barrier"] == found["dram"] + 4 * (8 - 4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.softmax(x, -1) @ torch.ones(8, 1),  # running sums, rescaled when a larger element comes
        lambda x: torch.softmax(x, -1)[:, :1],  # one element is kept until the sum is known
        lambda x: (x / x.sum()).square().sum(),  # the sum of squares, divided once
        lambda x: torch.maximum(x, x.max()),  # the maximum, whatever the element
        lambda x: torch.softmax(x, -1).sum(-1),
    ],
)
def test_where_running_figures_suffice_nothing_is_read_again(function):
    assert "barrier" not in terms(function)
