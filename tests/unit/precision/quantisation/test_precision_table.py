"""Precision table of ONNX files: rows, marks, accuracy of files, and refusals in one line."""

import dataclasses
import json
import re

import numpy as np
import pytest

import nearpeak
from nearpeak.api.model_precision import _runs, precision
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import NearpeakError
from nearpeak.judgement.step_answer import energy_of, expected_of
from nearpeak.precision.quantisation.executed_products import ExecutedGraph, ExecutedProduct
from nearpeak.precision.quantisation.half_precision_file import in_half
from nearpeak.precision.quantisation.measured_files import measured_files
from nearpeak.precision.quantisation.precision_table import (
    Accuracy,
    PrecisionRow,
    PrecisionTable,
    SchemeRun,
    TargetTime,
)
from nearpeak.precision.quantisation.precision_verdict import accuracy_verdicts_of, verdicts_of
from nearpeak.precision.quantisation.quantised_files import write_quantised
from nearpeak.reports.document.terminal import to_terminal
from nearpeak.reports.quantisation.precision_table_report import document_of, to_json
from nearpeak.targets import target_of

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
BATCH, WIDE, CLASSES = 4, 64, 10


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    draw, helper, kind = np.random.default_rng(0), onnx.helper, onnx.TensorProto.FLOAT
    weights = [
        onnx.numpy_helper.from_array((draw.standard_normal(shape) / 8).astype(np.float32), name)
        for name, shape in (("w", (WIDE, WIDE)), ("v", (WIDE, CLASSES)))
    ]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("MatMul", ["b", "v"], ["y"])]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, (BATCH, WIDE))],
        [helper.make_tensor_value_info("y", kind, (BATCH, CLASSES))], weights,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("model") / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), str(path))
    return path


@pytest.fixture(scope="module")
def labelled(model):
    import onnxruntime

    x = np.random.default_rng(1).standard_normal((40, WIDE)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    answers = np.concatenate([session.run(None, {"x": x[at : at + BATCH]})[0].argmax(1) for at in range(0, 40, BATCH)])
    np.savez(model.parent / "x.npz", x=x)
    np.save(model.parent / "y.npy", answers)
    return model.parent / "x.npz", model.parent / "y.npy"


def test_rows_of_every_precision_on_a_target(model):
    table = precision(model, [target_of("h100_sxm")], schemes=())
    rows = {row.precision: row for row in table.rows}
    assert list(rows) == ["fp32", "tf32", "bf16", "fp8", "int8", "int4"]
    elements = WIDE * WIDE + WIDE * CLASSES
    assert rows["fp32"].weight_bytes == 4 * elements
    assert rows["bf16"].weight_bytes == 2 * elements
    assert rows["int8"].weight_bytes == elements + 4 * (WIDE + CLASSES)
    assert rows["int4"].weight_bytes < rows["int8"].weight_bytes
    bounds = {name: row.times[0].bound_s for name, row in rows.items()}
    assert bounds["int8"] <= bounds["bf16"] <= bounds["tf32"] <= bounds["fp32"]
    assert all(row.times[0].predicted_s > row.times[0].bound_s for row in rows.values())
    assert rows["tf32"].times[0].predicted_s <= rows["fp32"].times[0].predicted_s, "the graph's launch sets both"
    assert not table.runtime
    text = to_terminal(document_of(table), width=160)
    assert " expected " in text
    assert re.search(r" +h100_sxm +predicted +energy", text)


@pytest.mark.parametrize(("with_product", "words"), [
    (False, "int4: weights alone in int4 are not modelled for convolutions, which hold most of the weights here"),
    (True, "int4: 1 convolution stays in bf16; weights alone in int4 are not modelled for convolutions"),
])  # fmt: skip
def test_convolutions_with_int4_weights_are_left_out_in_one_clear_line(tmp_path, with_product, words):
    helper, kind, draw = onnx.helper, onnx.TensorProto.FLOAT, np.random.default_rng(0)
    stored = {"w": draw.standard_normal((8, 4, 3, 3)).astype(np.float32)}
    nodes, shape = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])], (1, 8, 8, 8)
    if with_product:
        stored |= {"v": draw.standard_normal((8, 512)).astype(np.float32)}
        nodes, shape = [*nodes, helper.make_node("MatMul", ["y", "v"], ["z"])], (1, 8, 8, 512)
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, (1, 4, 8, 8))],
        [helper.make_tensor_value_info(nodes[-1].output[0], kind, shape)],
        [onnx.numpy_helper.from_array(array, name) for name, array in stored.items()],
    )  # fmt: skip
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), str(path))
    table = precision(path, [target_of("h100_sxm")], precisions=("int4",), schemes=())
    assert words in to_terminal(document_of(table), width=160)
    (row,) = (row for row in table.rows if row.precision == "int4")
    assert (row.weight_bytes is None) != with_product


