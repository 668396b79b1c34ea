"""Control flow written as operators: bodies recorded call by call, unknown conditions counted as assumptions."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch._higher_order_ops import scan, while_loop  # noqa: E402
from torch._higher_order_ops.associative_scan import associative_scan_op  # noqa: E402
from torch._higher_order_ops.map import map as map_rows  # noqa: E402

import nearpeak  # noqa: E402

X = torch.ones(3, 4)
Q = torch.ones(1, 2, 128, 16)


def captured(function, *, step="forward", inputs=(X,)):
    return nearpeak.capture(function, inputs=inputs, step=step)


def counted(workload, operator, phase="forward"):
    return sum(call.operator == operator and call.phase == phase for call in workload.calls)


def test_a_condition_on_a_shape_takes_its_branch():
    def choose(x):
        return torch.cond(x.shape[0] > 5, torch.sin, torch.cos, (x,))

    workload = captured(choose)
    assert [call.operator for call in workload.calls] == ["aten.cos.default"]
    assert workload.assumptions == ()


def test_a_condition_on_data_takes_the_first_branch_and_says_so():
    def choose(x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    workload = captured(choose, step="train")
    assert counted(workload, "aten.sin.default") == 1
    assert any("condition of a cond = True" in line for line in workload.assumptions)


def test_a_loop_with_a_known_count_runs_that_often_forward_and_backward():
    class Loop(nn.Linear):
        def forward(self, x):
            start = (torch.tensor(0), x)
            return while_loop(lambda i, _x: i < 3, lambda i, x: (i + 1, nn.Linear.forward(self, x)), start)[1]

    workload = captured(Loop(4, 4), step="train")
    assert counted(workload, "aten.addmm.default") == 3
    assert counted(workload, "aten.mm.default", "backward") == 5  # the first input needs no gradient
    assert not any("while_loop" in line for line in workload.assumptions)


def test_a_loop_until_the_data_says_so_counts_its_body_once_and_says_so():
    workload = captured(lambda x: while_loop(lambda x: x.sum() < 10, lambda x: (x * 2,), (x,)))
    assert counted(workload, "aten.mul.Tensor") == 1
    assert any("trips of a while_loop = 1" in line for line in workload.assumptions)


def test_a_scan_runs_its_body_once_per_row():
    def sums(x):
        return scan(lambda carry, row: (carry + row, (carry * row).clone()), torch.zeros(4), x)

    workload = captured(sums)
    assert (counted(workload, "aten.add.Tensor"), counted(workload, "aten.mul.Tensor")) == (3, 3)
    assert [b.bytes for b in workload.buffers if b.kind == "output"] == [16, 48]


def test_a_map_runs_its_body_once_per_row():
    workload = captured(lambda x: map_rows(lambda row, y: row * y, x, torch.ones(4)))
    assert counted(workload, "aten.mul.Tensor") == 3
    assert [b.bytes for b in workload.buffers if b.kind == "output"] == [48]


def test_an_associative_scan_needs_one_combination_fewer_than_rows():
    workload = captured(lambda x: associative_scan_op(lambda a, b: (a * b,), (x,), ()))
    product = next(call for call in workload.calls if call.operator == "aten.mul.Tensor")
    assert max(use.bytes for use in product.writes) == 2 * 4 * 4
