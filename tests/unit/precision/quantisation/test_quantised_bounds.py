"""Bounds of quantised files: never above what their own executed products need at the roofs of their formats."""

import random
import tomllib

import pytest
from benchmarks._quantised_graphs import SCHEMES, quantised_file

from nearpeak.api.questions import bound
from nearpeak.core.answers.bound import Policy
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.frontends.onnx.onnx_file import capture_onnx
from nearpeak.measurement.machine.roofs import cpu_target_text
from nearpeak.precision.quantisation.optimised_graph import executed_file
from nearpeak.targets.device_file import parse_target

pytest.importorskip("onnxruntime")
RATES = {"fp64": 5e10, "fp32": 1e11, "bf16": 2e11, "int8": 4e11}
CPU = parse_target("cpu", tomllib.loads(cpu_target_text({**RATES, "memory": 1e13, "launch": 1e-6})))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_bound_is_below_the_roofline_of_what_the_runtime_executes(scheme, tmp_path):
    path = tmp_path / "q.onnx"
    name = quantised_file(path, random.Random(f"sample {scheme}"), scheme)
    workload = capture_onnx(path, CaptureOptions())
    answer = bound(workload, CPU, Policy(cold_inputs=False))
    executed = executed_file(path)
    roofline_s = sum(2 * item.mac_count / RATES[item.precision] for item in executed.products)
    assert answer.terms_s.get("matrix", 0.0) <= roofline_s * (1 + 1e-9), name
    assert (
        answer.terms_s.get("matrix", 0.0) >= 0.2 * sum(2 * item.mac_count for item in executed.products) / RATES["int8"]
    )


def test_the_convolution_that_once_beat_its_bound_is_bounded_by_its_stored_formats(tmp_path):
    onnx = pytest.importorskip("onnx")
    make, kind, shape = onnx.helper.make_node, onnx.TensorProto, (8, 256, 56, 56)
    tensor = onnx.helper.make_tensor
    stored = [
        tensor("w", kind.INT8, (256, 256, 3, 3), bytes(256 * 256 * 9), raw=True), tensor("s", kind.FLOAT, (), [0.1]),
        tensor("z", kind.INT8, (), [0]),
    ]  # fmt: skip
    nodes = [
        make("QuantizeLinear", ["x", "s", "z"], ["q"]), make("DequantizeLinear", ["q", "s", "z"], ["a"]),
        make("DequantizeLinear", ["w", "s", "z"], ["b"]), make("Conv", ["a", "b"], ["y"], pads=[1, 1, 1, 1]),
    ]  # fmt: skip
    graph = onnx.helper.make_graph(
        nodes, "g", [onnx.helper.make_tensor_value_info("x", kind.FLOAT, shape)],
        [onnx.helper.make_tensor_value_info("y", kind.FLOAT, shape)], stored,
    )  # fmt: skip
    path = tmp_path / "big.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), str(path))
    answer = bound(capture_onnx(path, CaptureOptions()), CPU)
    macs = 8 * 256 * 256 * (3 * 56 - 2) ** 2  # taps that fall on padding are not counted
    assert answer.terms_s["matrix"] == pytest.approx(2 * macs / RATES["int8"])
    assert {rewrite.name for rewrite in answer.rewrites} == {"narrow_format"}
