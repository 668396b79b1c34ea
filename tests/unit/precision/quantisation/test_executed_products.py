"""Executed precision: exact on planted graphs, by the runtime's optimised graph, its profile, and layers of engines."""

import json

import numpy as np
import pytest

from nearpeak.api.model_precision import executed_precision
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import NearpeakError
from nearpeak.precision.quantisation.executed_products import (
    UNKNOWN,
    Array,
    GraphNode,
    executed_graph,
    product_of,
    product_table,
)
from nearpeak.precision.quantisation.quantised_files import SCHEMES, write_quantised
from nearpeak.precision.quantisation.runtime_timing import random_feeds
from nearpeak.reports.quantisation.executed_precision_report import document_of, headline_of, to_json

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

CHANNELS, EXTENT = 16, 8
MACS = CHANNELS * CHANNELS * 9 * EXTENT * EXTENT
FULL_BYTES = CHANNELS * EXTENT * EXTENT * 5
"""What one pass over a tensor of a planted graph reads and writes: 1 and 4 bytes an element."""


def chain(path, count=3, nodes=(), batch=1):
    """A chain of equal convolutions with ReLU; more nodes behind them."""
    draw, helper, kind = np.random.default_rng(0), onnx.helper, onnx.TensorProto.FLOAT
    weights, made, last = [], [], "x"
    for at in range(count):
        values = draw.standard_normal((CHANNELS, CHANNELS, 3, 3)).astype(np.float32)
        weights.append(onnx.numpy_helper.from_array(values, f"w{at}"))
        made.append(helper.make_node("Conv", [last, f"w{at}"], [f"c{at}"], name=f"conv{at}", pads=[1, 1, 1, 1]))
        made.append(helper.make_node("Relu", [f"c{at}"], [f"r{at}"], name=f"relu{at}"))
        last = f"r{at}"
    for at, op in enumerate(nodes):
        made.append(helper.make_node(op, [last], [f"m{at}"], name=f"more{at}"))
        last = f"m{at}"
    shape = [batch, CHANNELS, EXTENT, EXTENT]
    graph = helper.make_graph(
        made, "chain", [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(last, kind, None)], weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(onnx.shape_inference.infer_shapes(model), str(path))
    return path


@pytest.fixture
def plain(tmp_path):
    return chain(tmp_path / "plain.onnx")


def samples(path):
    return [random_feeds(runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"]))]


def quantised(plain, scheme="s8s8", **left_out):
    out = plain.with_name(f"{scheme}.onnx")
    if not left_out:
        assert write_quantised(plain, out, scheme, samples(plain)) == ""
        return out
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        rows = iter(samples(plain))

        def get_next(self):
            return next(self.rows, None)

    kinds = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8, "per_channel": True}
    quantize_static(str(plain), str(out), Reader(), **kinds, **left_out)
    return out


def test_all_products_in_int8(plain):
    graph = executed_precision(quantised(plain))
    assert graph.precisions == {"int8": 3}
    assert [item.mac_count for item in graph.products] == [MACS] * 3
    assert graph.share_ratio("int8") == 1.0
    assert (graph.quantise_count, graph.dequantise_count, graph.loose_bytes) == (1, 1, 2 * FULL_BYTES)
    assert headline_of(graph) == "s8s8.onnx: of the products' arithmetic 100.0 % in int8"


def test_one_product_that_stayed_in_fp32(plain):
    graph = executed_precision(quantised(plain, nodes_to_exclude=["conv1", "relu0", "relu1"]))
    assert graph.precisions == {"int8": 2, "fp32": 1}
    assert graph.share_ratio("fp32") == pytest.approx(1 / 3)
    assert graph.share_ratio("int8") == pytest.approx(2 / 3)
    assert (graph.quantise_count, graph.dequantise_count) == (2, 2)
    assert graph.loose_bytes == 4 * FULL_BYTES


def test_int4_weights_run_in_fp32(plain):
    graph = executed_precision(quantised(plain, "s8s4"))
    assert graph.precisions == {"fp32": 3}
    assert graph.share_ratio("int8") == graph.share_ratio("int4") == 0.0
    assert graph.dequantise_count >= 3, "weights are widened at each run"


def test_quantisation_in_the_wrong_place_stays_a_pass_of_its_own(plain, tmp_path):
    model = onnx.load(str(plain))
    draw = onnx.numpy_helper.from_array
    model.graph.initializer.extend(
        [draw(np.array(0.1, np.float32), "s"), draw(np.array(0, np.int8), "z")]
    )  # fmt: skip
    make = onnx.helper.make_node
    pair = [make("QuantizeLinear", ["r0", "s", "z"], ["q"], name="q"),
            make("DequantizeLinear", ["q", "s", "z"], ["d"], name="d")]  # fmt: skip
    second = model.graph.node[2]
    second.input[0] = "d"
    nodes = [*model.graph.node[:2], *pair, *model.graph.node[2:]]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, str(tmp_path / "misplaced.onnx"))
    graph = executed_precision(tmp_path / "misplaced.onnx")
    assert graph.precisions == {"fp32": 3}
    assert (graph.quantise_count, graph.dequantise_count, graph.loose_bytes) == (1, 1, 2 * FULL_BYTES)


def test_a_profile_tells_the_same_as_the_graph(plain, tmp_path):
    options = runtime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "run")
    path = quantised(plain, nodes_to_exclude=["conv1", "relu0", "relu1"])
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    session.run(None, random_feeds(session))
    recorded = executed_precision(session.end_profiling())
    graph = executed_precision(path)
    assert recorded.precisions == {"int8": 2, "fp32": 1}
    assert recorded.loose_bytes == graph.loose_bytes


