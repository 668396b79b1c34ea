"""Quantised tensors of PyTorch: stored in the format that the call names, and uncovered where no rule knows it."""

import pytest

torch = pytest.importorskip("torch")

from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402
from nearpeak.frontends.torch.problem_file import capture_problem  # noqa: E402


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
    calls = [(call.operator, call.case is not None) for call in capture_problem(path).calls]
    assert calls == [("aten.addmm.default", True), ("quantized.linear_dynamic.default", False)]


def test_statically_quantised_linear_layers_are_captured_in_the_formats_that_they_store():
    quantisation = torch.ao.quantization
    model = torch.nn.Sequential(
        quantisation.QuantStub(), torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4),
        quantisation.DeQuantStub(),
    ).eval()  # fmt: skip
    model.qconfig = quantisation.get_default_qconfig("x86")
    quantisation.prepare(model, inplace=True)
    model(torch.rand(3, 8))
    quantisation.convert(model, inplace=True)
    workload = capture_torch(model, ((torch.rand(3, 8),), {}), name="static")
    found = [(call.case.op, dict(call.case.dtypes)["dtype"]) if call.case else call.operator for call in workload.calls]
    packed = "quantized.linear.default"
    assert found == [("quantise", "fp32"), packed, ("elementwise", "uint8"), packed, ("dequantise", "uint8")]
    assert [dict(call.case.axes)["columns"] for call in workload.calls[::4]] == [3 * 8, 3 * 4]
