"""Facts of values in ONNX files: QDQ graphs, one-hot products, first states that the file states to be zero."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from nearpeak.bounds.step.step_bound import least_work  # noqa: E402
from nearpeak.frontends.onnx.onnx_file import capture_onnx  # noqa: E402


def simplified(tmp_path, nodes, arrays, inputs, output):
    stored = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    given = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs]
    graph = helper.make_graph(nodes, "g", given, [helper.make_tensor_value_info(*output)], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, tmp_path / "model.onnx")
    return least_work(capture_onnx(tmp_path / "model.onnx"))[1]


def test_dequantised_factors_are_multiplied_as_integers(tmp_path):
    node = helper.make_node
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["xd"]),
        node("DequantizeLinear", ["w", "s", "z"], ["wd"]), node("MatMul", ["xd", "wd"], ["y"]),
    ]  # fmt: skip
    arrays = {"w": np.ones((8, 4), np.int8), "s": np.float32(0.1), "z": np.int8(0)}
    shape = (16, 8)
    step = simplified(tmp_path, nodes, arrays, [("x", TensorProto.FLOAT, shape)], ("y", TensorProto.FLOAT, (16, 4)))
    assert step.as_written.flop["matrix.fp32"] == step.simplified.flop["matrix.int8"] == 2 * 16 * 8 * 4
    assert [line.name for line in step.rewrites] == ["narrow_format"]


def test_a_one_hot_product_reads_one_row_at_least(tmp_path):
    nodes = [helper.make_node("OneHot", ["i", "d", "v"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"])]
    arrays = {"d": np.int64(64), "v": np.array([0, 1], np.float32), "w": np.ones((64, 8), np.float32)}
    step = simplified(tmp_path, nodes, arrays, [("i", TensorProto.INT64, (16,))], ("y", TensorProto.FLOAT, (16, 8)))
    assert step.simplified.read_bytes == 16 * 8 + 8 * 4
    assert "matrix.fp32" not in step.simplified.flop


@pytest.mark.parametrize("stated", [False, True])
def test_one_step_from_zero_reads_no_recurrent_weights(tmp_path, stated):
    names = ["x", "w", "r", "b", *(["", "h", "h"] if stated else [])]
    nodes = [helper.make_node("LSTM", names, ["y"], hidden_size=16)]
    arrays = {"w": np.ones((1, 64, 8), np.float32), "r": np.ones((1, 64, 16), np.float32)}
    arrays |= {"b": np.ones((1, 128), np.float32), "h": np.zeros((1, 4, 16), np.float32)}
    shape = (1, 4, 8)
    step = simplified(
        tmp_path, nodes, arrays, [("x", TensorProto.FLOAT, shape)], ("y", TensorProto.FLOAT, (1, 1, 4, 16))
    )
    assert step.simplified.read_bytes == 4 * (4 * 8 + 48 * 8 + 96)