def test_files_run_here_with_their_accuracy(model, labelled):
    data, labels = labelled
    table = precision(
        model, precisions=("int8", "int4"), schemes=("u8s8", "w4"), data=data, labels=labels, budget_s=0.02
    )
    runs = {run.scheme: run for row in table.rows for run in row.runs}
    assert set(runs) == {"fp32", "u8s8", "w4"}
    assert runs["fp32"].accuracy.mean_ratio == 1.0
    assert runs["u8s8"].accuracy.mean_ratio >= 0.8
    assert runs["u8s8"].executed.precisions == {"int8": 2}
    assert runs["w4"].executed.precisions == {"fp32": 2}
    assert all(run.measured_s > 0 and run.expected_s > 0 and run.file_bytes > 0 for run in runs.values())
    assert set(table.layer_choice.values()) <= {"int8", "fp32"}
    assert "not asked" in to_terminal(document_of(precision_without_target(table)), width=160)
    record = json.loads(to_json(table))
    assert record["marks"]["measured_s"] == "measured here"


def precision_without_target(table):
    rows = tuple(dataclasses.replace(one, runs=()) if one.precision == "int4" else one for one in table.rows)
    return dataclasses.replace(table, rows=rows)


@pytest.mark.parametrize(
    ("arrays", "labels", "message"),
    [
        ({"x": np.zeros((8, 3), np.float32)}, None, "'x' is 8 × 3; the model takes 4 × 64"),
        ({"z": np.zeros((8, WIDE), np.float32)}, None, "holds z; the model takes x"),
        ({"x": np.zeros((8, WIDE), np.float32)}, np.zeros(7, int), "8 whole numbers are wanted"),
        ({"x": np.zeros((8, WIDE), np.float32)}, np.zeros(8), "8 whole numbers are wanted"),
        ({"x": np.zeros((8, WIDE), np.float32)}, np.full(8, -1), "holds class -1"),
        ({"x": np.zeros((8, WIDE), np.float32)}, np.full(8, CLASSES), "tells 10 classes apart"),
        ({"x": np.full((8, WIDE), np.nan, np.float32)}, None, "'x' holds float32; numbers are right"),
        ({"x": np.full((8, WIDE), "a")}, None, "'x' holds <U1; numbers are right"),
        ({"x": np.full((8, WIDE), None)}, None, "'x': cannot be read as numbers: Object arrays"),
    ],
)
def test_data_that_do_not_fit_are_refused_in_one_line(model, tmp_path, arrays, labels, message):
    np.savez(tmp_path / "x.npz", **arrays)
    given = None
    if labels is not None:
        given = tmp_path / "y.npy"
        np.save(given, labels)
    with pytest.raises(NearpeakError, match=message) as refusal:
        measured_files(model, CaptureOptions(), ("u8s8",), data=tmp_path / "x.npz", labels=given)
    assert "\n" not in str(refusal.value)


def test_what_cannot_be_asked_is_refused(model, labelled, tmp_path):
    with pytest.raises(NearpeakError, match="int9"):
        precision(model, precisions=("int9",))
    with pytest.raises(NearpeakError, match="s9s9"):
        _runs(model, CaptureOptions(), ("fp32",), ("s9s9",), None, None, 0.1)
    with pytest.raises(NearpeakError, match="not found"):
        _runs(model, CaptureOptions(), ("fp32",), None, tmp_path / "missing.npz", None, 0.1)
    quantised = tmp_path / "quantised.onnx"
    feeds = [{"x": np.zeros((BATCH, WIDE), np.float32)}]
    assert write_quantised(model, quantised, "u8s8", feeds) == ""
    with pytest.raises(NearpeakError, match="is quantised already"):
        in_half(onnx, onnx.load(str(quantised)), "bf16")


def row(name, measured_s, predicted_s, **more):
    graph = ExecutedGraph(
        name=name, engine="", node_count=1, quantise_count=1, dequantise_count=2, loose_bytes=9, unlisted_count={},
        products=(ExecutedProduct(name="p", operator="o", precision=name, mac_count=1),),
    )  # fmt: skip
    run = SchemeRun(scheme=f"{name} file", text="", precision=name, measured_s=measured_s, executed=graph)
    time = TargetTime(target="t", bound_s=1.0, predicted_s=predicted_s)
    return PrecisionRow(precision=name, weight_bytes=1, activation_bytes=1, times=(time,), runs=(run,), **more)


