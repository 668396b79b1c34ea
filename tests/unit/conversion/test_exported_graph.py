"""Engines that take programs of PyTorch: verdicts on core operators, pieces, and what is refused."""

import json

import pytest
from typer.testing import CliRunner

from nearpeak.api.conversion_coverage import engine_coverage
from nearpeak.cli import application
from nearpeak.conversion.capability_table import table_of
from nearpeak.conversion.exported_graph import exported_graph
from nearpeak.conversion.node_verdicts import verdict_of
from nearpeak.errors import NearpeakError

torch = pytest.importorskip("torch")
HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n\n"
XNNPACK, TENSORRT = "executorch-xnnpack:1.0", "torch-tensorrt:2.12"
IMAGE, ROWS = "torch.rand(1, 4, 8, 8)", "torch.rand(2, 3, 8)"


def problem(path, layers, body, inputs, names="x"):
    made = "".join(f"        self.{name} = {layer}\n" for name, layer in layers.items())
    path.write_text(
        f"{HEAD}class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n{made}\n"
        f"    def forward(self, {names}):\n        return {body}\n\n\ndef get_inputs():\n    return [{inputs}]\n"
    )
    return path


def verdicts(path, engine):
    table = table_of(engine)
    graph = exported_graph(path, preserved=table.preserved)
    return [(kind, verdict_of(table, graph, node)) for node, kind in enumerate(graph.kinds)]


CONV = {"conv": "nn.Conv2d(4, 4, 3, padding=1)", "norm": "nn.BatchNorm2d(4)", "line": "nn.Linear(8, 8)"}
CASES = (
    ("F.relu(self.norm(self.conv(image)))",
     "convolution supported", "_native_batch_norm_legit_no_training supported", "relu supported"),
    ("self.norm(image)", "_native_batch_norm_legit_no_training denied folds into"),
    ("F.hardswish(self.line(rows))", "linear supported", "hardswish supported"),
    ("F.linear(rows, weight)", "linear denied parameters only"),
    ("F.conv_transpose2d(image, self.conv.weight)", "convolution conditional transposed"),
    ("F.max_pool2d(image, 2)", "max_pool2d supported"),
    ("F.max_pool2d(image, 2, 3)", "max_pool2d denied above the window"),
    ("F.avg_pool2d(image, 3, padding=1)", "avg_pool2d denied padding"),
    ("F.avg_pool2d(image, 3, padding=1, count_include_pad=False)", "avg_pool2d supported"),
    ("image.mean((2, 3), keepdim=True)", "mean.dim supported"),
    ("image.mean((-1, -2))", "mean.dim denied keeps the axes"),
    ("image.mean((1,), keepdim=True)", "mean.dim denied last two axes"),
    ("F.softmax(rows, -1)", "_softmax supported"), ("F.softmax(rows, 1)", "_softmax denied last axis"),
    ("torch.add(rows, rows, alpha=2)", "add.Tensor denied scale"), ("rows + rows", "add.Tensor supported"),
    ("rows ** 2", "pow.Tensor_Scalar supported"), ("rows ** 3", "pow.Tensor_Scalar denied squares"),
    ("F.pad(rows, (1, -1))", "constant_pad_nd denied below 0"),
    ("F.gelu(half)", "gelu denied not fp16"), ("F.gelu(image)", "gelu supported"),
    ("image.max(1)[0]", "max.dim supported"), ("image.max(2)", "max.dim denied indices"),
    ("rows.double()", "_to_copy denied fp64"), ("torch.det(weight)", "_linalg_det unknown no row"),
)  # fmt: skip
"""Expressions, and what is to be said of each operator that they become."""


def test_conditions_of_xnnpack_are_decided(tmp_path):
    body = ", ".join(f"({text})" for text, *_ in CASES)
    inputs = f"{IMAGE}, {ROWS}, torch.rand(8, 8), {IMAGE}.half()"
    found = verdicts(problem(tmp_path / "p.py", CONV, body, inputs, "image, rows, weight, half"), XNNPACK)
    wanted = [line for _, *lines in CASES for line in lines]
    assert [kind.removeprefix("aten.") for kind, _ in found] == [line.split()[0] for line in wanted]
    for (kind, verdict), line in zip(found, wanted, strict=True):
        _, outcome, *words = line.split()
        assert (kind, verdict.verdict) == (kind, outcome)
        assert " ".join(words) in verdict.reason


