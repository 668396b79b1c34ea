"""Quantised tensors of PyTorch: stored in the format that the call names, and uncovered where no rule knows it."""

import pytest

torch = pytest.importorskip("torch")

from nearpeak.bounds.step.step_bound import step_bound  # noqa: E402
from nearpeak.core.answers.bound import Policy  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402
from nearpeak.frontends.torch.problem_file import capture_problem  # noqa: E402
from nearpeak.targets import target_of  # noqa: E402


def captured(function):
    return capture_torch(lambda: function, lambda: ((torch.rand(4, 8),), {}), name="quantised")


@pytest.mark.parametrize(("dtype", "stored"), [("quint8", "uint8"), ("qint8", "int8"), ("qint32", "int32")])
def test_a_quantised_tensor_is_written_as_the_call_names_it(dtype, stored):
    workload = captured(lambda x: torch.quantize_per_tensor(x, 0.1, 0, getattr(torch, dtype)))
    (call,) = workload.calls
    width = {"uint8": 1, "int8": 1, "int32": 4}[stored]
    assert dict(call.case.dtypes) == {"dtype": "fp32", "out_dtype": stored}
    assert [use.bytes for use in call.writes] == [32 * width]


def test_a_format_that_packs_numbers_into_a_byte_is_uncovered_and_so_is_what_reads_it():
    workload = captured(lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint4x2).dequantize())
    assert workload.uncovered_counts() == {"aten.quantize_per_tensor.default": 1, "aten.dequantize.self": 1}


def test_scales_per_channel_and_back():
    workload = captured(
        lambda x: torch.quantize_per_channel(x, torch.ones(4), torch.zeros(4), 0, torch.qint8).dequantize()
    )
    ops = [call.case.op for call in workload.calls]
    assert ops[-2:] == ["quantise", "dequantise"]
    assert dict(workload.calls[-1].case.dtypes) == {"dtype": "int8", "out_dtype": "fp32"}


def test_a_problem_file_may_build_dynamically_quantised_layers(tmp_path):
    path = tmp_path / "quantised.py"
    path.write_text(
        "import torch\nfrom torch import nn\nclass Model(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.plain = nn.Linear(8, 8)\n"
        "        self.packed = torch.ao.quantization.quantize_dynamic(\n"
        "            nn.Sequential(nn.Linear(8, 8)), {nn.Linear}, dtype=torch.qint8)\n"
        "    def forward(self, x): return self.packed(self.plain(x))\n"
        "def get_inputs(): return [torch.randn(4, 8)]\n"
    )
    calls = [(call.case.op, dict(call.case.dtypes)["dtype"]) for call in capture_problem(path).calls]
    assert calls == [("gemm", "fp32"), ("gemm", "int8")]


def static(model, x):
    """A model of torch.ao whose layers take and give numbers of 8 bits."""
    quantisation = torch.ao.quantization
    model = torch.nn.Sequential(quantisation.QuantStub(), *model, quantisation.DeQuantStub()).eval()
    model.qconfig = quantisation.get_default_qconfig("x86")
    quantisation.prepare(model, inplace=True)
    model(x)
    quantisation.convert(model, inplace=True)
    return capture_torch(model, ((x,), {}), name="static")


class Twice(torch.nn.Module):
    """One layer that runs twice."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 6)

    def forward(self, x):
        return self.layer(self.layer(x))


def test_statically_quantised_linear_layers_are_products_of_8_bits_that_read_their_weights_once():
    workload = static([torch.nn.Linear(8, 6), torch.nn.ReLU(), Twice()], torch.rand(3, 8))
    found = [(call.case.op, dict(call.case.dtypes)["dtype"]) for call in workload.calls]
    product = ("gemm", "uint8")
    assert found == [("quantise", "fp32"), product, ("elementwise", "uint8"), product, product, ("dequantise", "uint8")]
    first = workload.calls[1].case
    assert [dict(first.axes)[name] for name in "mnk"] == [3, 6, 8]
    assert dict(first.dtypes)["out_dtype"] == "uint8"
    sizes = {buffer.name: buffer.bytes for buffer in workload.buffers if buffer.kind == "weight"}
    assert (sizes["1.weight"], sizes["3.layer.weight"]) == (48, 36)
    assert (sizes["1.bias"], sizes["3.layer.bias"]) == (24, 24)  # in fp32


CONVOLUTIONS = {
    "one dimension": (lambda: torch.nn.Conv1d(8, 8, 3, stride=2), (2, 8, 21), {"h": 1, "w": 21, "kw": 3, "sw": 2}),
    "groups": (lambda: torch.nn.Conv2d(8, 8, 3, padding=1, groups=4), (2, 8, 9, 9), {"groups": 4, "ph": 1, "kh": 3}),
    "three dimensions": (lambda: torch.nn.Conv3d(3, 4, 2), (1, 3, 5, 5, 5), {"d": 5, "kd": 2}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_statically_quantised_convolutions_are_those_of_the_model_in_8_bits(name):
    make, shape, axes = CONVOLUTIONS[name]
    x = torch.rand(shape)
    plain = capture_torch(make(), ((x,), {}), name="plain").calls[0].case
    calls = [call for call in static([make()], x).calls if call.case.op == "conv"]
    assert [dict(call.case.dtypes)["dtype"] for call in calls] == ["uint8"]
    found = dict(calls[0].case.axes)
    assert axes.items() <= found.items()
    wanted = dict(plain.axes)
    assert all(found[name] == wanted[name] for name in ("batch", "in_channels", "out_channels", "groups"))


class Block(torch.nn.Module):
    """A residual block whose sums and joins are those of numbers of 8 bits."""

    def __init__(self):
        super().__init__()
        self.conv, self.pool, self.act = (
            torch.nn.Conv2d(4, 4, 3, padding=1),
            torch.nn.MaxPool2d(2),
            torch.nn.Hardswish(),
        )
        self.sums, self.joins = (torch.ao.nn.quantized.FloatFunctional() for _ in range(2))
        self.head = torch.nn.Linear(8, 2)

    def forward(self, x):
        y = self.sums.add_relu(self.conv(x), x)
        return self.head(self.pool(self.joins.cat([y, self.act(y)], 1)).mean((2, 3)))


def test_sums_joins_and_tables_of_8_bits_are_covered_and_their_values_are_not_taken_for_numbers():
    workload = static([Block()], torch.rand(2, 4, 8, 8))
    assert not workload.uncovered_counts()
    ops = [call.case.op for call in workload.calls]
    assert ops[:5] == ["quantise", "conv", "elementwise", "copy", "copy"]
    assert step_bound(workload, target_of("h100_sxm"), Policy()).time_s > 0


def test_layers_that_quantise_their_input_on_the_way_multiply_in_the_format_of_their_weights():
    quantisation, x = torch.ao.quantization, torch.rand(5, 3, 8)
    for dtype, stored in ((torch.qint8, "int8"), (torch.float16, "fp16")):
        model = quantisation.quantize_dynamic(
            torch.nn.Sequential(torch.nn.Linear(8, 4)), {torch.nn.Linear}, dtype=dtype
        )
        (call,) = capture_torch(model, ((x,), {}), name="dynamic").calls
        assert dict(call.case.dtypes) == {"dtype": stored, "out_dtype": "fp32"}
        assert [dict(call.case.axes)[name] for name in "mnk"] == [15, 4, 8]