def test_open_extents_are_those_that_are_asked_for(tmp_path):
    path = chain(tmp_path / "open.onnx", count=1)
    model = onnx.load(str(path))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, str(path))
    graph = executed_precision(path, CaptureOptions(batch=4))
    assert graph.mac_count == 4 * MACS


def test_layers_of_an_engine(tmp_path):
    def layer(name, kind, fmt, out="Int8", **more):
        shapes = [1, 4, 8, 8]
        return {
            "Name": name, "LayerType": f"Cask{kind}", "ParameterType": kind,
            "Inputs": [{"Dimensions": shapes, "Format/Datatype": fmt}],
            "Outputs": [{"Dimensions": shapes, "Format/Datatype": out}], **more,
        }  # fmt: skip

    filters = {"OutMaps": 4, "Weights": {"Type": "Int8", "Count": 4 * 4 * 9}}
    layers = [
        layer("q", "Reformat", "Row major linear FP32", "Channel major INT8 format"),
        layer("a", "Convolution", "Channel major INT8 format", **filters),
        layer("b", "Convolution", "Row major linear FP32", "Row major linear FP32", **filters),
        layer("c", "Convolution", "who knows", "who knows", **filters),
        {"Name": "fused", "LayerType": "kgen"},
    ]
    path = tmp_path / "layers.json"
    path.write_text(json.dumps({"Layers": layers, "Bindings": []}))
    graph = executed_precision(path)
    assert graph.precisions == {"int8": 1, "fp32": 1, UNKNOWN: 1}
    assert [item.mac_count for item in graph.products] == [4 * 64 * 36, 4 * 64 * 36, None]
    assert (graph.quantise_count, graph.dequantise_count, graph.loose_bytes) == (1, 0, 256 * 5)
    assert graph.unlisted_count == {"kgen": 1}
    assert graph.share_ratio("int8") is None
    assert "int8" in json.loads(to_json(graph))["share_ratio"]
    assert document_of(graph).blocks


def test_what_nothing_states_is_never_int8():
    array = Array((4, 4), "fp32", 32)
    node = GraphNode("n", "MatMulNBits", "com.microsoft", (array,), (array,), {"K": 4, "bits": 4, "accuracy_level": 4})
    assert product_of(node).precision == UNKNOWN
    assert product_of(node._replace(numbers={"K": 4, "bits": 4})).precision == "fp32"
    assert product_of(node._replace(operator="MatMul", inputs=(None, array))).precision == UNKNOWN
    graph = executed_graph("g", "", [node._replace(operator="NewProduct"), node._replace(operator="Loop", domain="")])
    assert graph.unlisted_count == {"com.microsoft.NewProduct": 1, "Loop": 1}
    assert graph.products == ()


def test_the_table_names_operators_that_exist_and_every_quantised_one():
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    known = {schema.name for schema in state.get_all_operator_schema()}
    assert {name for name in product_table() if name not in known} <= {
        "FusedMatMulActivation",
        "MatMulFpQ4",
        "GemmFloat8",
    }
    quantised_names = {name for name in known if name.startswith(("QLinear", "QGemm", "QAttention", "QMoE", "MatMulI"))}
    assert quantised_names - set(product_table()) == set()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [("a.onnx", "no model", "not an ONNX model"), ("b.json", "[]", "is neither"), ("c.txt", "", "is read as"),
     ("d.json", "{", "no JSON")],
)  # fmt: skip
def test_other_files_are_refused_in_one_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(NearpeakError, match=message) as refusal:
        executed_precision(tmp_path / name)
    assert "\n" not in str(refusal.value)
    with pytest.raises(NearpeakError, match="not found"):
        executed_precision(tmp_path / "missing.onnx")


def test_schemes_belong_to_rows_of_the_table():
    assert {scheme.precision for scheme in SCHEMES.values()} == {"int8", "int4"}
