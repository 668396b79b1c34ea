"""What of a model a runner converts: nodes, reasons, pieces, borders."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from nearpeak.api.conversion_coverage import coverage
from nearpeak.cli import application
from nearpeak.cli.question.coverage import _words
from nearpeak.conversion.converted_parts import Conversion
from nearpeak.core.runs.measurement import Fallback
from nearpeak.errors import SpecError

onnx = pytest.importorskip("onnx")
BYTES = 64 * 256 * 4


def model(path, kinds):
    """A chain of nodes on [64, 256]; a dot in a kind puts it into a domain that no runtime knows."""
    helper, nodes, last = onnx.helper, [], "x"
    for number, kind in enumerate(kinds):
        domain, _, name = kind.rpartition(".")
        operands = [last, "w"] if name == "MatMul" else [last]
        nodes.append(helper.make_node(name, operands, [f"t{number}"], name=f"n{number}", domain=domain))
        last = f"t{number}"
    shape = [64, 256]
    infos = [helper.make_tensor_value_info(f"t{number}", 1, shape) for number in range(len(kinds))]
    weight = onnx.numpy_helper.from_array(np.full((256, 256), 0.01, np.float32), "w")
    x = helper.make_tensor_value_info("x", 1, shape)
    graph = helper.make_graph(nodes, "chain", [x], [infos[-1]], [weight], value_info=infos[:-1])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), str(path))
    return path


@pytest.mark.parametrize(("kinds", "converted", "pieces", "borders"), [
    (("MatMul", "Erf", "MatMul", "Softmax"), 4, 1, 0),
    (("MatMul", "mine.Foo", "MatMul", "Softmax"), 3, 2, 2),
    (("mine.Foo", "MatMul", "Erf"), 2, 1, 1),
    (("mine.Foo", "MatMul", "mine.Foo", "Erf", "mine.Bar"), 2, 2, 4),
    (("mine.Foo",), 0, 0, 0),
])  # fmt: skip
def test_nodes_without_a_kernel_are_named_and_cut_the_model_in_pieces(tmp_path, kinds, converted, pieces, borders):
    pytest.importorskip("onnxruntime")
    found = coverage(model(tmp_path / "m.onnx", kinds), "onnxruntime")
    assert (found.node_count, found.converted_count, found.fragment_count) == (len(kinds), converted, pieces)
    assert (found.boundary_count, found.boundary_bytes) == (borders, borders * BYTES)
    assert [row.node for row in found.ledger] == [
        f"{kind} n{number}" for number, kind in enumerate(kinds) if "." in kind
    ]
    assert all("not a registered function" in row.reason for row in found.ledger)
    assert (found.converted_s is None) == bool(found.ledger)


def test_a_node_behind_one_of_an_unknown_domain_is_tried_with_the_format_before_it(tmp_path):
    pytest.importorskip("onnxruntime")
    path = model(tmp_path / "m.onnx", ("MatMul", "mine.Foo", "Greater", "Not", "mine.Foo", "Cast"))
    stated = onnx.load(str(path))
    del stated.graph.value_info[:]  # as tools leave it
    for node in stated.graph.node:
        node.input.extend(["w"] if node.op_type == "Greater" else [])
        node.attribute.extend([onnx.helper.make_attribute("to", 1)] if node.op_type == "Cast" else [])
    stated.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.ones((256, 256), np.float32), "w"))
    onnx.save(stated, str(path))
    found = coverage(path, "onnxruntime")
    assert [row.node for row in found.ledger] == ["mine.Foo n1", "mine.Foo n4"]
    assert all("not a registered function" in row.reason for row in found.ledger)


def test_bytes_across_borders_are_unknown_where_a_shape_is(tmp_path):
    pytest.importorskip("onnxruntime")
    path = model(tmp_path / "m.onnx", ("MatMul", "mine.Foo", "MatMul", "Softmax"))
    stated = onnx.load(str(path))
    del stated.graph.value_info[:]  # what no rule infers behind a node of an unknown domain
    onnx.save(stated, str(path))
    found = coverage(path, "onnxruntime")
    assert (found.boundary_count, found.boundary_bytes, found.boundary_s) == (2, None, None)
    assert "  bytes across borders: unknown" in _words(found)


def test_a_type_to_leave_out_that_the_model_lacks_is_refused_with_those_that_it_has(tmp_path):
    pytest.importorskip("onnxruntime")
    with pytest.raises(SpecError, match="no node of type 'Gelu' to leave out; it has Erf, MatMul"):
        coverage(model(tmp_path / "m.onnx", ("MatMul", "Erf")), "onnxruntime", without=("Gelu",))


@pytest.mark.parametrize(("without", "least", "pieces"), [
    ((), 1, 1), (("Erf",), 1, 2), (("MatMul",), 1, 2), (("Erf",), 2, 1), (("Erf",), 3, 0),
])  # fmt: skip
def test_results_are_the_same_however_the_model_is_cut_and_the_pieces_are_timed(tmp_path, without, least, pieces):
    pytest.importorskip("onnxruntime")
    path = model(tmp_path / "m.onnx", ("MatMul", "Erf", "MatMul", "Softmax"))
    found = coverage(path, "onnxruntime", without=without, least_count=least)
    assert found.fragment_count == pieces
    assert found.pieces_s > 0
    assert found.pieces_error_ratio <= 1e-6
    assert found.placed == (("CPUExecutionProvider", 4),)
    assert len(found.ledger) == 4 - found.converted_count
    if found.ledger:
        assert all(row.flop_ratio is not None for row in found.ledger)
        assert all(0 < row.time_ratio < 1 for row in found.ledger)
        assert "on request" in found.ledger[0].reason or "of at least" in found.ledger[0].reason


def test_errors_call_the_model_as_it_was_given(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    model(tmp_path / "m.onnx", ("MatMul", "Erf"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match=r"^m\.onnx: has no node of type 'Gelu'"):
        coverage(Path("m.onnx"), "onnxruntime", without=("Gelu",))
    (tmp_path / "bad.py").write_text("x = 1\n")
    with pytest.raises(SpecError, match=r"^bad\.py: it has no Model"):
        coverage(Path("bad.py"), "torch_compile")


def test_a_problem_file_that_is_not_python_is_refused_as_input_and_not_as_a_measurement(tmp_path):
    (tmp_path / "bad.py").write_text("def f(\n", encoding="utf-8")
    with pytest.raises(SpecError, match=r"bad\.py: is not Python: '\(' was never closed"):
        coverage(tmp_path / "bad.py", "torch_compile")


def test_nodes_in_graphs_and_arithmetic_that_graphs_leave_to_pytorch_are_told_apart():
    row = Fallback(node="aten.sdpa", ran_on="aten", reason="the compiler has no code for it", flop_ratio=0.052)
    found = Conversion(
        model="m.py", runner="torch_compile", node_count=41, converted_count=41, fragment_count=1, boundary_count=0,
        boundary_bytes=0, boundary_s=None, converted_s=None, unconverted_s=None, ledger=(row,),
    )  # fmt: skip
    words = " ".join(_words(found).split())
    assert words.startswith("m.py on torch_compile: 41 of 41 nodes in its graphs, 94.8% of the arithmetic in code that")


def test_words_say_nodes_and_keep_shares_that_are_none_and_unknown():
    row = Fallback(node="Erf n1", ran_on="nothing", reason="left out", flop_ratio=0.0, time_ratio=0.25)
    found = Conversion(
        model="m.onnx", runner="onnxruntime", node_count=3, converted_count=2, fragment_count=1, boundary_count=1,
        boundary_bytes=0, boundary_s=None, converted_s=None, unconverted_s=None, ledger=(row,),
        placed=(("CPUExecutionProvider", 2), ("Other", 1)),
    )  # fmt: skip
    said = _words(found)
    assert said.startswith("m.onnx on onnxruntime: 2 of 3 nodes, 100.0% of the arithmetic\n")
    assert "  2 nodes on CPUExecutionProvider\n  1 node on Other\n" in said
    assert "(0.0% of the arithmetic, 25.0% of the time): left out" in said
    unknown = replace(found, ledger=(replace(row, flop_ratio=None),))
    assert "2 of 3 nodes, an unknown share of the arithmetic\n" in _words(unknown)
    assert "nothing (25.0% of the time): left out" in _words(unknown)


def test_pieces_of_a_model_that_does_not_run_whole_are_timed_alone(tmp_path):
    pytest.importorskip("onnxruntime")
    found = coverage(model(tmp_path / "m.onnx", ("MatMul", "mine.Foo", "MatMul")), "onnxruntime")
    assert found.pieces_s > 0
    assert found.pieces_error_ratio is None
    assert found.converted_s is None


@pytest.mark.slow
def test_a_graph_break_is_told_with_its_line_and_its_share(tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "broken.py"
    path.write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        y = x @ x\n"
        "        if y.sum().item() > 0:\n            y = y + 1\n        return y @ x\n"
        "def get_inputs():\n    return [torch.rand(16, 16)]\n"
    )
    words = ["coverage", str(path), "--runner", "torch_compile", "--limit", "400s", "--json"]
    done = CliRunner().invoke(application(), words)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["fragment_count"] == 2
    assert found["flop_ratio"] == 1.0
    assert [row["node"] for row in found["ledger"]] == ["everything between the graphs", "broken.py:5", "aten.mm"]
    kernel = found["ledger"][2]
    assert kernel["chosen"]
    assert kernel["flop"] == 2 * 2 * 16**3
    elsewhere = 255 + 256  # the sum, and one of y + 1: products are not all that is counted
    assert kernel["flop_ratio"] == pytest.approx(4 * 16**3 / (4 * 16**3 + elsewhere))
    assert 0 < kernel["time_ratio"] < 1
    assert 0 <= found["ledger"][0]["time_ratio"] < 1


@pytest.mark.slow
def test_arithmetic_that_is_no_product_counts_where_it_stays_outside_of_graphs(tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "outside.py"
    path.write_text(
        "import torch\n@torch._dynamo.disable\ndef outside(x):\n    return x * x + x\n"
        "class Model(torch.nn.Module):\n    def forward(self, x):\n        return outside(x + 1) + 2\n"
        "def get_inputs():\n    return [torch.rand(8, 8)]\n"
    )
    found = coverage(path, "torch_compile")
    assert found.ledger[0].flop == 2 * 64
    assert found.ledger[0].flop_ratio == found.flop_ratio == 0.5


@pytest.mark.parametrize(("name", "runner", "message"), [
    ("a.onnx", "torch_compile", "converts .py files"),
    ("a.py", "onnxruntime", "converts .onnx files"),
    ("a.onnx", "torch_cpu", "choose onnxruntime or torch_compile"),
    ("a.onnx", "onnxruntime", "not found"),
])  # fmt: skip
def test_what_cannot_be_converted_is_refused_by_name(tmp_path, name, runner, message):
    with pytest.raises(SpecError, match=message):
        coverage(tmp_path / name, runner)


def test_a_conversion_says_in_which_formats_the_runtime_forms_products(tmp_path):
    pytest.importorskip("onnxruntime")
    answer = coverage(model(tmp_path / "m.onnx", ["MatMul", "Relu", "MatMul"]), "onnxruntime")
    assert answer.executed == (("fp32", 2, 1.0),)
    assert answer.loose_count == 0
    assert "executed: 2 products in fp32 (100.0% of the multiply-adds)" in _words(answer)
    assert "3 quantise or dequantise nodes left" in _words(replace(answer, loose_count=3))
