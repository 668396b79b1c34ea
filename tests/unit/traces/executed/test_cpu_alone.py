"""Traces in which the CPU did the work itself: real ones of PyTorch, hand-made profiles of onnxruntime."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.samples import SAMPLES, needs_samples

from nearpeak.core.traces.trace import EventKind
from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError
from nearpeak.ops import case
from nearpeak.targets import target_of
from nearpeak.traces import NO_ROW, read_trace
from nearpeak.traces.executed.executed_steps import executed_of
from nearpeak.traces.findings import report_of
from nearpeak.traces.timeline.host_operators import with_host_work


def node(start_us, length_us, operator, inputs, outputs, name=None, provider="CPUExecutionProvider"):
    shapes = {"input_type_shape": [{"float": one} for one in inputs]}
    shapes["output_type_shape"] = [{"float": one} for one in outputs]
    args = {"op_name": operator, "provider": provider, **shapes}
    name = f"{name or operator}_kernel_time"
    return {"cat": "Node", "pid": 1, "tid": 1, "ph": "X", "ts": start_us, "dur": length_us, "name": name, "args": args}


def session(start_us, length_us, name="model_run"):
    times = {"ts": start_us, "dur": length_us}
    return {"cat": "Session", "pid": 1, "tid": 1, "ph": "X", **times, "name": name, "args": {}}


def profile_of(tmp_path, *events):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(events), encoding="utf-8")
    return read_trace(path)


CONV = ("Conv", [[2, 8, 16, 16], [32, 4, 3, 3], [32]], [[2, 32, 8, 8]])
GEMM = ("Gemm", [[64, 32], [48]], [[64, 48]])
"""A product whose weight was packed and is not among its inputs."""


def runs(tmp_path, count=4):
    events = []
    for number in range(count):
        at = 1000 * number
        events += [session(at, 700), node(at + 100, 200, *CONV, name="/2/Relu"), node(at + 350, 300, *GEMM)]
    return profile_of(tmp_path, *events)


def test_nodes_are_work_of_the_cpu_within_the_runs_of_the_session(tmp_path):
    trace = runs(tmp_path)
    found = executed_of(trace, target_of("t4"))
    assert (found.cpu_alone, found.device, found.step_count) == (True, "CPU", 4)
    assert found.timeline.busy_ns == 4 * 500_000
    assert {one.name: one.cases[0] for one in found.operators} == {
        "Conv": case("conv", batch=2, in_channels=8, out_channels=32, h=16, w=16, kh=3, kw=3, sh=2, sw=2, ph=1,
                     pw=1, groups=2, bias=True, dtype="fp32"),
        "Gemm": case("gemm", m=64, n=48, k=32, bias=True, dtype="fp32"),
    }  # fmt: skip
    assert all(one.bound_s and one.predicted_s for one in found.operators)
    assert {one.family for one in found.operators} == {"conv", "gemm"}  # not of the activation that names the node
    names = {trace.name_of(item.event) for item in found.items}
    assert names == {"/2/Relu_kernel_time", "Gemm_kernel_time"}


def test_time_between_operators_is_found_and_what_the_caller_does_between_runs_is_not(tmp_path):
    report = report_of(executed_of(runs(tmp_path)))
    first = report.findings[0]
    assert first.id == "idle.framework"
    assert first.gain_s == pytest.approx(50e-6)  # 350 - 300; before the first node of a run lies the caller
    assert report.step_s == pytest.approx((3_000_000 + 700_000) / 4 * 1e-9)


def test_a_profile_whose_nodes_ran_elsewhere_is_refused(tmp_path):
    trace = profile_of(tmp_path, session(0, 700), node(100, 200, *CONV, provider="CUDAExecutionProvider"))
    with pytest.raises(SpecError, match="host's time of each node"):
        executed_of(trace)


def test_a_step_in_which_only_earlier_work_ends_is_not_looked_at_alone(tmp_path):
    trace = profile_of(tmp_path, node(0, 500, *CONV), session(400, 300), node(900, 100, *GEMM))
    found = executed_of(trace)
    assert (found.steps_found, found.timeline.busy_ns) == ("", 600_000)
    assert any("is idle between the marks" in note for note in found.notes)


@pytest.mark.parametrize(
    ("name", "category", "devices"),
    [("cudaLaunchKernel", "cuda_runtime", []), ("aten::cudnn_convolution", "cpu_op", []),
     ("aten::relu", "cpu_op", [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}])],
)  # fmt: skip
def test_operators_whose_device_was_not_recorded_are_not_taken_for_work_of_the_cpu(name, category, devices, tmp_path):
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.0, "dur": 9.0, "args": {}},
        {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": 2.0, "dur": 1.0, "args": {}},
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": devices, "traceEvents": events}))
    with pytest.raises(SpecError, match="has no device events; record with CUDA or HIP activities on"):
        executed_of(read_trace(path))
    this = replace(target_of("t4"), kind="cpu")
    assert executed_of(read_trace(path), this).cpu_alone  # unless somebody says that it is


def kineto(tmp_path, *operators):
    """Write operators (name, start, end) of one thread, in microseconds."""
    events = [
        {"ph": "X", "cat": "cpu_op", "name": n, "pid": 1, "tid": 1, "ts": float(a), "dur": float(b - a), "args": {}}
        for n, a, b in operators
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return read_trace(path)


def kernels(trace):
    return [
        (trace.name_of(row), trace.name_of(int(trace.launch[row])), int(trace.start_ns[row]), int(trace.end_ns[row]))
        for row in trace.rows(EventKind.KERNEL)
    ]


def test_what_the_catalogue_knows_is_one_piece_and_of_the_rest_the_innermost(tmp_path):
    trace = kineto(
        tmp_path,
        ("aten::linear", 0, 100), ("aten::t", 2, 8), ("aten::addmm", 10, 95), ("aten::copy_", 20, 30),
        ("mine::outer", 200, 300), ("mine::inner", 210, 260), ("aten::empty", 220, 225), ("aten::view", 400, 410),
    )  # fmt: skip
    found = with_host_work(trace, lambda name: name in ("aten::addmm", "aten::copy_"))
    starts = [(name, launched, start % 1_000_000, end - start) for name, launched, start, end in kernels(found)]
    assert starts == [
        ("aten::addmm", "aten::addmm", starts[0][2], 85_000),
        ("mine::inner", "mine::inner", starts[0][2] + 200_000, 50_000),
    ]
    assert found.header.devices[0].name == "CPU"


@pytest.mark.parametrize("seed", range(20))
def test_work_lies_within_its_operators_never_twice_and_everything_recorded_stays(seed, tmp_path):
    dice = np.random.default_rng(seed)
    rows = []

    def nest(start, end, depth):
        at = start
        while at < end - 4:
            stop = int(dice.integers(at + 1, end))
            rows.append((f"aten::op{dice.integers(6)}" if dice.random() < 0.7 else "aten::view", at, stop))
            if depth < 4 and stop - at > 6:
                nest(at + 1, stop - 1, depth + 1)
            at = stop + int(dice.integers(0, 5))

    nest(0, 400, 0)
    trace = kineto(tmp_path, *rows)
    found = with_host_work(trace, lambda name: name in ("aten::op1", "aten::op4"))
    kept = found.kind != EventKind.KERNEL
    assert (np.diff(found.start_ns) >= 0).all()
    for name in ("name", "start_ns", "end_ns", "thread"):
        assert (getattr(found, name)[kept] == getattr(trace, name)).all()
    old = np.flatnonzero(kept)
    parents = trace.parent[trace.parent != NO_ROW]
    assert (found.parent[kept][trace.parent != NO_ROW] == old[parents]).all()
    work = found.rows(EventKind.KERNEL)
    assert (found.start_ns[work][1:] >= found.end_ns[work][:-1]).all()
    joined = found.launch[work]
    assert (found.start_ns[joined] == found.start_ns[work]).all()
    assert (found.kind[joined] == EventKind.HOST_OP).all()


def test_a_real_profile_of_pytorch_stands_beside_its_bounds(tmp_path):
    torch = pytest.importorskip("torch")
    from tests.unit.traces.executed.recorded import profiled

    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 32)).eval()
    given = torch.randn(16, 64)
    with torch.no_grad():
        profiled(lambda: model(given), tmp_path / "trace.json")
    found = executed_of(read_trace(tmp_path / "trace.json"), target_of("t4"))
    assert (found.cpu_alone, found.step_count + found.left_out_count, found.unmatched_ns) == (True, 4, 0)
    assert sorted(one.name for one in found.operators) == ["aten::addmm", "aten::addmm", "aten::gelu"]
    assert all(one.call_count == found.step_count and one.bound_s for one in found.operators)
    line = found.timeline
    assert line.compute_ns + line.idle_ns == line.span_ns
    assert "aten::linear" not in {one.name for one in found.kernels}


@needs_samples
def test_the_sample_of_onnxruntime_has_a_case_behind_most_of_its_time():
    found = executed_of(read_trace(SAMPLES / "onnxruntime" / "tiny_cpu.json"), target_of("t4"))
    assert (found.step_count, found.left_out_count) == (1, 2)
    cases = [one.cases[0] for one in found.operators if one.cases]
    assert all(isinstance(one, Case) for one in cases)
    assert {one.op for one in cases} == {"conv", "adaptive_avg_pool", "gemm"}
    assert found.unmatched_ns < 0.1 * found.timeline.busy_ns


def test_a_real_profile_of_onnxruntime_has_a_case_behind_each_of_its_products(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    helper, kind = pytest.importorskip("onnx").helper, 1
    weights = {"w": (32, 3, 3, 3), "u": (32, 48)}  # in blocks of 8 or 16 channels no channel is padded
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "u"], ["y"]),
    ]
    values = [
        helper.make_tensor(name, kind, shape, np.ones(shape, np.float32).ravel().tolist())
        for name, shape in weights.items()
    ]
    ends = [helper.make_tensor_value_info(n, kind, s) for n, s in (("x", (2, 3, 16, 16)), ("y", (2, 48)))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    wanted = onnxruntime.SessionOptions()
    wanted.enable_profiling, wanted.profile_file_prefix = True, str(tmp_path / "profile")
    ran = onnxruntime.InferenceSession(model.SerializeToString(), wanted, providers=["CPUExecutionProvider"])
    for _ in range(4):
        ran.run(None, {"x": np.ones((2, 3, 16, 16), np.float32)})
    found = executed_of(read_trace(Path(ran.end_profiling())), target_of("t4"))
    cases = {one.cases[0].op: dict(one.cases[0].axes) for one in found.operators if one.cases}
    assert found.step_count + found.left_out_count == 4
    assert (cases["conv"]["sh"], cases["conv"]["ph"], cases["conv"]["out_channels"]) == (2, 1, 32)
    assert (cases["gemm"]["m"], cases["gemm"]["n"], cases["gemm"]["k"]) == (2, 48, 32)
