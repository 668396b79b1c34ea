"""Attention, recurrent layers, dropout and RMS norm stay one call, whatever their variant."""

from collections import Counter

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import nearpeak  # noqa: E402
from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.errors import CaptureError  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402

Q, K8, V64 = (2, 8, 16, 32), (2, 2, 16, 32), (2, 8, 16, 64)


def attention(*shapes, mask=None, step="train", **options):
    def run(*tensors):
        return functional.scaled_dot_product_attention(*tensors[:3], *tensors[3:], **options)

    shapes = shapes if mask is None else (*shapes, mask)
    return capture_torch(
        lambda: run, lambda: (tuple(torch.rand(*s) for s in shapes), {}), CaptureOptions(step=step), name="attention"
    )


def counts(workload):
    return Counter(call.operator for call in workload.calls if call.operator.startswith("nearpeak."))


@pytest.mark.parametrize(("shapes", "mask", "options"), [
    ((Q, Q, Q), None, {}),
    ((Q, Q, Q), None, {"is_causal": True}),
    ((Q, Q, Q), None, {"dropout_p": 0.1}),
    ((Q, K8, K8), None, {"enable_gqa": True}),
    ((Q, Q, V64), None, {"scale": 0.5}),
    ((Q, Q, Q), (16, 16), {}),
    ((Q, Q, Q), (2, 1, 16, 16), {}),
    ((Q[1:], Q[1:], Q[1:]), (8, 16, 16), {}),
    ((Q[2:], Q[2:], Q[2:]), None, {}),
    (((3, *Q), (3, *Q), (3, *Q)), None, {}),
])  # fmt: skip
def test_every_variant_of_attention_is_one_call_forward_and_one_backward(shapes, mask, options):
    workload = attention(*shapes, mask=mask, **options)
    assert counts(workload) == {"nearpeak.attention.default": 1, "nearpeak.attention_backward.default": 1}
    out = max(b.bytes for b in workload.buffers if b.kind == "activation")
    assert out >= 4 * torch.Size(shapes[0][:-1]).numel() * shapes[2][-1]


def test_attention_under_inference_mode_is_whole_too():
    @torch.inference_mode()
    def run(q):
        return functional.scaled_dot_product_attention(q, q, q)

    workload = capture_torch(lambda: run, lambda: ((torch.rand(*Q),), {}), name="inference")
    assert [call.operator for call in workload.calls] == ["nearpeak.attention.default"]


def test_attention_over_shapes_that_do_not_fit_is_refused():
    with pytest.raises(CaptureError, match="do not fit together"):
        attention(Q, (2, 8, 16, 31), Q)
    with pytest.raises(CaptureError, match="8 query heads over 3"):
        attention(Q, (2, 3, 16, 32), (2, 3, 16, 32))


def test_the_mask_gets_a_gradient_only_when_it_wants_one():
    class Biased(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.rand(16, 16))

        def forward(self, q):
            return functional.scaled_dot_product_attention(q, q, q, attn_mask=self.bias)

    workload = capture_torch(Biased, lambda: ((torch.rand(*Q),), {}), CaptureOptions(step="train"), name="biased")
    back = next(call for call in workload.calls if call.operator == "nearpeak.attention_backward.default")
    assert len(back.writes) == 4
    assert "bias" in {b.name for b in workload.buffers if b.kind == "gradient"}


@pytest.mark.parametrize(("layer", "name"), [
    (lambda: nn.LSTM(8, 16, 2, bidirectional=True), "lstm"), (lambda: nn.GRU(8, 16, batch_first=True), "gru"),
    (lambda: nn.RNN(8, 16), "rnn_tanh"), (lambda: nn.LSTM(8, 16, proj_size=4), "lstm"),
])  # fmt: skip
def test_recurrent_layers_are_not_unrolled(layer, name):
    workload = capture_torch(
        lambda: _First(layer()), lambda: ((torch.rand(256, 4, 8),), {}), CaptureOptions(step="train"), name=name
    )
    assert counts(workload) == {f"nearpeak.{name}.default": 1, f"nearpeak.{name}_backward.default": 1}
    parameters = sum(1 for b in workload.buffers if b.kind == "weight")
    assert sum(1 for b in workload.buffers if b.kind == "gradient") == parameters


