"""Values on tensors without memory: known ones are computed, guesses are counted, the rest is refused."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

import nearpeak  # noqa: E402
from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.errors import CaptureError  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402


def captured(forward, *shapes, **options):
    return capture_torch(
        lambda: forward, lambda: (tuple(torch.rand(*s) for s in shapes), {}), CaptureOptions(**options), name="m"
    )


def width(workload):
    return next(b.bytes for b in workload.buffers if b.kind == "output")


def test_constructors_may_read_numbers_and_ask_questions():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.sizes = [int(size.item()) for size in torch.linspace(2, 6, 3)]
            self.widths = torch.arange(3).tolist()
            weight = torch.rand(4, 4)
            while (weight > 2).any():
                weight = weight / 2
            nn.init.trunc_normal_(weight)

        def forward(self, x):
            return x.new_ones(self.sizes[2] + self.widths[2]) * x

    workload = capture_torch(Model, lambda: ((torch.rand(1),), {}), name="m")
    assert width(workload) == 8 * 4
    assert workload.assumptions == ()


def test_positions_in_forward_are_known():
    workload = captured(lambda x: x[: int(torch.arange(10).max().item()) + 1] * 2, (100,))
    assert width(workload) == 40
    assert workload.assumptions == ()


def test_small_whole_inputs_keep_their_values():
    lengths = torch.tensor([3, 4])
    workload = capture_torch(lambda: lambda n, x: x[: int(n.sum())] * 2, ((lengths, torch.rand(100)), {}), name="m")
    assert width(workload) == 28


def test_known_values_are_not_computed_into_large_results():
    def forward(x):
        positions = torch.arange(60_000)
        return (positions[:, None] <= positions).float() * x

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        captured(forward, (1,))
    events = seen.profiler.kineto_results.events()
    assert max(event.nbytes() for event in events if event.name() == "[memory]") <= 1_000_000


def test_whole_operators_take_inputs_whose_values_are_known():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("q", torch.ones(1, 2, 4, 8))
            self.rnn = nn.LSTM(8, 8)

        def forward(self, x):
            attended = functional.scaled_dot_product_attention(self.q, self.q, self.q)
            return attended + functional.rms_norm(self.q, (8,)) + self.rnn(self.q[0])[0] + x

    workload = capture_torch(Model, lambda: ((torch.rand(1),), {}), name="m")
    assert {"nearpeak.attention.default", "nearpeak.lstm.default"} <= {call.operator for call in workload.calls}


def test_a_guess_is_counted_and_stated():
    def forward(x):
        assert torch.isfinite(x).all()
        return x * 2 if x.sum().item() > 0 else x

    workload = captured(forward, (4,))
    assert workload.assumptions == (
        "1 data-dependent value assumed: all = True", "1 data-dependent value assumed: float = 0.5",
    )  # fmt: skip


def test_a_shape_that_depends_on_values_is_refused_in_one_line():
    with pytest.raises(CaptureError, match=r"^m: forward decides something from the values of a tensor \(aten.nonzero"):
        captured(lambda x: x[x.nonzero()[:, 0]] * 2, (4,))


def test_devices_that_are_not_there_do_not_matter():
    model = nn.Linear(4, 4)
    workload = capture_torch(
        lambda: lambda x: model.cuda()(x.to("cuda")) + torch.ones(4, device="cuda"),
        lambda: ((torch.rand(2, 4),), {}), name="m",
    )  # fmt: skip
    assert "aten.addmm.default" in [call.operator for call in workload.calls]


def test_compiled_parts_run_as_written():
    workload = captured(_compiled, (4,))
    assert [call.operator for call in workload.calls] == ["aten.relu.default"]


def _compiled(x):
    return torch.compile(torch.relu)(x)


@pytest.mark.parametrize(
    ("step", "guess"),
    [
        (lambda x: x[x > 0.5] * 2, "index = everything"),
        (torch.nonzero, "nonzero = everything"),
        (lambda x: torch.unique(x) + 1, "_unique2 = all different"),
        (lambda x: torch.unique(x, dim=0), "unique_dim = all different"),
        (lambda x: torch.masked_select(x, x > 0), "masked_select = everything"),
    ],
)
def test_extents_that_are_data_are_refused_or_guessed_and_counted(step, guess):
    x = torch.rand(6, 4)
    with pytest.raises(CaptureError, match="guess_sizes"):
        nearpeak.capture(step, inputs=(x,))
    workload = nearpeak.capture(step, inputs=(x,), guess_sizes=True)
    assert workload.assumptions == (f"1 data-dependent value assumed: {guess}",)
    assert workload.uncovered_counts() == {}


def test_a_guessed_extent_leaves_the_rule_of_the_operator_itself_at_its_lower_end():
    (call,) = nearpeak.capture(torch.nonzero, inputs=(torch.rand(6, 4),), guess_sizes=True).calls
    assert call.case.record()["found"] == 0


@pytest.mark.parametrize("dtype", ["uint3", "bits8"])
def test_formats_without_arithmetic_leave_their_calls_uncovered_by_name(dtype):
    if not hasattr(torch, dtype):
        pytest.skip(f"this PyTorch has no {dtype}")
    packed = torch.zeros(4, 4, dtype=torch.uint8).view(getattr(torch, dtype))
    workload = nearpeak.capture(lambda x: x.clone(), inputs=(packed,))
    assert workload.uncovered_counts() == {"aten.clone.default": 1}


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
def test_sparse_tensors_are_refused_in_one_line(layout):
    dense = torch.eye(4)
    with pytest.raises(CaptureError, match=r"sparse tensor.*indices and values apart"):
        nearpeak.capture(lambda x: getattr(x, layout)() @ x, inputs=(dense,))
    with pytest.raises(CaptureError, match="an input or weight is a sparse tensor"):
        nearpeak.capture(lambda s, x: s @ x, inputs=(getattr(dense, layout)(), dense))


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused_in_one_line(layout):
    def rows(x):
        return torch.nested.nested_tensor([x, x[:3]], layout=layout).sin()

    with pytest.raises(CaptureError, match=r"nested.*torch\.nn\.attention\.varlen"):
        nearpeak.capture(rows, inputs=(torch.empty(5, 4),))


@pytest.mark.parametrize(
    "options", [{}, {"length": 500}, {"win_length": 32}, {"onesided": False}, {"normalized": True}]
)
def test_an_inverse_short_time_transform_is_pytorchs_own(options):
    from nearpeak.frontends.torch.inverse_stft import istft

    window = torch.hann_window(options.get("win_length", 64)) + 0.1
    sided = {name: value for name, value in options.items() if name != "length"}
    spectrum = torch.stft(torch.randn(2, 512), 64, window=window, return_complex=True, **sided)
    expected = torch.istft(spectrum, 64, window=window, **options)
    assert torch.allclose(istft(spectrum, 64, window=window, **options), expected, atol=1e-5)


def test_an_inverse_short_time_transform_is_captured_forward_and_backward():
    def back(x):
        return torch.istft(torch.complex(x, x), 64, window=torch.ones(64))

    workload = nearpeak.capture(back, inputs=(torch.empty(2, 33, 33),), step="train")
    assert not workload.uncovered_counts()
    assert {call.phase for call in workload.calls if call.case is not None and call.case.op == "fft"} >= {
        "forward",
        "backward",
    }


def test_known_values_leave_for_numpy_and_text_and_an_empty_row_can_be_filled():
    def forward(x):
        row = torch.empty(3, dtype=torch.int64)
        row[0] = 2
        row[1:] = torch.arange(1, 3)
        widths = {"width 2": int(row.numpy().sum())}
        return x.new_ones(widths[f"width {row[0]}"]) * x

    workload = captured(forward, (1,), guess_sizes=True)
    assert width(workload) == 5 * 4
    assert workload.assumptions == ()


def test_a_question_whether_numbers_are_sound_is_answered_with_yes():
    def forward(x):
        assert x.isnan().sum() == 0
        torch._check_tensor_all(x > 0)
        return x * 2

    workload = captured(forward, (4,))
    assert [call.case.op for call in workload.calls if not call.case.op.startswith("compare")][-1] == "elementwise"
    assert not workload.uncovered_counts()
    assert any("all = True" in sentence for sentence in workload.assumptions)


def test_known_rows_picked_by_unknown_positions_are_not_known():
    import torch

    seen = []

    def picks(positions):
        rows = torch.stack([torch.zeros(144, dtype=torch.int64), torch.arange(144)], -1)
        picked = rows[positions]
        seen.extend([rows.constant is not None, picked.constant is None, torch.empty_like(rows).constant is None])
        return picked * 2

    capture_torch(lambda: picks, lambda: ((torch.empty(144, dtype=torch.int64),), {}), name="picks")
    assert seen == [True, True, True]


def test_lists_of_known_positions_are_indices():
    import torch

    def marks(x):
        rows, columns = zip(*torch.tensor([[0, 1], [1, 2], [2, 3]]), strict=True)
        x[rows, columns] = 1.0
        return x

    workload = capture_torch(lambda: marks, lambda: ((torch.zeros(4, 4),), {}), name="marks")
    assert not workload.uncovered_counts()


def test_tokens_that_take_the_place_of_placeholders_leave_the_others_known():
    import torch

    def lengths(tokens, codes):
        mask = tokens == 7
        merged = tokens.masked_scatter(mask, codes)
        return codes.new_zeros(int((merged == 9).sum()) + 1, 5) + 1

    inputs = lambda: ((torch.tensor([7, 7, 9, 9, 9]), torch.empty(2, dtype=torch.int64)), {})  # noqa: E731
    workload = capture_torch(lambda: lengths, inputs, CaptureOptions(guess_sizes=True), name="lengths")
    assert any("placeholders kept" in sentence for sentence in workload.assumptions)


def test_repeats_that_data_decide_are_as_many_as_their_sum():
    import torch

    def lengthened(x, scores):
        repeats = scores.round().long()
        out = torch.zeros(int(repeats.sum()), 3)
        out[:] = torch.repeat_interleave(x, repeats, dim=0)
        return out

    inputs = lambda: ((torch.empty(6, 3), torch.empty(6)), {})  # noqa: E731
    workload = capture_torch(lambda: lengthened, inputs, CaptureOptions(guess_sizes=True), name="lengthened")
    assert any("sum = 6" in sentence for sentence in workload.assumptions)


def test_a_mask_beside_its_negation_picks_half_of_all():
    def forward(x):
        mask = x > 0
        return torch.cat([x, x])[torch.cat([mask, ~mask])] * 2

    assert width(captured(forward, (6,), guess_sizes=True)) == 6 * 4
