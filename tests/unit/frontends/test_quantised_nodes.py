"""Files with ONNX Runtime's operators on 8-bit numbers: shapes are known behind them, and all are covered."""

import pytest

from nearpeak.frontends.onnx.onnx_file import capture_onnx

onnx = pytest.importorskip("onnx")
np = pytest.importorskip("numpy")
DOMAIN = "com.microsoft"
SCALE = ["s", "z"]


def captured(tmp_path, nodes, output):
    value, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.UINT8
    constants = [
        onnx.numpy_helper.from_array(np.float32(0.1), "s"), onnx.numpy_helper.from_array(np.uint8(0), "z"),
        onnx.numpy_helper.from_array(np.zeros((16, 10), np.uint8), "w"),
    ]  # fmt: skip
    graph = onnx.helper.make_graph(nodes, "g", [value("x", kind, [1, 8, 4, 4])], [value(output, kind, None)], constants)
    imports = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid(DOMAIN, 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=imports), tmp_path / "q.onnx")
    return capture_onnx(tmp_path / "q.onnx")


def node(kind, inputs, output, **attributes):
    return onnx.helper.make_node(kind, inputs, [output], domain=DOMAIN, **attributes)


def test_a_whole_quantised_tail_is_covered_with_its_extents(tmp_path):
    pytest.importorskip("onnx", minversion="1.18")
    nodes = [
        node("QLinearAdd", ["x", *SCALE, "x", *SCALE, *SCALE], "a"),
        node("QLinearLeakyRelu", ["a", *SCALE, *SCALE], "l", alpha=0.1),
        node("QLinearConcat", [*SCALE, "l", *SCALE, "a", *SCALE], "c", axis=1),
        node("QLinearGlobalAveragePool", ["c", *SCALE, *SCALE], "p", channels_last=0),
        onnx.helper.make_node("Flatten", ["p"], ["f"]),
        node("QGemm", ["f", *SCALE, "w", *SCALE, "", *SCALE], "y"),
    ]
    step = captured(tmp_path, nodes, "y")
    assert step.uncovered_counts() == {}
    cases = {call.operator.split(".")[-1]: dict(call.case.axes) for call in step.calls}
    assert cases["QLinearAdd"]["elements"] == 128
    assert cases["QLinearConcat"]["elements"] == 256
    assert cases["QLinearGlobalAveragePool"]["channels"] == 16
    assert (cases["QGemm"]["m"], cases["QGemm"]["k"], cases["QGemm"]["n"]) == (1, 16, 10)


def test_formats_behind_the_domain_s_own_quantisation(tmp_path):
    nodes = [
        node("DequantizeLinear", ["x", *SCALE], "d"), onnx.helper.make_node("Relu", ["d"], ["r"]),
        node("QuantizeLinear", ["r", *SCALE], "y"),
    ]  # fmt: skip
    step = captured(tmp_path, nodes, "y")
    assert step.uncovered_counts() == {}
    assert [dict(call.case.dtypes)["dtype"] for call in step.calls][1] == "fp32"


def test_channels_last_pooling_is_left_uncovered(tmp_path):
    step = captured(tmp_path, [node("QLinearGlobalAveragePool", ["x", *SCALE, *SCALE], "y", channels_last=1)], "y")
    assert list(step.uncovered_counts()) == ["com.microsoft.QLinearGlobalAveragePool"]
