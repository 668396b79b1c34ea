"""Host execution traces as workloads: outermost operators once each, with phases, in both schemas."""

import json

import pytest

pytest.importorskip("torch")
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import SpecError
from nearpeak.frontends.source_types import captured

B = "Tensor(c10::BFloat16)"


def node(number, name, parent, shapes=(), types=(), values=()):
    inputs = {"values": list(values), "shapes": list(shapes), "types": list(types)}
    return {"id": number, "name": name, "ctrl_deps": parent, "inputs": inputs, "outputs": {}, "attrs": []}


def trace(tmp_path, *nodes):
    path = tmp_path / "et.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": list(nodes)}))
    return str(path)


def cases(workload):
    return [(call.case.op if call.case else "", call.phase, call.call_count) for call in workload.calls]


LINEAR = ([[32, 64], [128, 64], [128]], [B, B, B], [[1], [2], [3]])


def test_operators_count_once_with_those_that_they_call(tmp_path):
    inner = node(4, "aten::addmm", 3, [[128], [32, 64], [64, 128], [], []], [B, B, B, "Int", "Int"], [1, 2, 3, 1, 1])
    again = node(6, "aten::linear", 2, *LINEAR)
    found = captured(
        trace(tmp_path, node(2, "step", 1), node(3, "aten::linear", 2, *LINEAR), inner, again), CaptureOptions()
    )
    assert cases(found) == [("gemm", "forward", 2)]
    assert dict(found.calls[0].case.axes)["k"] == 64


def test_phases_come_from_the_nodes_above(tmp_path):
    back = node(3, "autograd::engine::evaluate_function: MmBackward0", 2)
    grad = node(5, "aten::mm", 4, [[8, 4], [4, 8]], [B, B], [[1], [2]])
    step = node(7, "Optimizer.step#SGD.step", 2)
    update = node(
        8,
        "aten::_foreach_add_",
        7,
        [[[8]], [[8]], []],
        [f"GenericList[{B}]", f"GenericList[{B}]", "Double"],
        [0, 0, -0.1],
    )
    found = captured(
        trace(tmp_path, node(2, "t", 1), back, node(4, "MmBackward0", 3), grad, step, update), CaptureOptions()
    )
    assert [(op, phase) for op, phase, _ in cases(found)] == [("gemm", "backward"), ("elementwise", "optimizer")]


def test_views_are_apart_and_what_has_no_rule_is_uncovered(tmp_path):
    view = node(3, "aten::t", 2, [[8, 4]], [B], [[1]])
    sends = node(4, "c10d::allreduce_", 2, [[8]], [B], [[1]])
    found = captured(trace(tmp_path, node(2, "t", 1), view, sends), CaptureOptions())
    assert dict(found.skipped) == {"aten::t": 1}
    assert [(call.case, call.operator) for call in found.calls] == [(None, "c10d::allreduce_")]


def test_the_older_schema_has_lists_beside_each_other(tmp_path):
    old = {
        "id": 3,
        "name": "aten::mm",
        "parent": 2,
        "inputs": [[1], [2]],
        "input_shapes": [[8, 4], [4, 8]],
        "input_types": [B, B],
    }
    assert cases(captured(trace(tmp_path, old), CaptureOptions())) == [("gemm", "forward", 1)]


def test_a_trace_without_operators_is_refused(tmp_path):
    with pytest.raises(SpecError, match="holds no operator; record it with ExecutionTraceObserver"):
        captured(trace(tmp_path, node(2, "a", 2)), CaptureOptions())