class _First(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


def test_recurrent_outputs_have_the_shapes_of_the_real_layer():
    for layer in (nn.LSTM(8, 16, 2, bidirectional=True, proj_size=4), nn.GRU(8, 16), nn.RNN(8, 16)):
        real = [t.numel() * 4 for t in _flat(layer(torch.rand(5, 3, 8)))]
        workload = capture_torch(layer, ((torch.rand(5, 3, 8),), {}), name="shapes")
        assert [b.bytes for b in workload.buffers if b.kind == "output"] == real


def _flat(value):
    return [value] if isinstance(value, torch.Tensor) else [t for item in value for t in _flat(item)]


def test_dropout_is_one_call_in_training_and_none_in_inference():
    found = {}
    for training in (False, True):
        build = lambda: nn.Sequential(nn.ReLU(), nn.Dropout(0.5))  # noqa: E731
        workload = capture_torch(build, lambda: ((torch.rand(4),), {}), CaptureOptions(training=training), name="drop")
        found[training] = [call.operator for call in workload.calls]
    assert found[False] == ["aten.relu.default"]
    assert found[True] == ["aten.relu.default", "aten.native_dropout.default"]


def test_rms_norm_is_named_as_gpu_builds_name_it():
    workload = capture_torch(
        lambda: nn.RMSNorm(8), lambda: ((torch.rand(4, 8),), {}), CaptureOptions(step="train"), name="norm"
    )
    operators = [call.operator for call in workload.calls]
    assert operators[0] == "aten._fused_rms_norm.default"
    assert "aten._fused_rms_norm_backward.default" in operators


def test_the_fast_path_of_multi_head_attention_is_off_during_capture_only():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    before = torch.backends.mha.get_fastpath_enabled()
    workload = capture_torch(layer, ((torch.rand(2, 4, 16),), {}), name="encoder")
    assert "nearpeak.attention.default" in [call.operator for call in workload.calls]
    assert torch.backends.mha.get_fastpath_enabled() is before


def test_real_execution_is_as_before_after_a_capture():
    q = torch.rand(*Q)
    before = functional.scaled_dot_product_attention(q, q, q)
    attention(Q, Q, Q)
    assert torch.equal(functional.scaled_dot_product_attention(q, q, q), before)
    assert torch.rand(3).cuda.__qualname__ != "_unmoved"


def test_broadcast_heads_are_products_and_a_softmax():
    query, key = torch.rand(2, 1, 8, 16), torch.rand(2, 4, 12, 16)
    attend = torch.nn.functional.scaled_dot_product_attention
    workload = nearpeak.capture(attend, inputs=(query, key, key))
    assert workload.uncovered_counts() == {}
    assert [call.case.op for call in workload.calls].count("gemm") == 2


@pytest.mark.parametrize("given", [torch.tensor([2, 5]), torch.tensor(3)])
def test_tensors_may_be_split_where_a_known_tensor_says(given):
    x = torch.rand(9, 4)
    parts = nearpeak.capture(lambda x, i: torch.cat([p * 2 for p in torch.tensor_split(x, i)]), inputs=(x, given))
    elements = [call.case.record()["elements"] for call in parts.calls if call.case.op == "elementwise"]
    assert elements == [part.numel() for part in torch.tensor_split(x, given)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lazy_modules_may_be_converted_before_they_know_their_shapes(dtype):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.LazyConv2d(8, 3).to(dtype)

        def forward(self, x):
            return self.layer(x)

    workload = capture_torch(Model, lambda: ((torch.rand(1, 3, 8, 8).to(dtype),), {}), name="m")
    record = workload.calls[-1].case.record()
    assert (record["op"], record["in_channels"]) == ("conv", 3)
    assert record["dtype"] == {torch.float32: "fp32", torch.bfloat16: "bf16"}[dtype]
