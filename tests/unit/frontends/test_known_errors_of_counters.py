"""What public counters of FLOP and bytes are known to get wrong; the true values are derived by hand beside each."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from nearpeak.bounds.step.compulsory_work import compulsory
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.work import NO_WORK
from nearpeak.errors import CaptureError
from nearpeak.frontends.torch.module_capture import capture_torch
from nearpeak.ops import work_of


def captured(build, *shapes, step="forward", training=None, dtypes=()):
    """The step of a module or function on fake tensors of these shapes, the first ones of these formats."""
    formats = [*dtypes, *[torch.float32] * len(shapes)]
    inputs = lambda: (tuple(torch.empty(s, dtype=d) for s, d in zip(shapes, formats, strict=False)), {})  # noqa: E731
    return capture_torch(build, inputs, CaptureOptions(step=step, training=training), name="m", optimizer="none")


def function(call):
    return lambda: call


def products(workload, phase="forward"):
    """Matrix FLOP of a phase, what is computed again included."""
    works = [work_of(c.case) * c.call_count for c in workload.calls if c.phase == phase and c.case is not None]
    counts = sum(works, start=NO_WORK).flop
    return sum(count for unit, count in counts.items() if unit.startswith("matrix."))


def step_bytes(workload):
    """Bytes that any program of the step must read and write."""
    works = [None if call.case is None else work_of(call.case) for call in workload.calls]
    work = compulsory(workload, works)
    return work.read_bytes, work.write_bytes


def kernels(workload):
    return [call.case.op for call in workload.calls]


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def test_attention_on_the_cpu_is_counted():
    # torch's counter has no formula for the CPU kernel: 0. Two products of 64 x 64 x 32 in each of 2 * 4 heads.
    assert products(captured(function(attend), *[(2, 4, 64, 32)] * 3)) == 2 * 2 * 2 * 4 * 64 * 64 * 32


def test_the_gradient_of_attention_takes_five_products_not_four():
    workload = captured(function(attend), *[(2, 4, 64, 32)] * 3, step="train")
    assert products(workload, "backward") * 2 == products(workload) * 5


def test_causal_attention_counts_half_of_the_square_and_the_diagonal():
    causal = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)  # noqa: E731
    assert products(captured(function(causal), *[(1, 1, 64, 32)] * 3)) == 4 * 32 * (64 * 65 // 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("shapes", [((24, 16), (4, 16, 32)), ((16, 24), (24, 32))])
def test_grouped_products_are_counted_in_every_format(dtype, shapes):
    grouped = lambda x, w: torch._grouped_mm(x, w, offs=torch.tensor([3, 10, 16, 24], dtype=torch.int32))  # noqa: E731
    found = captured(function(grouped), *shapes, dtypes=(dtype, dtype))
    assert products(found) == 2 * 24 * 16 * 32


def test_grouped_products_of_factors_that_do_not_fit_are_refused():
    grouped = lambda x, w: torch._grouped_mm(x, w, offs=torch.tensor([24], dtype=torch.int32))  # noqa: E731
    with pytest.raises(CaptureError, match="a has 16 columns and b 8 rows"):
        captured(function(grouped), (24, 16), (1, 8, 32), dtypes=(torch.float32, torch.float32))


def test_the_gradient_of_a_depthwise_convolution_knows_its_groups():
    workload = captured(lambda: nn.Conv2d(32, 32, 3, padding=1, groups=32), (2, 32, 14, 14), step="train")
    taps = (3 * 14 - 2) ** 2  # of each plane: 3 per position less the two that hang over
    assert products(workload) == 2 * 2 * 32 * taps
    assert products(workload, "backward") == products(workload)  # the gradient of the weight; the input has none


def test_a_layer_of_attention_counts_the_same_in_evaluation():
    layer = lambda: nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)  # noqa: E731
    linear = 2 * 2 * 16 * (4 * 64 * 64 + 2 * 64 * 128)
    for training in (False, True):
        workload = captured(layer, (2, 16, 64), training=training)
        assert products(workload) == linear + 4 * 2 * 4 * 16 * 16 * 16


@pytest.mark.parametrize(("size", "taps"), [(56, 166), (28, 82), (14, 40), (7, 19)])
def test_taps_on_padding_are_no_work(size, taps):
    # Of 3 x 3 taps, padding 1: 0.976, 0.953, 0.907 and 0.819 of the dense count.
    workload = captured(lambda: nn.Conv2d(4, 8, 3, padding=1, bias=False), (1, 4, size, size))
    assert taps == 3 * size - 2
    assert products(workload) == 2 * 4 * 8 * taps * taps


def test_groups_are_what_the_call_says_not_the_name():
    # In ConvTranspose2d the fifth argument is output_padding: a 4 there is no group.
    ungrouped = lambda: nn.ConvTranspose2d(8, 8, 3, 5, 0, 4, bias=False)  # noqa: E731
    assert products(captured(ungrouped, (1, 8, 6, 6))) == 2 * 8 * 8 * 9 * 36


@pytest.mark.parametrize(("build", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_recurrent_layers_are_one_operator_of_known_products(build, gates):
    workload = captured(lambda: build(24, 32, num_layers=2), (10, 3, 24))
    assert kernels(workload).count("recurrent") == 1
    assert products(workload) == 2 * 10 * 3 * gates * 32 * ((24 + 32) + (32 + 32))


def test_multi_head_attention_has_no_call_without_a_rule():
    workload = captured(lambda: nn.MultiheadAttention(64, 4, batch_first=True), *[(2, 16, 64)] * 3)
    assert all(call.case is not None for call in workload.calls)


def test_a_transposed_view_is_no_copy():
    workload = captured(function(lambda a, b: a.T @ b.T), (64, 32), (16, 64))
    assert kernels(workload) == ["gemm"]
    assert step_bytes(workload)[0] == 4 * (64 * 32 + 16 * 64)


def test_a_weight_behind_a_transposed_view_is_read():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.empty(48, 64))

        def forward(self, x):
            return x @ self.weight.T

    assert step_bytes(captured(Model, (8, 64)))[0] == 4 * (8 * 64 + 48 * 64)


def test_a_linear_layer_with_bias_is_one_kernel():
    workload = captured(lambda: nn.Linear(64, 32), (16, 64))
    assert kernels(workload) == ["gemm"]
    assert step_bytes(workload) == (4 * (16 * 64 + 64 * 32 + 32), 4 * 16 * 32)


def test_two_views_of_one_input_count_once():
    read, _ = step_bytes(captured(function(lambda x: x[:, 1:] - x[:, :-1]), (64, 128)))
    assert 4 * 64 * 127 <= read <= 4 * 64 * 128


def test_one_input_with_two_consumers_counts_once():
    assert step_bytes(captured(function(lambda x: (x.sin(), x.cos())), (64, 128)))[0] == 4 * 64 * 128


def test_a_weight_of_every_time_step_counts_once():
    cell = lambda: nn.RNNCell(16, 16, bias=False)  # noqa: E731

    class Unrolled(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = cell()

        def forward(self, x):
            state = x.new_zeros(4, 16)
            for step in x:
                state = self.cell(step, state)
            return state

    assert step_bytes(captured(Unrolled, (32, 4, 16)))[0] <= 4 * (32 * 4 * 16 + 2 * 16 * 16)


def test_truth_values_take_one_byte_and_long_indices_eight():
    masked = captured(function(lambda m, x: torch.where(m, x, 0.0)), (64, 64), (64, 64), dtypes=(torch.bool,))
    assert step_bytes(masked)[0] == (1 + 4) * 64 * 64
    picked = captured(function(F.nll_loss), (64, 10), (64,), dtypes=(torch.float32, torch.int64))
    assert step_bytes(picked)[0] >= (4 + 8) * 64


def test_results_that_nobody_uses_are_not_written():
    assert step_bytes(captured(function(lambda x: x.max(dim=1).values), (64, 128)))[1] == 4 * 64
    pooled = captured(lambda: nn.MaxPool2d(2), (1, 4, 8, 8))
    assert step_bytes(pooled)[1] == 4 * 4 * 4 * 4


def test_elements_that_no_window_meets_are_not_read():
    workload = captured(lambda: nn.AvgPool2d(11, stride=11), (1, 1, 2048, 2048))
    assert step_bytes(workload)[0] == 4 * 2046 * 2046


def test_single_precision_stays_single_precision():
    work = work_of(captured(lambda: nn.Linear(8, 8), (4, 8)).calls[0].case)
    assert set(work.flop) <= {"matrix.fp32", "vector.fp32"}


def test_special_functions_are_counted():
    assert work_of(captured(function(torch.exp), (64,)).calls[0].case).special_count == 64


def test_a_call_without_a_rule_is_named_not_free():
    library = torch.library.Library("counted", "FRAGMENT")
    library.define("mystery(Tensor x) -> Tensor")
    library.impl("mystery", lambda x: x.clone(), "CPU")
    torch.library.register_fake("counted::mystery", torch.empty_like, lib=library)
    workload = captured(function(torch.ops.counted.mystery), (4,))
    assert [(call.operator, call.case) for call in workload.calls] == [("counted.mystery.default", None)]


def test_training_changes_the_operators():
    layers = lambda: nn.Sequential(nn.BatchNorm1d(8), nn.Dropout(0.5))  # noqa: E731
    assert kernels(captured(layers, (4, 8), training=True)) != kernels(captured(layers, (4, 8), training=False))


def test_a_multiply_add_is_two_flop():
    assert products(captured(function(torch.mm), (2, 3), (3, 5))) == 2 * 2 * 3 * 5
