"""ONNX files become calls: real graphs with known sizes, views and shape arithmetic left out, damage refused."""

from pathlib import Path

import pytest

from nearpeak.bounds.step.compulsory_work import live_calls
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.workload import Workload
from nearpeak.errors import CaptureError, SpecError
from nearpeak.frontends.onnx.onnx_file import capture_onnx

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def saved(folder: Path, nodes: list, inputs: list, outputs: list, initializers: list = (), opset: int = 17) -> Path:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    path = folder / "model.onnx"
    onnx.save(model, str(path))
    return path


def value(name: str, shape: list | None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def whole(name: str, values: list[int]) -> onnx.TensorProto:
    return helper.make_tensor(name, TensorProto.INT64, [len(values)], values)


def dense_macs(workload: Workload) -> int:
    """Return multiply-accumulates as papers count them: taps on padding included."""
    total = 0
    for case, count in workload.case_counts().items():
        axes = dict(case.axes)
        if case.op == "gemm":
            total += count * axes["batch"] * axes["m"] * axes["n"] * axes["k"]
        if case.op == "conv":
            outputs = 1
            for name in "dhw":
                reach = axes[f"d{name}"] * (axes[f"k{name}"] - 1) + 1
                outputs *= (axes[name] + axes[f"p{name}"] + axes[f"p{name}_end"] - reach) // axes[f"s{name}"] + 1
            taps = axes["kd"] * axes["kh"] * axes["kw"] * axes["in_channels"] // axes["groups"]
            total += count * axes["batch"] * axes["out_channels"] * outputs * taps
    return total


@pytest.mark.parametrize(
    ("name", "macs"), [("resnet50", 4_089_184_256), ("vgg19", 19_632_062_464), ("densenet121", 2_834_161_664)]
)
def test_multiplications_of_published_networks_are_exact(name, macs):
    assert dense_macs(capture_onnx(LIGHT / f"light_{name}.onnx")) == macs


@pytest.mark.parametrize("path", sorted(LIGHT.glob("*.onnx")), ids=lambda path: path.stem)
def test_every_node_of_the_light_models_has_a_known_shape(path):
    workload = capture_onnx(path)
    assert not [name for name in workload.uncovered_counts() if "not known" in name]
    assert [b.kind for b in workload.buffers].count("output") == 1


def test_weights_made_by_constant_of_shape_count_as_weights():
    workload = capture_onnx(LIGHT / "light_resnet50.onnx")
    weights = sum(buffer.bytes for buffer in workload.buffers if buffer.kind == "weight")
    # 25,557,032 trained parameters and the 53,120 running means and variances of 26,560 channels, 4 bytes each
    assert weights == 4 * (25_557_032 + 2 * 26_560)


def test_module_and_source_come_from_the_node_name(tmp_path):
    node = helper.make_node("Relu", ["x"], ["y"], name="/layer1/layer1.0/act/Relu")
    (call,) = capture_onnx(saved(tmp_path, [node], [value("x", [2, 3])], [value("y", None)])).calls
    assert (call.module, call.source) == ("layer1.0.act", "model.onnx#/layer1/layer1.0/act/Relu")


def test_open_first_dimension_is_the_batch_and_other_open_ones_are_asked_for(tmp_path):
    node = helper.make_node("Relu", ["x"], ["y"])
    path = saved(tmp_path, [node], [value("x", ["N", 3, "height", 8])], [value("y", None)])
    with pytest.raises(SpecError, match=r"'x': dimension 2 \(height\) is open.*--input-shape x=1,3,height,8"):
        capture_onnx(path)
    workload = capture_onnx(path, CaptureOptions(shapes={"x": (5, 3, 4, 8)}))
    assert workload.origin["inputs"] == "x 5×3×4×8 fp32"


def test_batch_reaches_every_input_with_the_same_symbol(tmp_path):
    node = helper.make_node("Add", ["x", "z"], ["y"])
    path = saved(tmp_path, [node], [value("x", ["N", 3]), value("z", ["N", 3])], [value("y", None)])
    assert capture_onnx(path, CaptureOptions(batch=7)).origin["inputs"] == "x 7×3 fp32, z 7×3 fp32"


def test_options_that_contradict_the_file_are_refused(tmp_path):
    path = saved(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], [value("x", [1, 3])], [value("y", None)])
    with pytest.raises(SpecError, match="dimension 1 is 4, but the file fixes it to 3"):
        capture_onnx(path, CaptureOptions(shapes={"x": (1, 4)}))
    with pytest.raises(SpecError, match="has 1 dimensions; the file's input has 2"):
        capture_onnx(path, CaptureOptions(shapes={"x": (1,)}))
    with pytest.raises(SpecError, match=r"--input-shape: input 'q': not known; known: x$"):
        capture_onnx(path, CaptureOptions(shapes={"q": (1,)}))
    with pytest.raises(SpecError, match="--batch 8: the file fixes input 'x' to 1"):
        capture_onnx(path, CaptureOptions(batch=8))
    with pytest.raises(SpecError, match="must be a whole number of at least 1"):
        capture_onnx(path, CaptureOptions(batch=0))


