"""Verdicts on nodes: rows, formats, conditions, opsets and bodies."""

import numpy as np
import pytest
from tests.unit.conversion.onnx_models import FP16, FP32, chain, group_norm_block, helper, onnx, saved

from nearpeak.conversion.capability_table import table_of
from nearpeak.conversion.model_graph import model_graph
from nearpeak.conversion.node_verdicts import verdict_of

INT64, UINT8, FP64 = 7, 2, 11
TABLE = table_of("tensorrt:10.1")


def verdict(tmp_path, node, shapes, stored=(), opset=18, formats=None, position=0):
    nodes = node if isinstance(node, list) else [node]
    results = [name for name in nodes[-1].output if name]
    path = saved(tmp_path / "m.onnx", nodes, shapes, stored, opset, results, formats)
    return verdict_of(TABLE, model_graph(path), position)


def one(kind, inputs=("x",), outputs=("y",), **attributes):
    return helper.make_node(kind, list(inputs), list(outputs), name="n", **attributes)


IMAGE = {"x": [1, 4, 8, 8], "y": [1, 4, 8, 8]}
POOL = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


@pytest.mark.parametrize(("node", "shapes", "stored", "wanted", "words"), [
    (one("Relu"), IMAGE, {}, "supported", ""),
    (one("Det"), {"x": [4, 4], "y": []}, {}, "denied", "lists Det"),
    (one("MaxPool", **POOL), IMAGE, {}, "supported", ""),
    (one("MaxPool", kernel_shape=[3], pads=[1, 1]), {"x": [1, 4, 8], "y": [1, 4, 8]}, {}, "denied", "two or three"),
    (one("MaxPool", kernel_shape=[3, 3], pads=[2, 2, 2, 2], dilations=[2, 2]), IMAGE, {}, "denied", "dilation"),
    (one("CumSum", ["x", "axis"]), IMAGE, {"axis": np.array(1)}, "supported", ""),
    (one("ReduceMean", ["x", "axes"]), {"x": [2, 4], "y": [2, 1]}, {"axes": np.array([1])}, "supported", ""),
    (one("TopK", ["x", "k"], ["y", "i"]), {"x": [1, 9000], "y": [1, 5000], "i": [1, 5000]},
     {"k": np.array([5000])}, "denied", "3,840"),
    (one("TopK", ["x", "k"], ["y", "i"]), {"x": [1, 9000], "y": [1, 5], "i": [1, 5]}, {"k": np.array([5])},
     "supported", ""),
    (one("TopK", ["x", "k"], ["y", "i"], sorted=0), {"x": [1, 90], "y": [1, 5], "i": [1, 5]},
     {"k": np.array([5])}, "denied", "sorted"),
    (one("Resize", ["x", "", "s"], mode="cubic"), {"x": [1, 4, 8, 8], "y": [1, 4, 16, 16]},
     {"s": np.array([1, 1, 2, 2], np.float32)}, "denied", "linearly"),
    (one("Resize", ["x", "", "s"], mode="nearest"), {"x": [1, 4, 8, 8], "y": [1, 4, 16, 16]},
     {"s": np.array([1, 1, 2, 2], np.float32)}, "supported", ""),
    (one("LayerNormalization", ["x", "g"], ["y", "mean"]), {"x": [2, 4], "y": [2, 4], "mean": [2, 1]},
     {"g": np.ones(4, np.float32)}, "denied", "neither mean"),
    (one("RandomUniformLike", seed=1.0), IMAGE, {}, "conditional", "seed"),
    (one("RandomUniformLike"), IMAGE, {}, "supported", ""),
])  # fmt: skip
def test_rows_and_conditions(tmp_path, node, shapes, stored, wanted, words):
    formats = {"i": INT64}
    found = verdict(tmp_path, node, shapes, stored, formats=formats)
    assert (found.verdict, words in found.reason) == (wanted, True)


@pytest.mark.parametrize(("kind", "number", "wanted", "cure"), [
    ("Erf", FP32, "supported", ""), ("Erf", FP16, "supported", ""), ("Erf", FP64, "conditional", ""),
    ("Sqrt", INT64, "denied", "cast"), ("Abs", INT64, "supported", ""), ("Abs", UINT8, "denied", "cast"),
])  # fmt: skip
def test_formats_of_the_data_decide(tmp_path, kind, number, wanted, cure):
    shapes = {"x": [4], "y": [4]}
    found = verdict(tmp_path, one(kind), shapes, formats={"x": number, "y": number})
    assert (found.verdict, found.cure) == (wanted, cure)


