"""A product of a matrix with its own transpose takes half of the products, and no other product does."""

import pytest
import torch
from tests.unit.bounds.evaluate import captured
from torch import nn

from nearpeak.bounds.step.compulsory_work import compulsory
from nearpeak.ops import work_of


class Net(nn.Module):
    """A function of one tensor."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def products(function, *shape):
    """Multiply-adds of the step."""
    workload = captured(Net(function).eval(), torch.randn(*shape))
    step = compulsory(workload, [work_of(call.case) for call in workload.calls])
    return step.flop["matrix.fp32"] // 2


@pytest.mark.parametrize(
    ("function", "shape", "wanted"),
    [
        (lambda x: x @ x.T, (4, 8), 8 * 4 * 5 // 2),
        (lambda x: x.T @ x, (4, 8), 4 * 8 * 9 // 2),
        (lambda x: x @ x.transpose(1, 2), (2, 4, 8), 2 * 8 * 4 * 5 // 2),
        (lambda x: x @ x, (6, 6), 6**3),
        (lambda x: x[:4] @ x[1:].T, (5, 8), 8 * 4 * 4),
        (lambda x: x @ torch.relu(x).T, (4, 8), 8 * 4 * 4),
    ],
)
def test_each_pair_of_rows_of_one_matrix_is_multiplied_once(function, shape, wanted):
    assert products(function, *shape) == wanted
