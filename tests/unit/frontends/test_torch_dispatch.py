"""Any PyTorch module in, a workload out: calls, storages, phases, places."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.errors import CaptureError, SpecError  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402
from nearpeak.frontends.torch.operator_schema import plan_of  # noqa: E402

PROBLEMS = Path(__file__).parents[2] / "fixtures" / "problems"


def captured(build, *shapes, optimizer="adamw", fused=True, **options):
    inputs = lambda: (tuple(torch.rand(*s) for s in shapes), {})  # noqa: E731
    return capture_torch(build, inputs, CaptureOptions(**options), name="model", optimizer=optimizer, fused=fused)


def names(workload, phase=None):
    return [call.operator for call in workload.calls if phase in (None, call.phase)]


def block():
    return nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))


def test_calls_are_kernels_in_order_and_views_are_only_counted():
    workload = captured(lambda: lambda x: torch.relu(x).view(6) + 1, (2, 3))
    assert names(workload) == ["aten.relu.default", "aten.add.Tensor"]
    assert workload.skipped == {"aten.view.default": 1}


def test_storages_are_named_and_sized():
    workload = captured(lambda: nn.Linear(4, 8, dtype=torch.bfloat16), (2, 4), dtype="bf16")
    found = {(b.name, b.kind): b.bytes for b in workload.buffers}
    assert found == {("weight", "weight"): 64, ("bias", "weight"): 16, ("input_0", "input"): 16, ("", "output"): 32}


def test_two_views_of_one_storage_share_its_number():
    call = captured(lambda: lambda x: x[:, 1:] - x[:, :-1], (4, 8)).calls[0]
    assert [use.buffer for use in call.reads] == [0, 0]
    assert [(use.start_bytes, use.stop_bytes) for use in call.reads] == [(4, 128), (0, 124)]


def test_an_in_place_call_writes_what_it_reads():
    workload = captured(block, (1, 3, 8, 8))
    relu = next(call for call in workload.calls if call.operator == "aten.relu_.default")
    assert relu.reads == relu.writes


def test_a_copy_into_a_slice_does_not_read_it():
    def overwrite(x, y):
        x[:1].copy_(y)
        return x

    copy = captured(lambda: overwrite, (2, 4), (1, 4)).calls[0]
    assert [use.buffer for use in copy.reads] == [1]
    assert [(use.buffer, use.bytes) for use in copy.writes] == [(0, 16)]


def test_training_batch_norm_writes_its_running_statistics_and_inference_does_not():
    norm = {}
    for training in (False, True):
        workload = captured(block, (1, 3, 8, 8), training=training)
        call = next(c for c in workload.calls if c.operator == "aten.native_batch_norm.default")
        norm[training] = {workload.buffers[use.buffer].name for use in call.writes}
    assert norm[True] - norm[False] == {"1.running_mean", "1.running_var"}


def test_a_training_step_has_three_phases_and_the_steady_optimizer():
    workload = captured(block, (2, 3, 8, 8), step="train")
    assert set(names(workload, "backward")) >= {"aten.convolution_backward.default", "aten.threshold_backward.default"}
    assert names(workload, "optimizer") == ["aten._foreach_add_.Scalar", "aten._fused_adamw_.default"]
    kinds = Counter(buffer.kind for buffer in workload.buffers)
    assert kinds["gradient"] == 3
    assert kinds["state"] == 9


@pytest.mark.parametrize(("optimizer", "fused", "last"), [
    ("sgd", True, "aten._fused_sgd_.default"), ("sgd", False, "aten._foreach_add_.List"), ("none", True, None),
])  # fmt: skip
def test_the_optimizer_can_be_chosen(optimizer, fused, last):
    workload = captured(block, (2, 3, 8, 8), step="train", optimizer=optimizer, fused=fused)
    assert (names(workload, "optimizer") or [None])[-1] == last


def test_parameters_without_a_fused_optimizer_are_updated_as_lists():
    class Filter(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(5, dtype=torch.complex64))

        def forward(self, x):
            return torch.fft.irfft(torch.fft.rfft(x) * self.weight)

    workload = captured(Filter, (4, 8), step="train")
    assert all(name.startswith("aten._foreach_") for name in names(workload, "optimizer"))


def test_a_checkpointed_block_runs_again_in_the_backward_pass():
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(self.layer, x, use_reentrant=False)

    workload = captured(Checkpointed, (2, 4), step="train")
    again = next(c for c in workload.calls if c.phase == "backward" and c.operator == "aten.addmm.default")
    assert again.module == "layer.0"


def test_every_call_has_a_module_and_a_line_and_gradients_belong_to_their_layer():
    workload = captured(block, (2, 3, 8, 8), step="train")
    places = {call.operator: call for call in workload.calls}
    assert places["aten.convolution_backward.default"].module == "0"
    assert places["aten.native_batch_norm_backward.default"].module == "1"
    assert places["aten.convolution_backward.default"].source.startswith("torch/nn/modules/conv.py:")
    assert all(call.module for call in workload.calls)
    assert not any(call.source[:1] == "/" for call in workload.calls)


def test_tied_weights_are_one_storage():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(16, 4)
            self.head = nn.Linear(4, 16, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids):
            return self.head(self.table(ids))

    workload = capture_torch(
        Tied, lambda: ((torch.zeros(2, dtype=torch.int64),), {}), CaptureOptions(step="train"), name="tied"
    )
    assert [b.name for b in workload.buffers if b.kind == "weight"] == ["table.weight"]
    assert workload.origin["parameters"] == "64"


def test_frozen_parameters_are_reported_and_get_no_gradient():
    def build():
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        model[0].requires_grad_(False)
        return model

    workload = captured(build, (2, 4), step="train")
    assert "20 of 30 parameters are frozen" in workload.assumptions
    assert {b.name for b in workload.buffers if b.kind == "gradient"} == {"1.weight", "1.bias"}


def test_an_existing_model_is_captured_without_touching_it():
    model, x = nn.Linear(4, 4), torch.rand(2, 4)
    before = {name: p.clone() for name, p in model.named_parameters()}
    workload = capture_torch(model, ((x,), {}), CaptureOptions(step="train"), name="real")
    assert [b.name for b in workload.buffers[:3]] == ["weight", "bias", "input_0"]
    assert type(model.weight) is nn.Parameter
    assert model.weight.grad is None
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_a_function_over_real_tensors_is_captured():
    table = torch.rand(8, 4)
    workload = capture_torch(lambda: lambda x: x @ table, ((torch.rand(2, 8),), {}), name="closure")
    assert [b.kind for b in workload.buffers] == ["input", "weight", "output"]


def test_a_cache_keeps_its_kind_before_and_after_the_step():
    class Cache:
        def __init__(self):
            self.keys = torch.rand(1, 2, 8, 4)

    cache = Cache()

    def attend(query):
        cache.keys = torch.cat([cache.keys, query], dim=2)
        return (query @ cache.keys.transpose(2, 3)).softmax(-1)

    def inputs():
        cache.keys = torch.rand(1, 2, 8, 4)
        return (torch.rand(1, 2, 1, 4),), {}, lambda: [(cache.keys, "kv_cache", "keys")]

    workload = capture_torch(lambda: attend, inputs, CaptureOptions(step="decode"), name="decode")
    assert [b.kind for b in workload.buffers].count("kv_cache") == 2


def test_generated_tensors_need_not_be_read_until_they_are_changed():
    def step(x):
        zeros, ones = torch.zeros(4), torch.ones(4)
        zeros.add_(x)
        return x * ones * zeros

    kinds = [b.kind for b in captured(lambda: step, (4,)).buffers]
    assert kinds == ["input", "activation", "constant", "activation", "output"]


def test_a_model_that_raises_is_one_line_with_stage_and_reason():
    def broken(_x):
        raise ValueError("no good\nsecond line")

    with pytest.raises(
        CaptureError, match=r"^model: forward raised ValueError: no good \(.*test_torch_dispatch.py:\d+\)$"
    ):
        captured(lambda: broken, (2,))


def test_unknown_options_are_refused():
    with pytest.raises(SpecError, match="step 'sideways'"):
        captured(block, (1, 3, 8, 8), step="sideways")
    with pytest.raises(SpecError, match="optimizer 'lion'"):
        captured(block, (1, 3, 8, 8), optimizer="lion")


def test_a_step_without_gradient_is_refused():
    with pytest.raises(CaptureError, match="no output has a gradient"):
        captured(lambda: lambda x: x.argmax(), (4,), step="train")


@pytest.mark.parametrize("step", ["forward", "train"])
def test_a_model_as_deep_as_python_runs_it_is_captured(step):
    """Recording adds frames to each module, and 1,000 of them were the end."""

    class Wrap(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return torch.relu(self.inner(x))

    model = torch.nn.Linear(4, 4)
    for _ in range(240):
        model = Wrap(model)
    assert len(captured(lambda: model, (2, 4), step=step).calls) >= 241


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_a_forward_pass_that_turns_gradients_off_itself_has_no_training_step(context):
    class Session(torch.nn.Linear):
        @context()
        def forward(self, x):
            return {}["scores"] if self.training else super().forward(x)

    with pytest.raises(CaptureError, match=r"model: its forward pass runs without gradients.*step 'forward'"):
        captured(lambda: Session(4, 4), (2, 4), step="train")
    assert captured(lambda: Session(4, 4), (2, 4)).calls


def test_a_forward_pass_that_leaves_gradients_on_has_a_training_step():
    class Session(torch.nn.Linear):
        @torch.inference_mode(False)
        def forward(self, x):
            return super().forward(x)

    assert names(captured(lambda: Session(4, 4), (2, 4), step="train"), "backward")


def test_a_model_without_parameters_is_differentiated_by_its_inputs():
    workload = captured(lambda: torch.relu, (4,), step="train")
    assert "aten.threshold_backward.default" in names(workload, "backward")
    assert "gradients are those of its inputs" in workload.assumptions[0]


def test_the_calls_are_those_of_a_real_execution():
    def build():
        return nn.Sequential(block(), nn.MaxPool2d(2), nn.Flatten(), nn.LayerNorm(72), nn.Linear(72, 10), nn.GELU())

    seen = []

    class Spy(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if plan_of(func).kind == "call":
                seen.append(str(func))
            return func(*args, **(kwargs or {}))

    model, x = build(), torch.rand(2, 3, 8, 8)
    with Spy():
        model(x).mean().backward()
    found = captured(build, (2, 3, 8, 8), step="train")
    assert names(found, "forward") + names(found, "backward") == seen


@pytest.mark.slow
def test_two_processes_capture_the_same_bytes():
    code = (
        "from pathlib import Path; from hashlib import sha256\n"
        "from nearpeak.frontends.torch.problem_file import capture_problem\n"
        "from nearpeak.core.work.capture_options import CaptureOptions\n"
        f"w = capture_problem(Path({str(PROBLEMS / 'transformer_block.py')!r}), CaptureOptions(step='train'))\n"
        "print(sha256(repr(w).encode()).hexdigest())"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1")
    }
    assert len(runs) == 1
