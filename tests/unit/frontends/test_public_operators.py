"""Calls of public functions that need more than one dispatched operator, known lengths or a definition spelled out."""

import onnx
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from onnx import TensorProto, helper

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.frontends.onnx.onnx_file import capture_onnx
from nearpeak.frontends.torch.module_capture import capture_torch


def captured(function, *tensors, step="forward"):
    return capture_torch(lambda: function, (tensors, {}), CaptureOptions(step=step), name="m", optimizer="none")


MATRIX, TALL, ROWS = torch.empty(2, 5, 5), torch.empty(2, 6, 4), torch.empty(6, 9)
CALLS = [
    (torch.linalg.qr, (TALL,), "decomposition", {"function": "qr", "batch": 2, "m": 6, "n": 4}),
    (lambda a: torch.linalg.qr(a, mode="complete"), (TALL,), "decomposition", {"function": "qr_complete"}),
    (torch.linalg.svd, (TALL,), "decomposition", {"function": "svd_full"}),
    (torch.linalg.eigh, (MATRIX,), "decomposition", {"function": "eigh", "n": 5}),
    (torch.linalg.lu_factor, (TALL,), "decomposition", {"function": "lu_packed"}),
    (lambda a, b: torch.linalg.lstsq(a, b).solution, (TALL, torch.empty(2, 6, 3)), "decomposition", {"right": 3}),
    (torch.linalg.cross, (torch.empty(8, 3), torch.empty(1, 3)), "cross", {"vectors": 8, "b": 1}),
    (lambda x: F.adaptive_max_pool2d(x, (2, 3)), (torch.empty(1, 4, 7, 9),), "adaptive_max_pool", {"oh": 2, "ow": 3}),
    (lambda x: torch.linalg.vector_norm(x, 3), (ROWS,), "reduce", {"function": "norm_p", "reduced": 54}),
    (lambda x: torch.linalg.vector_norm(x, 0, dim=1), (ROWS,), "reduce", {"function": "norm_0", "outputs": 6}),
    (torch.mode, (ROWS,), "mode", {"rows": 6, "columns": 9}),
    (F.pdist, (ROWS,), "pdist", {"n": 6, "k": 9}),
    (lambda x: torch.cdist(x, x, p=4.0), (ROWS,), "cdist", {"norm": "p"}),
    (F.bilinear, (torch.empty(4, 5), torch.empty(4, 6), torch.empty(3, 5, 6)), "trilinear", {"out": 3, "left": 5}),
    (lambda x: F.pad(x, (-2, 3), mode="replicate"), (ROWS,), "edge_pad", {"w": 7, "pw": 0, "pw_end": 3}),
    (lambda x: torch.unfold_copy(x, 1, 2, 3), (ROWS,), "copy", {"elements": 36, "read": 36}),
    (torch.polygamma, (1, ROWS), "elementwise", {"function": "polygamma"}),
    (torch.complex, (ROWS, ROWS.clone()), "copy", {"elements": 108, "dtype": "fp32"}),
    (lambda x, w: F.binary_cross_entropy_with_logits(x, x, w), (ROWS, ROWS[0]), "pointwise_loss", {"weight": 9}),
]  # fmt: skip


@pytest.mark.parametrize(("function", "tensors", "op", "wanted"), CALLS)
def test_calls_of_public_functions_are_matched(function, tensors, op, wanted):
    calls = captured(function, *tensors).calls
    record = next(call.case.record() for call in calls if call.case is not None and call.case.op == op)
    assert {name: record[name] for name in wanted} == wanted


def test_lengths_of_sequences_are_taken_from_tensors():
    labels = torch.randint(1, 5, (2, 3))
    lengths = (torch.tensor([10, 7]), torch.tensor([3, 2]))
    workload = captured(lambda x: F.ctc_loss(x, labels, *lengths), torch.empty(10, 2, 5), step="train")
    for phase in ("forward", "backward"):
        found = [c.case.record() for c in workload.calls if c.phase == phase and c.case and c.case.op == "ctc_loss"]
        assert [(case["time"], case["labels"], case["batch"]) for case in found] == [(7, 2, 1), (10, 3, 1)]


def test_inputs_that_ask_for_gradients_are_the_only_ones_to_get_them():
    target = torch.ones(4, 3)
    workload = captured(F.soft_margin_loss, torch.empty(4, 3, requires_grad=True), target, step="train")
    assert [call.case.op for call in workload.calls if call.phase == "backward"][-1] == "pointwise_loss"


def test_a_tensor_made_by_autograd_may_be_an_input():
    made = torch.ones(4, 3, requires_grad=True).log()
    workload = captured(torch.exp, made, step="train")
    assert all(call.case is not None for call in workload.calls)


def onnx_workload(folder, nodes, inputs, outputs, initializers=()):
    infos = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in row] for row in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *infos, list(initializers))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), folder / "m.onnx")
    return capture_onnx(folder / "m.onnx")


def test_an_operator_that_the_standard_defines_is_replaced_by_its_definition(tmp_path):
    node = helper.make_node("MeanVarianceNormalization", ["x"], ["y"])
    workload = onnx_workload(tmp_path, [node], [("x", (2, 3, 4, 4))], [("y", (2, 3, 4, 4))])
    assert {call.case.op for call in workload.calls} == {"reduce", "elementwise"}


def test_a_branch_that_a_constant_decides_is_the_one_that_runs(tmp_path):
    bodies = {}
    for name, op in (("then_branch", "Exp"), ("else_branch", "Sin")):
        result = helper.make_tensor_value_info(name, TensorProto.FLOAT, (4,))
        bodies[name] = helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [result])
    chosen = helper.make_tensor("c", TensorProto.BOOL, (), [False])
    node = helper.make_node("If", ["c"], ["y"], **bodies)
    workload = onnx_workload(tmp_path, [node], [("x", (4,))], [("y", (4,))], [chosen])
    assert [dict(call.case.attributes)["function"] for call in workload.calls] == ["sin"]


@pytest.mark.parametrize(
    ("equation", "shapes", "op", "wanted"),
    [("bij,bjk->bik", ((2, 3, 4), (2, 4, 5)), "gemm", {"batch": 2, "m": 3, "n": 5, "k": 4}),
     ("ij,kj", ((3, 4), (5, 4)), "gemm", {"batch": 1, "m": 3, "n": 5, "k": 4}),
     ("...ii->...i", ((2, 3, 3),), "copy", {"elements": 6}),
     ("ij->i", ((3, 4),), "reduce", {"outputs": 3, "reduced": 4})],
)  # fmt: skip
def test_einstein_sums_are_products_sums_or_movements(tmp_path, equation, shapes, op, wanted):
    inputs = [(f"x{place}", shape) for place, shape in enumerate(shapes)]
    node = helper.make_node("Einsum", [name for name, _ in inputs], ["y"], equation=equation)
    record = onnx_workload(tmp_path, [node], inputs, [("y", None)]).calls[0].case.record()
    assert record["op"] == op
    assert {name: record[name] for name in wanted} == wanted
