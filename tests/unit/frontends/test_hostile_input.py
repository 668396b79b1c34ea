"""Samples of the campaigns: programs that attack their capture, damaged files of every format, ONNX that expands."""

import numpy as np
import pytest
from benchmarks import damaged_files, hostile_programs
from benchmarks._hostile_programs import QUICK

from nearpeak.base.isolation import Ending
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import CaptureError, SpecError
from nearpeak.exchange.power_logs import LOGS
from nearpeak.frontends.child_capture import _failure
from nearpeak.store.importers import IMPORTERS
from nearpeak.traces.formats import FORMATS as TRACES

onnx = pytest.importorskip("onnx", reason="needs onnx")
helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT


def test_programs_that_attack_their_capture_leave_nothing_behind():
    pytest.importorskip("torch", reason="needs torch")
    assert [(outcome.name, outcome.fault) for outcome in hostile_programs.tried(list(QUICK)) if outcome.fault] == []


@pytest.mark.parametrize("name", ["trace_kineto", "results_asv", "sweep_jsonl", "policy", "cases_csv"])
def test_damaged_files_give_a_value_or_one_line(name, monkeypatch):
    monkeypatch.setattr(damaged_files, "_bombs", lambda data: iter(()))
    monkeypatch.setattr(damaged_files, "MOST_S", float("inf"))  # a loaded machine is no fault
    monkeypatch.setattr("nearpeak.base.input_files.PATIENCE_S", 0.01)
    assert damaged_files.read_all(name, 5, 10)["faults"] == []


def test_the_campaign_damages_every_format_of_the_registries():
    formats = {f"{room}_{name}" for room, names in
               (("trace", TRACES), ("results", IMPORTERS), ("power", LOGS)) for name in names}  # fmt: skip
    assert formats - set(damaged_files.formats()) == set()


def captured(tmp_path, nodes, stored=(), functions=(), shape=(2, 2)):
    from nearpeak.frontends.onnx.onnx_file import capture_onnx

    inputs = [helper.make_tensor_value_info("x", FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [onnx.numpy_helper.from_array(a, n) for n, a in stored])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, functions=functions).SerializeToString())
    return capture_onnx(path, CaptureOptions())


def function(name, *calls):
    names = ["a", *(f"t{place}" for place in range(1, len(calls))), "b"]
    nodes = [
        helper.make_node(call, [names[place]], [names[place + 1]], domain="f" if call[0] == "f" else "")
        for place, call in enumerate(calls)
    ]
    return helper.make_function(
        "f", name, ["a"], ["b"], nodes, [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    )


def test_functions_that_multiply_or_call_themselves_are_refused_before_they_are_written_out(tmp_path):
    doubling = [function("f0", "Relu"), *(function(f"f{n}", f"f{n - 1}", f"f{n - 1}") for n in range(1, 40))]
    with pytest.raises(
        CaptureError, match=r"m.onnx: its functions expand to 1.65e\+12 nodes, over the limit of 200,000"
    ):
        captured(tmp_path, [helper.make_node("f39", ["x"], ["y"], domain="f")], functions=doubling)
    with pytest.raises(CaptureError, match="calls itself"):
        captured(tmp_path, [helper.make_node("fr", ["x"], ["y"], domain="f")], functions=[function("fr", "fr")])
    few = captured(tmp_path, [helper.make_node("f3", ["x"], ["y"], domain="f")], functions=doubling[:4])
    assert len(few.calls) == 8


@pytest.mark.parametrize("is_computed", [False, True])
def test_a_range_of_billions_is_not_listed(is_computed, tmp_path):
    stored = [("start", np.array(0)), ("step", np.array(1)), ("limit", np.array(1_000_000_000))]
    first = [helper.make_node("Size", ["x"], ["s"]), helper.make_node("Mul", ["s", "limit"], ["end"])]
    nodes = [
        *(first if is_computed else ()),
        helper.make_node("Range", ["start", "end" if is_computed else "limit", "step"], ["r"]),
        helper.make_node("Gather", ["r", "start"], ["g"]), helper.make_node("Cast", ["g"], ["c"], to=1),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]  # fmt: skip
    assert captured(tmp_path, nodes, stored).calls


@pytest.mark.parametrize("shape", [(-1, 4), (2, -3)])
def test_a_negative_extent_is_no_open_dimension(shape, tmp_path):
    with pytest.raises(SpecError, match=r"dimension \d is -\d in the file, which is no extent"):
        captured(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], shape=shape)


def test_a_killed_capture_process_is_blamed_on_memory_only_where_that_was_the_reason():
    killed = _failure("m.py", Ending(verdict="died", value=-9), CaptureOptions())
    assert "killed (SIGKILL), and not for its memory" in killed
    over = _failure("m.py", Ending(verdict="memory", value=1 << 40), CaptureOptions(memory_bytes=10**9))
    assert "took more memory than 1 GB; give more with --memory" in over
