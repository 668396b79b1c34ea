"""What an inference engine leaves of a captured step: folded operators, quantised kernels, formats."""

from collections import Counter

import pytest

from nearpeak.api.questions import capture
from nearpeak.bounds.step.step_bound import step_bound
from nearpeak.core.answers.bound import Policy
from nearpeak.core.work.engine_choice import engine_of
from nearpeak.errors import SpecError
from nearpeak.frontends.inference_engine.engine_lowering import lowered
from nearpeak.frontends.onnx.onnx_file import capture_onnx
from nearpeak.targets import target_of

onnx = pytest.importorskip("onnx")
np = pytest.importorskip("numpy")
FLOAT, INT8 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT8


class Graph:
    """Nodes and constants of a small model on an image of 8 channels, 16 × 16."""

    def __init__(self):
        self.nodes, self.weights = [], []

    def constant(self, name, values):
        self.weights.append(onnx.numpy_helper.from_array(values, name))
        return name

    def add(self, kind, inputs, output, **attributes):
        self.nodes.append(onnx.helper.make_node(kind, inputs, [output], **attributes))
        return output

    def conv(self, source, name, stride=1):
        weight = self.constant(f"{name}.w", np.zeros((8, 8, 3, 3), np.float32))
        return self.add("Conv", [source, weight], name, kernel_shape=[3, 3], pads=[1] * 4, strides=[stride] * 2)

    def norm(self, source, name):
        sides = [self.constant(f"{name}.{part}", np.ones(8, np.float32)) for part in "gbmv"]
        return self.add("BatchNormalization", [source, *sides], name)

    def quantised(self, source, name):
        scale = self.constant(f"{name}.s", np.float32(0.1))
        zero = self.constant(f"{name}.z", np.int8(0))
        self.add("QuantizeLinear", [source, scale, zero], f"{name}.q")
        return self.add("DequantizeLinear", [f"{name}.q", scale, zero], name)

    def captured(self, tmp_path, output):
        value = onnx.helper.make_tensor_value_info
        graph = onnx.helper.make_graph(
            self.nodes, "g", [value("x", FLOAT, [1, 8, 16, 16])], [value(output, FLOAT, None)], self.weights
        )
        path = tmp_path / "model.onnx"
        onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)
        return path


def residual_block():
    graph = Graph()
    first = graph.add("Relu", [graph.norm(graph.conv("x", "a"), "an")], "ar")
    second = graph.norm(graph.conv(first, "b"), "bn")
    graph.add("Add", [second, "ar"], "sum")
    graph.add("Relu", ["sum"], "sr")
    graph.add("MaxPool", ["sr"], "p", kernel_shape=[2, 2], strides=[2, 2])
    graph.add("Reshape", ["p", graph.constant("shape", np.array([1, -1], np.int64))], "flat")
    graph.add("Softmax", ["flat"], "y")
    return graph


def operators(workload):
    return [call.case.op for call in workload.calls]


def test_norm_activation_and_residual_go_into_products_and_pooling_stays(tmp_path):
    step = capture_onnx(residual_block().captured(tmp_path, "y"))
    built = lowered(step, engine_of("tensorrt"))
    assert operators(built) == ["conv", "conv", "max_pool", "softmax"]
    assert built.origin["engine"] == "tensorrt"
    residual = {use.buffer for use in built.calls[0].writes} & {use.buffer for use in built.calls[1].reads}
    assert len(residual) == 1  # read once as input and as what is added


def test_a_result_that_two_kernels_read_is_written(tmp_path):
    built = lowered(capture_onnx(residual_block().captured(tmp_path, "y")), engine_of("tensorrt"))
    written = {use.buffer for call in built.calls for use in call.writes}
    inputs = {number for number, buffer in enumerate(built.buffers) if buffer.kind in ("weight", "input", "constant")}
    assert all(use.buffer in written | inputs for call in built.calls for use in call.reads)


