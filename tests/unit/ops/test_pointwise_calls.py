"""What PyTorch dispatches for element-wise work, movement, reductions and losses is matched to the right case."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.frontends.torch.module_capture import capture_torch
from nearpeak.ops import work_of

X, MASK, INDEX = (4, 8), "bool", "index"


def cases(function, *shapes):
    """The cases of `function` on fake tensors: a shape, or the words above."""

    def tensors():
        made = {MASK: lambda: torch.zeros(4, 8, dtype=torch.bool), INDEX: lambda: torch.zeros(3, dtype=torch.int64)}
        return tuple(made[s]() if isinstance(s, str) else torch.zeros(s) for s in shapes), {}

    workload = capture_torch(lambda: function, tensors, name="test")
    return [call for call in workload.calls if call.case is not None]


FORWARD = [
    (lambda x, y: x + y, (X, X), "elementwise", {"function": "add", "elements": 32, "a": 32, "b": 32}),
    (lambda x, y: x * y, (X, (8,)), "elementwise", {"function": "mul", "b": 8}),
    (lambda x, y: x * y, (X, (4, 1)), "elementwise", {"function": "mul", "b": 4}),
    (lambda x: x * 2, (X,), "elementwise", {"function": "mul", "b": 0}),
    (lambda x: x * x, (X,), "elementwise", {"function": "mul", "a": 32, "b": 0}),
    (lambda x: 1 - x, (X,), "elementwise", {"function": "rsub", "a": 32}),
    (lambda x: x.pow(2), (X,), "elementwise", {"function": "square"}),
    (lambda x: x.pow(2.5), (X,), "elementwise", {"function": "pow"}),
    (lambda x: F.gelu(x, approximate="tanh"), (X,), "elementwise", {"function": "gelu_tanh"}),
    (lambda x: x.clamp(min=0), (X,), "elementwise", {"function": "maximum"}),
    (lambda x: x.relu_(), (X,), "elementwise", {"function": "relu"}),
    (F.glu, (X,), "elementwise", {"function": "glu", "elements": 16, "a": 16, "b": 16}),
    (lambda x: x > 0, (X,), "elementwise", {"function": "gt", "dtype": "fp32", "out_dtype": "bool"}),
    (lambda m, x: torch.where(m, x, 0.0), (MASK, X), "elementwise", {"function": "where", "a_dtype": "bool", "c": 1}),
    (lambda x, m: x.masked_fill(m, 0.0), (X, MASK), "elementwise", {"function": "masked_fill", "b_dtype": "bool"}),
    (lambda x: x.half(), (X,), "cast", {"elements": 32, "dtype": "fp32", "out_dtype": "fp16"}),
    (lambda x: x.t().contiguous(), (X,), "copy", {"elements": 32, "read": 32}),
    (lambda x: x[:1].expand(4, 8).contiguous(), (X,), "copy", {"elements": 32, "read": 8}),
    (lambda x, y: torch.cat([x, y]), (X, X), "copy", {"elements": 64, "read": 64}),
    (lambda x, y: torch.cat([x, y]), (X, (0,)), "copy", {"elements": 32, "read": 32}),
    (lambda x: F.pad(x, (1, 1)), (X,), "copy", {"elements": 40, "read": 32}),
    (lambda x: F.pad(x, (-1, -1)), (X,), "copy", {"elements": 24, "read": 24}),
    (lambda x: x.tril(), ((5, 5),), "copy", {"elements": 25, "read": 15}),
    (lambda x: x.triu(1), (X,), "copy", {"elements": 32, "read": 22}),
    (torch.zeros_like, (X,), "fill", {"elements": 32}),
    (lambda x: torch.empty_like(x).normal_(), (X,), "random", {"function": "normal", "read": 0}),
    (torch.bernoulli, (X,), "random", {"function": "bernoulli", "read": 32}),
    (lambda x: F.dropout(x, 0.1, True), (X,), "dropout", {"elements": 32}),
    (lambda x: x.sum(), (X,), "reduce", {"outputs": 1, "reduced": 32, "function": "sum"}),
    (lambda x: x.mean((0,), keepdim=True), (X,), "reduce", {"outputs": 8, "reduced": 4, "function": "mean"}),
    (lambda x: x[:1].expand(4, 8).sum(), (X,), "reduce", {"reduced": 32, "read": 8}),
    (lambda x: x.max(-1), (X,), "reduce", {"outputs": 4, "function": "max_index"}),
    (lambda x: x.norm(), (X,), "reduce", {"function": "norm"}),
    (lambda x: x.norm(p=1), (X,), "reduce", {"function": "norm_1"}),
    (lambda x: x.cumsum(0), (X,), "scan", {"rows": 8, "length": 4}),
    (lambda x: x.softmax(0), (X,), "softmax", {"rows": 8, "columns": 4, "log": False}),
    (lambda x: x.log_softmax(-1, dtype=torch.float64), (X,), "softmax", {"columns": 8, "log": True}),
    (lambda x: x.topk(2), (X,), "topk", {"rows": 4, "columns": 8, "k": 2}),
    (lambda x: x.sort(), (X,), "topk", {"k": 8}),
    (lambda x, i: F.embedding(i, x), (X, INDEX), "embedding", {"tokens": 3, "dim": 8, "vocab": 4, "touched_rows": 1}),
    (lambda x, i: x[i], (X, INDEX), "gather", {"rows": 3, "width": 8, "touched_rows": 1}),
    (lambda x, i: x[:, i], (X, INDEX), "gather", {"rows": 3, "width": 4}),
    (lambda x, i: x.gather(1, i.view(3, 1)), (X, INDEX), "gather", {"rows": 3, "width": 1, "touched_rows": 3}),
    (lambda x, i, y: x.index_copy_(0, i, y), (X, INDEX, (3, 8)), "scatter", {"touched_rows": 3, "in_place": True}),
    (lambda x, i, y: x.index_add(0, i, y), (X, INDEX, (3, 8)), "scatter", {"accumulate": True, "in_place": False}),
    (F.mse_loss, (X, X), "pointwise_loss", {"function": "mse", "reduction": "mean"}),
    (
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        ((2, 3, 4, 5),),
        "interpolate",
        {"planes": 6, "h": 4, "ow": 10, "mode": "linear"},
    ),
    (lambda x: torch._foreach_mul([x, x.t(), x[:1]], 2.0), (X,), "elementwise", {"function": "mul", "elements": 72}),
]  # fmt: skip


@pytest.mark.parametrize(("function", "shapes", "op", "wanted"), FORWARD)
def test_forward_calls_are_matched(function, shapes, op, wanted):
    record = next(call.case.record() for call in cases(function, *shapes) if call.case.op == op)
    assert {name: record[name] for name in wanted} == wanted


BACKWARD = [
    (F.relu, "elementwise", {"function": "relu", "elements": 32}),
    (F.silu, "elementwise", {"function": "silu"}),
    (F.gelu, "elementwise", {"function": "gelu"}),
    (lambda x: x.tanh(), "elementwise", {"function": "tanh"}),
    (F.glu, "elementwise", {"function": "glu", "elements": 16, "a": 16, "b": 16}),
    (lambda x: x.softmax(-1), "softmax", {"rows": 4, "columns": 8, "log": False}),
    (lambda x: x.log_softmax(-1), "softmax", {"log": True}),
    (lambda x: F.dropout(x, 0.1, True), "dropout", {"elements": 32}),
    (lambda x: F.cross_entropy(x, torch.zeros(4, dtype=torch.int64)), "nll_loss", {"rows": 4, "classes": 8}),
    (lambda x: F.mse_loss(x, torch.zeros(4, 8)), "pointwise_loss", {"function": "mse"}),
    (lambda x: F.embedding(torch.zeros(3, dtype=torch.int64), x), "embedding", {"tokens": 3, "dim": 8, "vocab": 4}),
]  # fmt: skip


class Weighted(torch.nn.Module):
    """A function of one weight."""

    def __init__(self, function):
        super().__init__()
        self.weight, self.function = torch.nn.Parameter(torch.zeros(4, 8)), function

    def forward(self):
        return self.function(self.weight)


def trained(function, **options):
    train = CaptureOptions(step="train")
    return capture_torch(lambda: Weighted(function), lambda: ((), {}), train, name="test", **options).calls


@pytest.mark.parametrize(("function", "op", "wanted"), BACKWARD)
def test_gradients_are_matched(function, op, wanted):
    found = [call.case.record() for call in trained(function) if call.case is not None and call.case.op == op]
    backward = [record for record in found if record["phase"] == "backward"]
    assert len(backward) == 1
    assert {name: backward[0][name] for name in wanted} == wanted


@pytest.mark.parametrize(("optimizer", "op"), [("adamw", "adamw"), ("sgd", "sgd")])
def test_a_fused_optimizer_is_one_case_over_all_parameters(optimizer, op):
    steps = [call for call in trained(torch.sin, optimizer=optimizer) if call.case is not None and call.case.op == op]
    assert [call.case.record()["parameters"] for call in steps] == [32]


def launches(calls):
    return sum(call.call_count * work_of(call.case).launch_count for call in calls)


def test_a_call_on_a_list_of_tensors_is_one_kernel_over_all_their_elements():
    (call,) = cases(lambda x, y: torch._foreach_mul([x, x.t(), y], [y, y.t(), x[:, :1]]), X, X)
    record = call.case.record()
    assert launches([call]) == 1
    assert (record["elements"], record["a"], record["b"]) == (96, 96, 32 + 32 + 4)


def test_norms_of_a_list_of_tensors_are_one_kernel_with_exact_bytes():
    (call,) = cases(lambda x, y: torch._foreach_norm([x, y]), X, (5,))
    work = work_of(call.case)
    assert (launches([call]), work.read_bytes, work.write_bytes) == (1, 4 * (32 + 5), 4 * 2)
    assert work.flop == {"vector.fp32": 2 * (2 * 18 - 1)}


def test_copying_lists_is_one_kernel_per_combination_of_formats():
    calls = cases(lambda x, y: torch._foreach_copy_([x, y, y.half()], [y, x, x]), X, X)
    listed = [call for call in calls if "_foreach_copy_" in call.operator]
    assert [(call.case.op, call.case.record()["elements"]) for call in listed] == [("copy", 64), ("cast", 32)]


def test_unknown_indices_touch_one_row_in_the_case_and_in_the_storage_alike():
    (call,) = cases(lambda x, i: F.embedding(i, x), X, INDEX)
    assert sorted(use.bytes for use in call.reads) == [3 * 8, 8 * 4]


def test_copies_of_slices_read_the_rows_that_they_keep():
    rows = ((torch.ops.aten.slice_copy.Tensor, (0, 0, 1)), (torch.ops.aten.select_copy.int, (0, 2)))
    for operator, options in rows:
        (call,) = cases(lambda x, run=operator, given=options: run(x, *given), X)
        assert [use.bytes for use in call.reads] == [8 * 4]
        assert call.case.record()["read"] == 8


def test_a_strided_copy_reads_what_its_view_can_meet():
    (call,) = cases(lambda x: torch.as_strided_copy(x, (3, 4), (0, 2)), X)
    assert [use.bytes for use in call.reads] == [4 * 4]


def test_class_weights_of_a_loss_are_read_for_one_class_at_least():
    index = torch.zeros(4, dtype=torch.int64)
    calls = cases(lambda x, w: F.nll_loss(x, index, weight=w), X, (8,))
    (call,) = [call for call in calls if call.case.op == "nll_loss"]
    assert sorted(use.bytes for use in call.reads) == [1 * 4, 4 * 4, 4 * 8]
