"""Nodes as a profile records them, without attributes, are the cases that capture finds with them."""

import pytest

onnx = pytest.importorskip("onnx")

from nearpeak.frontends.onnx.onnx_file import capture_onnx  # noqa: E402
from nearpeak.frontends.onnx.profiled_nodes import RecordedNode, recorded_nodes  # noqa: E402

NODES = [
    ("Conv", [(2, 8, 16, 16), (32, 8, 3, 3), (32,)], {"pads": [1, 1, 1, 1], "strides": [2, 2]}, [(2, 32, 8, 8)]),
    ("Conv", [(2, 8, 15, 17), (32, 8, 5, 5)], {"pads": [2, 2, 2, 2]}, [(2, 32, 15, 17)]),
    ("Conv", [(1, 16, 14, 14), (16, 1, 3, 3)], {"pads": [1, 1, 1, 1], "group": 16}, [(1, 16, 14, 14)]),
    ("Conv", [(1, 16, 14, 14), (24, 16, 1, 1), (24,)], {}, [(1, 24, 14, 14)]),
    ("Conv", [(1, 3, 224, 224), (64, 3, 7, 7)], {"pads": [3] * 4, "strides": [2, 2]}, [(1, 64, 112, 112)]),
    ("Conv", [(1, 4, 100), (8, 4, 3)], {}, [(1, 8, 98)]),
    ("Gemm", [(16, 24), (24, 40), (40,)], {}, [(16, 40)]),
    ("Gemm", [(16, 24), (40, 24), (40,)], {"transB": 1}, [(16, 40)]),
    ("Gemm", [(24, 16), (24, 40)], {"transA": 1}, [(16, 40)]),
    ("MatMul", [(4, 8, 16), (16, 32)], {}, [(4, 8, 32)]),
    ("MatMul", [(4, 8, 16), (4, 16, 32)], {}, [(4, 8, 32)]),
    ("Softmax", [(4, 8, 16)], {"axis": -1}, [(4, 8, 16)]),
    ("LayerNormalization", [(4, 8, 16), (16,), (16,)], {}, [(4, 8, 16)]),
    ("LayerNormalization", [(4, 8, 16), (8, 16)], {"axis": 1}, [(4, 8, 16)]),
    ("BatchNormalization", [(2, 8, 4, 4), (8,), (8,), (8,), (8,)], {}, [(2, 8, 4, 4)]),
    ("Add", [(4, 8), (8,)], {}, [(4, 8)]),
    ("Relu", [(4, 8)], {}, [(4, 8)]),
    ("Erf", [(4, 8)], {}, [(4, 8)]),
    ("Transpose", [(4, 8, 16)], {"perm": [0, 2, 1]}, [(4, 16, 8)]),
    ("Concat", [(4, 8), (4, 6)], {"axis": 1}, [(4, 14)]),
    ("GlobalAveragePool", [(2, 8, 7, 7)], {}, [(2, 8, 1, 1)]),
    ("Sum", [(4, 8), (4, 8), (4, 8)], {}, [(4, 8)]),
]


def saved(path, operator, inputs, attributes, outputs):
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    given = [helper.make_tensor_value_info(f"i{n}", kind, shape) for n, shape in enumerate(inputs)]
    got = [helper.make_tensor_value_info(f"o{n}", kind, shape) for n, shape in enumerate(outputs)]
    node = helper.make_node(operator, [one.name for one in given], [one.name for one in got], **attributes)
    graph = helper.make_graph([node], "one", given, got)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def recorded(operator, inputs, outputs):
    sides = [tuple(("float", shape) for shape in side) for side in (inputs, outputs)]
    return RecordedNode(operator, *sides)


@pytest.mark.parametrize(("operator", "inputs", "attributes", "outputs"), NODES)
def test_shapes_alone_give_the_case_that_the_file_gives(operator, inputs, attributes, outputs, tmp_path):
    wanted = capture_onnx(saved(tmp_path / "one.onnx", operator, inputs, attributes, outputs)).calls
    found = recorded_nodes([recorded(operator, inputs, outputs)])[0]
    assert [call.case for call in found] == [call.case for call in wanted]


def test_a_packed_weight_is_what_it_must_have_been():
    whole, packed = recorded_nodes(
        [recorded("Gemm", [(16, 24), (24, 40), (40,)], [(16, 40)]), recorded("Gemm", [(16, 24), (40,)], [(16, 40)])]
    )
    assert packed[0].case == whole[0].case
    whole, packed = recorded_nodes(
        [recorded("MatMul", [(4, 8, 16), (16, 32)], [(4, 8, 32)]), recorded("MatMul", [(4, 8, 16)], [(4, 8, 32)])]
    )
    assert packed[0].case == whole[0].case


def test_fused_factors_may_lie_turned():
    plain, turned = recorded_nodes(
        [
            recorded("MatMul", [(4, 8, 16), (4, 16, 32)], [(4, 8, 32)]),
            recorded("FusedMatMul", [(4, 8, 16), (4, 32, 16)], [(4, 8, 32)]),
        ]
    )
    assert dict(plain[0].case.axes) == dict(turned[0].case.axes)
    assert plain[0].case != turned[0].case


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (recorded("MaxPool", [(1, 8, 16, 16)], [(1, 8, 8, 8)]), "shapes do not tell"),
        (recorded("LSTM", [(5, 2, 8), (1, 64, 8), (1, 64, 16)], [(5, 1, 2, 16)]), "shapes do not tell"),
        (recorded("MyNode", [(4,)], [(4,)]), "no rule for it"),
        (recorded("Reshape", [(4,)], [(2, 2)]), "only renames"),
        (recorded("Conv", [(1, 8, 16, 16), (8,)], [(1, 8, 16, 16)]), "packed"),
        (recorded("Gemm", [], []), "not recorded"),
        (RecordedNode("Relu", (("string", (4,)),), (("string", (4,)),)), "'string'"),
        (recorded("LayerNormalization", [(4, 8)], [(4, 8)]), "do not fit|out of range"),
    ],
)
def test_what_shapes_do_not_tell_has_no_case_but_a_reason(node, reason):
    import re

    assert re.search(reason, recorded_nodes([node])[0])