def test_onnx_runtime_leaves_functions_it_has_no_fusion_for(tmp_path):
    graph = Graph()
    graph.add("Erf", [graph.norm(graph.conv("x", "a"), "an")], "y")
    step = capture_onnx(graph.captured(tmp_path, "y"))
    assert operators(lowered(step, engine_of("onnxruntime"))) == ["conv", "elementwise"]
    assert operators(lowered(step, engine_of("tensorrt"))) == ["conv"]


def test_quantised_neighbours_make_a_product_int8(tmp_path):
    graph = Graph()
    weight = graph.quantised(graph.constant("w", np.zeros((8, 8, 3, 3), np.float32)), "wq")
    source = graph.quantised("x", "xq")
    graph.add("Conv", [source, weight], "c", kernel_shape=[3, 3], pads=[1] * 4)
    graph.add("Relu", ["c"], "r")
    graph.add("MaxPool", [graph.quantised("r", "rq")], "p", kernel_shape=[2, 2], strides=[2, 2])
    graph.quantised("p", "y")
    built = lowered(capture_onnx(graph.captured(tmp_path, "y")), engine_of("tensorrt"))
    assert operators(built) == ["conv", "max_pool"]
    assert [dict(call.case.dtypes)["dtype"] for call in built.calls] == ["int8", "int8"]
    assert dict(built.calls[0].case.dtypes)["out_dtype"] == "int8"


def test_a_product_with_one_quantised_operand_stays_wide(tmp_path):
    graph = Graph()
    graph.conv(graph.quantised("x", "xq"), "y")
    built = lowered(capture_onnx(graph.captured(tmp_path, "y")), engine_of("tensorrt"))
    assert dict(built.calls[0].case.dtypes)["dtype"] == "fp32"


def test_told_formats_narrow_products_and_leave_softmax_in_16_bits(tmp_path):
    step = capture_onnx(residual_block().captured(tmp_path, "y"))
    built = lowered(step, engine_of("tensorrt:int8"))
    formats = [dict(call.case.dtypes)["dtype"] for call in built.calls]
    assert formats == ["int8", "int8", "int8", "fp16"]
    assert sum(use.bytes for use in built.calls[0].reads) < sum(use.bytes for use in step.calls[0].reads) / 3


def test_narrower_formats_never_raise_the_bound(tmp_path):
    step = capture_onnx(residual_block().captured(tmp_path, "y"))
    board = target_of("jetson_agx_orin")
    bounds = [
        step_bound(lowered(step, engine_of(f"tensorrt:{name}")), board, Policy(dtype="tf32")).time_s
        for name in ("fp32", "fp16", "int8")
    ]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] > 0


def test_lowering_never_raises_the_bound_of_the_same_formats(tmp_path):
    step = capture_onnx(residual_block().captured(tmp_path, "y"))
    board = target_of("jetson_orin_nano")
    assert step_bound(lowered(step, engine_of("tensorrt")), board, Policy()).time_s <= (
        step_bound(step, board, Policy()).time_s * (1 + 1e-9)
    )


def test_captured_modules_are_lowered_too():
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, bias=False), torch.nn.BatchNorm2d(8), torch.nn.SiLU(), torch.nn.Conv2d(8, 8, 1)
    ).eval()
    built = capture(net, inputs=(torch.zeros(1, 3, 16, 16),), engine="tensorrt:fp16")
    assert Counter(operators(built)) == {"conv": 2}
    assert {dict(call.case.dtypes)["dtype"] for call in built.calls} == {"fp16"}


@pytest.mark.parametrize("text", ["trt", "tensorrt:fp8", "tensorrt:"])
def test_unknown_engines_and_formats_are_refused(text):
    with pytest.raises(SpecError, match="engine"):
        engine_of(text)


def test_a_training_step_is_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(SpecError, match="forward step"):
        capture(torch.nn.Linear(4, 4), inputs=(torch.zeros(2, 4),), step="train", engine="tensorrt")