def test_shape_arithmetic_is_folded_and_its_reshape_is_a_view(tmp_path):
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "minus"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["flat"]),
        helper.make_node("Relu", ["flat"], ["y"]),
    ]
    path = saved(
        tmp_path, nodes, [value("x", ["N", 3, 4])], [value("y", None)], [whole("zero", [0]), whole("minus", [-1])]
    )
    workload = capture_onnx(path, CaptureOptions(batch=2))
    assert [call.operator for call in workload.calls] == ["Relu"]
    assert dict(workload.skipped) == {"Shape": 1, "Gather": 1, "Concat": 1, "Reshape": 1}
    assert workload.calls[0].reads[0].bytes == 2 * 12 * 4
    assert workload.buffers[workload.calls[0].reads[0].buffer].kind == "input"


def test_bodies_decided_by_data_and_foreign_operators_stay_uncovered(tmp_path):
    body = helper.make_graph([helper.make_node("Relu", ["x"], ["b"])], "body", [], [value("b", [2, 3])])
    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body),
        helper.make_node("Fancy", ["y"], ["z"], domain="com.example"),
        helper.make_node("Relu", ["z"], ["w"]),
    ]
    inputs = [value("x", [2, 3]), value("c", [1], TensorProto.BOOL)]
    workload = capture_onnx(saved(tmp_path, nodes, inputs, [value("w", None)]))
    assert workload.uncovered_counts() == {"If": 1, "com.example.Fancy": 1, "Relu (shape not known)": 1}
    assert any("If (1)" in sentence for sentence in workload.assumptions)
    assert any("'z'" in sentence for sentence in workload.assumptions)
    assert any("--input-value c=VALUE" in sentence for sentence in workload.assumptions)


def test_weights_in_a_missing_file_beside_are_not_needed_but_small_constants_are(tmp_path):
    def external(name, dims):
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT if len(dims) > 1 else TensorProto.INT64, dims=dims)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="absent.bin")
        return tensor

    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    path = saved(tmp_path, [node], [value("x", [8, 64])], [value("y", None)], [external("w", [64, 64])])
    assert capture_onnx(path).calls[0].case.label().startswith("gemm m=8 n=64 k=64")
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    path = saved(tmp_path, [node], [value("x", [8, 64])], [value("y", None)], [external("s", [2])])
    with pytest.raises(CaptureError, match="constant 's' is stored in an external file"):
        capture_onnx(path)


def test_files_that_are_not_sound_models_are_refused_in_one_line(tmp_path):
    broken = tmp_path / "broken.onnx"
    for content in (b"", b"hello, this is no model", (LIGHT / "light_resnet50.onnx").read_bytes()[:9000]):
        broken.write_bytes(content)
        with pytest.raises(CaptureError) as caught:
            capture_onnx(broken)
        assert "\n" not in str(caught.value)
    with pytest.raises(SpecError, match="not found"):
        capture_onnx(tmp_path / "absent.onnx")
    path = saved(tmp_path, [helper.make_node("Relu", ["nowhere"], ["y"])], [value("x", [1])], [value("y", None)])
    with pytest.raises(CaptureError, match="reads 'nowhere', which nothing before it writes"):
        capture_onnx(path)