def test_rows_are_those_of_the_documents():
    table = table_of(TENSORRT)
    assert {"aten.convolution", "aten.native_group_norm", "aten.view", "aten.where.self"} <= set(table.formats)
    assert len(table.formats) == 153 + 26 + 3  # converted, lowered, and pools whose indices nobody reads
    xnnpack = table_of(XNNPACK)
    assert "aten.native_layer_norm" not in xnnpack.formats  # the source does not name it: unknown, not denied
    assert not xnnpack.denied | table.denied
    assert set(xnnpack.preserved) <= set(xnnpack.formats)


def test_a_module_of_torch_is_cut_where_the_engine_knows_no_row(tmp_path):
    layers = {"conv": "nn.Conv2d(4, 4, 3, padding=1)", "norm": "nn.GroupNorm(2, 4)"}
    path = problem(tmp_path / "p.py", layers, "F.relu(self.conv(self.norm(F.relu(self.conv(x)))))", IMAGE)
    found = engine_coverage(path, XNNPACK, [])
    assert found.counts() == {"supported": 4, "unknown": 1}
    assert [(piece.is_converted, len(piece.keys)) for piece in found.pieces] == [(True, 2), (False, 1), (True, 2)]
    assert 0 < found.flop_ratio < 1
    whole = engine_coverage(path, TENSORRT, ["h100_sxm"])
    assert whole.counts() == {"supported": 5}
    (plan,) = whole.plans
    assert plan.as_is.total.time_s == plan.whole.total.time_s > 0
    assert not plan.unpredicted
    left = engine_coverage(path, TENSORRT, ["h100_sxm"], without=("aten.native_group_norm",))
    assert left.plans[0].as_is.total.time_s > plan.as_is.total.time_s
    assert [plugin.kind for plugin in left.plans[0].plugins] == ["aten.native_group_norm"]


def test_formats_that_the_document_leaves_out_are_unknown(tmp_path):
    ((_, verdict),) = verdicts(problem(tmp_path / "p.py", {}, "x + x", "torch.ones(4, dtype=torch.int16)"), TENSORRT)
    assert (verdict.verdict, "int16" in verdict.reason) == ("unknown", True)


def test_an_exported_archive_is_read_and_the_command_says_what_it_judged(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    torch.export.save(torch.export.export(model, (torch.rand(2, 8),)), tmp_path / "m.pt2")
    words = ["coverage", str(tmp_path / "m.pt2"), "--engine", XNNPACK]
    done = CliRunner().invoke(application(), [*words, "--json"])
    assert done.exit_code == 0, done.output
    assert [node["kind"] for node in json.loads(done.stdout)["nodes"]] == ["aten.linear", "aten.relu"]
    sarif = tmp_path / "s.sarif"
    assert "2 of 2 nodes convert" in CliRunner().invoke(application(), [*words, "--text", "--sarif", str(sarif)]).stdout
    assert json.loads(sarif.read_text())["runs"][0]["results"] == []


def test_what_such_an_engine_does_not_take_is_one_line(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"")
    path = problem(tmp_path / "p.py", {}, "x + x", ROWS)
    broken = problem(tmp_path / "b.py", {}, "x + (1 if x.sum() > 0 else 2)", ROWS)
    for model, engine, target, message in (
        (tmp_path / "m.onnx", XNNPACK, [], "takes programs of PyTorch"),
        (path, XNNPACK, ["h100_sxm"], "h100_sxm: is a gpu; executorch-xnnpack 1.0 runs on a cpu"),
        (path, "executorch-xnnpack:9", [], "there is executorch-xnnpack:1.0, tensorrt:10.1, torch-tensorrt:2.12"),
        (broken, XNNPACK, [], "b.py"),
    ):
        with pytest.raises(NearpeakError, match=message) as raised:
            engine_coverage(model, engine, target)
        assert "\n" not in str(raised.value)