def test_a_verdict_says_which_way_it_goes_and_what_ran():
    table = PrecisionTable(name="m", targets=("t",), rows=(row("fp32", 2.0, 4.0), row("int8", 2.5, 2.0)))
    (sentence,) = verdicts_of(table)
    assert sentence.startswith(
        "int8: 0.80× as fast (slower) here (int8 file), 1 of 1 product int8, 3 quantisations left"
    )
    assert sentence.endswith("on t predicted 2.00× as fast, not measured")


def test_accuracy_is_judged_against_fp32_that_was_trained_as_long():
    control = (0.99, 0.97)
    low = Accuracy(right_ratio=(0.90, 0.92), control_ratio=control, trained="ptq")
    high = Accuracy(right_ratio=(0.98, 0.97), control_ratio=control, trained="qat")
    assert low.difference_ratio == pytest.approx(-0.07)
    rows = (row("int4", None, None, trained=(low, high)),)
    (sentence,) = accuracy_verdicts_of(PrecisionTable(name="m", targets=(), rows=rows))
    assert (
        sentence
        == "int4: ptq −7.0 points from fp32 trained as long; qat as right as fp32; worth training (+6.5 points)"
    )
    assert Accuracy(right_ratio=(0.5,)).sd_ratio is None
    text = to_terminal(document_of(PrecisionTable(name="m", targets=(), rows=rows, verdicts=(sentence,))), width=80)
    assert text.startswith("m: int4 is as right as fp32 trained as long (qat)")


def test_a_precision_without_a_step_has_no_verdict_and_says_why():
    missing = PrecisionRow(
        precision="int4", weight_bytes=None, activation_bytes=None, times=(), reason="most weights in convolutions"
    )
    table = PrecisionTable(name="m", targets=("t",), rows=(row("fp32", 2.0, 4.0), missing))
    assert verdicts_of(table) == ()
    assert "most weights in convolutions" in to_terminal(document_of(table), width=100, is_unfolded=True)


@pytest.mark.parametrize("mode", ["", "graph", "compiled"])
def test_times_are_those_of_analyze_in_the_mode_that_is_named(mode):
    table = precision("resnet-50", [target_of("l4")], precisions=("bf16", "fp16"), execution=mode)
    assert [row.precision for row in table.rows] == ["fp32", "bf16", "fp16"]
    for row in table.rows:
        analysis = nearpeak.analyze(nearpeak.capture("resnet-50", dtype=row.precision), "l4", execution=mode)
        time = row.times[0]
        assert time.predicted_s == expected_of(analysis, analysis.targets[0]).time_s
        assert time.energy_j == energy_of(analysis, analysis.targets[0])
        assert time.execution == (mode or "eager")
    text = to_terminal(document_of(table))
    assert re.search(rf"precision +proved +{time.execution}", text)
    assert "weights" in text
    assert "energy" in text


def test_where_the_host_sets_every_time_the_title_says_so_and_the_lead_what_a_graph_gives():
    def at(name, predicted_s, graph_s):
        time = TargetTime(target="t", bound_s=1e-6, predicted_s=predicted_s, execution="eager", graph_s=graph_s)
        return PrecisionRow(precision=name, weight_bytes=1, activation_bytes=1, times=(time,))

    def title(*rows):
        document = document_of(PrecisionTable(name="m", targets=("t",), rows=rows))
        return document.title, document.lead

    rows = at("fp32", 2e-3, 9e-4), at("bf16", 2e-3, 3e-4), at("int8", 2e-3, 4e-4)
    graph = "--execution graph on t: bf16 is expected fastest, 300 µs"
    assert title(*rows) == ("m: the host sets every time on t, 2 ms, eager", graph)
    assert title(*rows[1:], at("fp32", 3e-3, None)) == ("m: bf16 is expected fastest on t, 2 ms, eager", "")
    plain = title(at("fp32", 2e-3, None), at("bf16", 3e-3, None))
    assert plain == ("m: nothing is expected to beat fp32 on t, 2 ms, eager", "")


def test_a_graph_s_time_stands_beside_that_of_the_host_alone():
    eager, graph = (
        precision("resnet-50", [target_of("h100_sxm")], precisions=("bf16",), execution=mode).rows[1].times[0]
        for mode in ("eager", "graph")
    )
    assert eager.graph_s == graph.predicted_s < eager.predicted_s
    assert graph.graph_s is None
