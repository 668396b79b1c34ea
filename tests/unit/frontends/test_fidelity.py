"""A capture on tensors without memory sees what a real run dispatches, and says where each call comes from."""

import random

import pytest
from tests.sampling import sampled

torch = pytest.importorskip("torch")

from benchmarks._real_run import differences, fake_run  # noqa: E402
from benchmarks._small_models import Small, architectures, own_models  # noqa: E402

from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402

DRAW = random.Random(20)
OWN, ARCHITECTURES = own_models(), architectures()
SAMPLE = [*DRAW.sample(OWN, 5), *DRAW.sample(ARCHITECTURES, 2)]
REST = [
    *(model for model in OWN if model not in SAMPLE),
    *DRAW.sample([model for model in ARCHITECTURES if model not in SAMPLE], 6),
]
"""All that are written for this, and a sample of the architectures, which `make bench` compares whole."""


def same(model):
    if model in ARCHITECTURES:
        pytest.importorskip("transformers")
    assert differences(model) == {}
    workload = capture_torch(model.build, model.inputs, CaptureOptions(step="train"), name=model.name)
    calls = [call for call in workload.calls if call.phase in ("forward", "backward")]
    assert [call for call in calls if not (call.module and call.source)] == []


@pytest.mark.parametrize("model", SAMPLE, ids=lambda model: model.name)
def test_a_captured_training_step_makes_the_calls_of_a_real_one_each_with_its_place(model):
    same(model)


@pytest.mark.slow
@pytest.mark.parametrize("model", sampled(REST, 10), ids=lambda model: model.name)
def test_more_small_models_are_captured_as_they_run(model):
    same(model)


def test_there_are_enough_models_of_enough_kinds():
    assert len(OWN) + len(ARCHITECTURES) >= 30
    assert len({model.name for model in (*OWN, *ARCHITECTURES)}) == len(OWN) + len(ARCHITECTURES)


def test_a_model_that_decides_by_its_values_is_told_apart_from_its_capture():
    class ByValue(torch.nn.Linear):
        def forward(self, x):
            return torch.sin(super().forward(x)) if x.sum() > 0 else super().forward(x)

    above = Small("by_value", lambda: ByValue(4, 4), lambda: ((torch.rand(2, 4) + 1,), {}))
    below = Small("by_value", lambda: ByValue(4, 4), lambda: ((torch.rand(2, 4) - 1,), {}))
    assert differences(above)
    assert differences(below) == {}  # a condition on data is taken for false


def test_shapes_count_in_the_comparison():
    def linear(rows):
        return Small("linear", lambda: torch.nn.Linear(4, 4), lambda: ((torch.ones(rows, 4),), {}))

    assert fake_run(linear(2)) != fake_run(linear(3))


def test_the_real_attention_has_the_layout_that_the_whole_operator_states():
    heads = torch.rand(2, 16, 4, 8, requires_grad=True).transpose(1, 2)
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out = flash(heads, heads, heads)[0]
    assert out.transpose(1, 2).is_contiguous()
