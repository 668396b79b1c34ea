"""Damaged ONNX files: what is wrong is one line that names the file, whatever command reads it."""

import numpy as np
import pytest

from nearpeak.api.conversion_coverage import engine_coverage
from nearpeak.api.model_precision import precision
from nearpeak.errors import NearpeakError
from nearpeak.targets import target_of

onnx = pytest.importorskip("onnx")


def model():
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weights = onnx.numpy_helper.from_array(np.ones((8, 3, 3, 3), np.float32), "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    sides = [helper.make_tensor_value_info(name, kind, [1, count, 8, 8]) for name, count in (("x", 3), ("y", 8))]
    graph = helper.make_graph(nodes, "g", sides[:1], sides[1:], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def extent(one):
    return one.graph.input[0].type.tensor_type.shape.dim[2]


DAMAGES = {
    "no graph": (lambda one: one.ClearField("graph"), "holds no node"),
    "operator set": (lambda one: setattr(one.opset_import[0], "version", 2**62), "operator set 46.* does not exist"),
    "short constant": (lambda one: setattr(one.graph.initializer[0], "raw_data", b"1234"), "'w' holds 4 bytes; .* 864"),
    "element type": (lambda one: setattr(one.graph.initializer[0], "data_type", 99), "'w' is of element type 99"),
    "extent": (lambda one: setattr(extent(one), "dim_value", -8), "input 'x': dimension 2 is -8"),
    "huge extent": (lambda one: setattr(extent(one), "dim_value", 2**62), "tensor 'x': .* is over 2\\^50 bytes"),
    "open extent": (lambda one: setattr(extent(one), "dim_param", "h"), "input 'x': dimension 2 \\(h\\) is open"),
    "cycle": (lambda one: one.graph.node[0].input.__setitem__(0, "y"), "node 'conv' reads 'y'"),
    "digits": (lambda one: one.graph.node[1].input.__setitem__(0, "9" * 400), "reads .9{40}… .400 characters."),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_is_refused_in_one_line_with_its_file(tmp_path, damage):
    change, message = DAMAGES[damage]
    one, path = model(), tmp_path / "net.onnx"
    change(one)
    path.write_bytes(one.SerializeToString())
    for ask in (lambda: engine_coverage(path, "tensorrt:10.1", ["h100_sxm"]), lambda: precision(path, schemes=())):
        with pytest.raises(NearpeakError, match=rf"net\.onnx: .*{message}") as raised:
            ask()
        assert "\n" not in str(raised.value)


def test_a_model_of_which_nothing_is_known_has_no_bound_and_says_why(tmp_path):
    one, path = model(), tmp_path / "net.onnx"
    one.graph.input[0].ClearField("type")
    path.write_bytes(one.SerializeToString())
    time = precision(path, [target_of("h100_sxm")], precisions=("tf32",), schemes=()).rows[0].times[0]
    assert time.bound_s is None
    assert "known shape" in time.reason