def test_a_typing_error_in_a_shape_is_refused(tmp_path):
    path = saved(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], [value("x", ["N", 4096])], [value("y", None)])
    with pytest.raises(SpecError, match=r"over 2\^50 bytes"):
        capture_onnx(path, CaptureOptions(batch=10**12))


def test_old_softmax_flattens_from_its_axis(tmp_path):
    from nearpeak.core.work.tensor import Tensor
    from nearpeak.frontends.onnx.onnx_file import _modern_softmax
    from nearpeak.ops import OnnxSite

    tensor = Tensor(shape=(2, 3, 4), dtype="fp32")
    site = OnnxSite(name="Softmax", inputs=(tensor,), outputs=(tensor,), attributes={"axis": 1})
    assert _modern_softmax(site, 11).inputs[0].shape == (2, 12)
    assert _modern_softmax(site, 13) is site


def test_two_captures_are_equal():
    path = LIGHT / "light_squeezenet.onnx"
    assert capture_onnx(path) == capture_onnx(path)


def test_a_sum_of_two_is_an_addition():
    assert "Sum" not in capture_onnx(LIGHT / "light_resnet50.onnx").uncovered_counts()


def repeated(trips, condition=True):
    """Return a Loop that multiplies what it carries by a stored matrix, and yields each product."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["carried", "w"], ["next"]),
            helper.make_node("Identity", ["goes"], ["goes_on"]),
            helper.make_node("Identity", ["next"], ["row"]),
        ],
        "body",
        [value("i", [], TensorProto.INT64), value("goes", [], TensorProto.BOOL), value("carried", [2, 8])],
        [value("goes_on", [], TensorProto.BOOL), value("next", [2, 8]), value("row", [2, 8])],
        [helper.make_tensor("w", TensorProto.FLOAT, [8, 8], [0.5] * 64)],
    )
    stored = [helper.make_tensor("goes0", TensorProto.BOOL, [], [condition])]
    stored += [helper.make_tensor("trips", TensorProto.INT64, [], [trips])] if trips else []
    return [helper.make_node("Loop", ["trips", "goes0", "x"], ["last", "rows"], body=body)], stored


def test_a_loop_of_known_trips_runs_its_body_once_for_each(tmp_path):
    nodes, stored = repeated(3)
    path = saved(tmp_path, nodes, [value("x", [2, 8])], [value("last", [2, 8]), value("rows", [3, 2, 8])], stored)
    workload = capture_onnx(path)
    products = [dict(call.case.axes) for call in workload.calls if call.case is not None and call.case.op == "gemm"]
    assert [(axes["m"], axes["n"], axes["k"]) for axes in products] == [(2, 8, 8)] * 3
    assert not workload.uncovered_counts()
    assert {buffer.name for buffer in workload.buffers if buffer.kind == "output"} >= {"rows"}


def test_a_loop_whose_trips_data_decide_stays_uncovered(tmp_path):
    nodes, stored = repeated(None)
    inputs = [value("x", [2, 8]), value("trips", [], TensorProto.INT64)]
    workload = capture_onnx(saved(tmp_path, nodes, inputs, [value("last", [2, 8])], stored))
    assert list(workload.uncovered_counts().values()) == [1]
    assert any("decided by data" in sentence for sentence in workload.assumptions)


def test_a_loop_that_begins_false_is_not_taken_to_run(tmp_path):
    nodes, stored = repeated(3, condition=False)
    workload = capture_onnx(saved(tmp_path, nodes, [value("x", [2, 8])], [value("last", [2, 8])], stored))
    assert not [call for call in workload.calls if call.case is not None and call.case.op == "gemm"]


def test_a_scan_runs_its_body_once_for_each_row_of_its_input(tmp_path):
    body = helper.make_graph(
        [helper.make_node("Add", ["sum", "row"], ["total"]), helper.make_node("Mul", ["total", "row"], ["out"])],
        "body",
        [value("sum", [4]), value("row", [4])],
        [value("total", [4]), value("out", [4])],
    )
    node = helper.make_node("Scan", ["start", "x"], ["end", "outs"], body=body, num_scan_inputs=1)
    inputs = [value("start", [4]), value("x", [5, 4])]
    workload = capture_onnx(saved(tmp_path, [node], inputs, [value("end", [4]), value("outs", [5, 4])]))
    cases = [call.case for call in workload.calls if call.case is not None]
    assert sum(dict(case.axes).get("elements") == 4 for case in cases) >= 10
    assert not workload.uncovered_counts()


def test_what_a_scan_carries_decides_nothing(tmp_path):
    body = helper.make_graph(
        [helper.make_node("Add", ["sum", "row"], ["total"])], "body", [value("sum", [4]), value("row", [4])],
        [value("total", [4])],
    )  # fmt: skip
    node = helper.make_node("Scan", ["start", "x"], ["end"], body=body, num_scan_inputs=1)
    inputs = [value("start", [4]), value("x", [10**6, 4])]
    workload = capture_onnx(saved(tmp_path, [node], inputs, [value("end", [4])]))
    assert workload.uncovered_counts() == {"Scan": 1}
    assert not any("--input-value" in sentence for sentence in workload.assumptions)


def test_everything_that_is_missing_is_asked_for_at_once(tmp_path):
    node = helper.make_node("Add", ["x", "z"], ["y"])
    path = saved(tmp_path, [node], [value("x", ["N", "a", "b"]), value("z", ["c_len", "b"])], [value("y", None)])
    with pytest.raises(
        SpecError, match=r"'x': dimensions 1 \(a\), 2 \(b\) are open.*--input-shape z=c_len,b"
    ) as raised:
        capture_onnx(path)
    assert "'z': dimensions 0 (c_len), 1 (b)" in str(raised.value)


def test_usual_extents_are_guessed_and_named(tmp_path):
    node = helper.make_node("Relu", ["x"], ["y"])
    path = saved(tmp_path, [node], [value("x", ["batch", "time", 8])], [value("y", None)])
    workload = capture_onnx(path, CaptureOptions(guess_sizes=True, batch=2))
    assert workload.origin["inputs"] == "x 2×128×8 fp32"
    assert "Open sizes guessed: x dimension 1 (time) = 128." in workload.assumptions


def branched(folder: Path) -> Path:
    """Return a file that multiplies where its rate is 16000; both branches read a tensor from around them."""
    bodies = {
        name: helper.make_graph([node], name, [], [value(node.output[0], [4, 4])])
        for name, node in (
            ("then_branch", helper.make_node("MatMul", ["h", "w"], ["o1"])),
            ("else_branch", helper.make_node("Relu", ["h"], ["o2"])),
        )
    }
    nodes = [
        helper.make_node("Equal", ["rate", "known"], ["c"]),
        helper.make_node("Sigmoid", ["x"], ["h"]),
        helper.make_node("If", ["c"], ["y"], **bodies),
    ]
    weights = [helper.make_tensor("w", TensorProto.FLOAT, [4, 4], [0.0] * 16), whole("known", [16000])]
    inputs = [value("x", [4, 4]), value("rate", [1], TensorProto.INT64)]
    return saved(folder, nodes, inputs, [value("y", [4, 4])], weights)


def test_a_stated_value_decides_a_branch(tmp_path):
    path = branched(tmp_path)
    for rate, last in ((16000, "MatMul"), (8000, "Relu")):
        assert capture_onnx(path, CaptureOptions(input_values={"rate": (rate,)})).calls[-1].operator == last
    with pytest.raises(SpecError, match=r"--input-value rate=0\.5: is not whole"):
        capture_onnx(path, CaptureOptions(input_values={"rate": (0.5,)}))
    with pytest.raises(SpecError, match="has 2 values; the input holds 1"):
        capture_onnx(path, CaptureOptions(input_values={"rate": (1, 2)}))


def test_what_a_node_without_a_rule_reads_is_needed(tmp_path):
    known = [call.case is not None for call in capture_onnx(branched(tmp_path)).calls]
    assert live_calls(capture_onnx(branched(tmp_path))) == [True, True, True]
    assert known == [True, True, False]
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("Odd", ["h"], ["u"], domain="example.odd"),
        helper.make_node("Relu", ["u"], ["y"]),
    ]
    workload = capture_onnx(saved(tmp_path, nodes, [value("x", [4])], [value("y", None)]))
    assert live_calls(workload) == [True, True, True]