def test_the_condition_of_a_selection_is_no_data(tmp_path):
    shapes = {"c": [4], "x": [4], "z": [4], "y": [4]}
    node = one("Where", ["c", "x", "z"])
    assert verdict(tmp_path, node, shapes, formats={"c": 9}).verdict == "supported"
    assert verdict(tmp_path, node, shapes, formats={"c": 9, "x": UINT8, "z": UINT8, "y": UINT8}).verdict == "denied"


def test_both_formats_of_a_cast_are_looked_at(tmp_path):
    shapes = {"x": [4], "y": [4]}
    assert verdict(tmp_path, one("Cast", to=UINT8), shapes, formats={"y": UINT8}).verdict == "supported"
    assert verdict(tmp_path, one("Cast", to=3), shapes, formats={"y": 3}).verdict == "denied"


def test_axes_that_follow_from_shapes_are_cured_by_folding(tmp_path):
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], name="shape"), helper.make_node("Size", ["s"], ["r"], name="rank"),
        helper.make_node("Sub", ["r", "one"], ["a"], name="last"),
        helper.make_node("Unsqueeze", ["a", "zero"], ["axes"], name="list"),
        helper.make_node("ReduceSum", ["x", "axes"], ["y"], name="sum"),
    ]  # fmt: skip
    stored = {"one": np.array(1), "zero": np.array([0])}
    found = verdict(tmp_path, nodes, {"x": [2, 4], "y": [2, 1]}, stored, position=4)
    assert (found.verdict, found.cure) == ("denied", "fold")


def test_axes_that_are_data_are_denied_without_a_cure(tmp_path):
    node = one("ReduceSum", ["x", "axes"])
    shapes = {"x": [2, 4], "axes": [1], "y": [1, 1]}
    found = verdict(tmp_path, node, shapes, formats={"axes": INT64})
    assert (found.verdict, found.cure) == ("denied", "")


def test_zero_points_must_be_known_and_zero(tmp_path):
    shapes = {"x": [4], "y": [4]}
    scale = np.array(0.1, np.float32)
    node = one("QuantizeLinear", ["x", "s", "z"])
    for zero, wanted in ((0, "supported"), (3, "denied")):
        stored = {"s": scale, "z": np.array(zero, np.int8)}
        assert verdict(tmp_path, node, shapes, stored, formats={"y": 3}).verdict == wanted


def test_what_has_no_row_is_unknown_and_never_denied(tmp_path):
    path = chain(tmp_path / "m.onnx", ["Relu", "mine.Foo", "Relu"])
    graph = model_graph(path)
    found = [verdict_of(TABLE, graph, node) for node in range(3)]
    assert [item.verdict for item in found] == ["supported", "unknown", "supported"]
    assert "no row for mine.Foo" in found[1].reason


def test_an_opset_that_the_installed_onnx_does_not_know_is_unknown(tmp_path):
    found = verdict(tmp_path, one("Relu", ["x"]), {"x": [4], "y": [4]}, opset=99)
    assert found.verdict == "unknown"
    assert "its definition of opset 99 is not known" in found.reason


def test_a_definition_that_changed_after_the_document_is_conditional(tmp_path):
    graph = model_graph(group_norm_block(tmp_path / "m.onnx", 21, is_native=True))
    found = {kind: verdict_of(TABLE, graph, node) for node, kind in enumerate(graph.kinds)}
    assert found["GroupNormalization"].verdict == "conditional"
    assert "opset 21" in found["GroupNormalization"].reason
    assert found["Conv"].verdict == found["Sigmoid"].verdict == "supported"
    graph = model_graph(group_norm_block(tmp_path / "m.onnx", 20, is_native=True))
    assert {verdict_of(TABLE, graph, node).verdict for node in range(len(graph.kinds))} == {"supported"}


def test_bodies_of_control_flow_are_looked_into(tmp_path):
    value = helper.make_tensor_value_info("o", FP32, [2, 2])
    for inner, wanted in (("Relu", "conditional"), ("Det", "denied"), ("Swish", "unknown")):
        body = helper.make_graph([helper.make_node(inner, ["x"], ["o"])], "body", [], [value])
        node = one("If", ["c"], then_branch=body, else_branch=body)
        path = saved(tmp_path / "m.onnx", [node], {"c": [1], "y": [2, 2]}, formats={"c": 9})
        stated = onnx.load(str(path))
        stated.graph.input.append(helper.make_tensor_value_info("x", FP32, [2, 2]))
        onnx.save(stated, str(path))
        assert verdict_of(TABLE, model_graph(path), 0).verdict == wanted
