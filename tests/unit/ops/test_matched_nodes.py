"""ONNX nodes matched to cases: the case's output is as large as ONNX's own shape inference says."""

import pytest

from nearpeak.core.work.tensor import Tensor
from nearpeak.ops import OPS, OnnxSite, onnx_matchers, work_of

onnx = pytest.importorskip("onnx")

NODES = [
    ("Conv", [(2, 8, 15, 16), (12, 4, 3, 3), (12,)], {"group": 2, "strides": [2, 2], "pads": [0, 1, 2, 1]}),
    ("Conv", [(1, 3, 15, 16), (4, 3, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("Conv", [(1, 3, 16), (4, 3, 4)], {"auto_pad": "SAME_LOWER", "dilations": [2]}),
    ("Conv", [(1, 3, 6, 7, 8), (4, 3, 3, 3, 3)], {"auto_pad": "VALID"}),
    (
        "ConvTranspose",
        [(1, 4, 5, 6), (4, 3, 3, 3)],
        {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    ),
    ("ConvTranspose", [(1, 4, 5, 6), (4, 3, 3, 3)], {"strides": [2, 2], "group": 2, "pads": [1, 0, 0, 1]}),
    ("ConvTranspose", [(1, 4, 5, 6), (4, 3, 3, 3)], {"strides": [2, 2], "output_shape": [10, 12]}),
    ("MaxPool", [(2, 3, 15, 16)], {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1]}),
    ("MaxPool", [(2, 3, 15, 16)], {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    ("AveragePool", [(2, 3, 15, 16)], {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}),
    ("GlobalAveragePool", [(2, 3, 15, 16)], {}),
    ("GlobalMaxPool", [(2, 3, 15, 16)], {}),
    ("BatchNormalization", [(2, 3, 5, 5), (3,), (3,), (3,), (3,)], {}),
    ("LayerNormalization", [(2, 3, 8), (8,), (8,)], {"axis": -1}),
    ("InstanceNormalization", [(2, 3, 8), (3,), (3,)], {}),
    ("RMSNormalization", [(2, 3, 8), (3, 8)], {"axis": 1}),
]


def inferred(kind, shapes, attributes):
    """The node's output shape by ONNX's own inference."""
    fp32, names = onnx.TensorProto.FLOAT, [f"i{number}" for number in range(len(shapes))]
    inputs = [onnx.helper.make_tensor_value_info(*row) for row in zip(names, [fp32] * len(names), shapes, strict=True)]
    output = onnx.helper.make_tensor_value_info("y", fp32, None)
    node = onnx.helper.make_node(kind, names, ["y"], **attributes)
    graph = onnx.helper.make_graph([node], "one node", inputs, [output])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)])
    shape = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output[0].type.tensor_type.shape
    return tuple(dim.dim_value for dim in shape.dim)


@pytest.mark.parametrize(("kind", "shapes", "attributes"), NODES)
def test_matched_node_writes_what_onnx_infers(kind, shapes, attributes):
    output = Tensor(shape=inferred(kind, shapes, attributes), dtype="fp32")
    inputs = tuple(Tensor(shape=shape, dtype="fp32") for shape in shapes)
    name, matcher = onnx_matchers()[kind]
    match = matcher(OnnxSite(name=kind, inputs=inputs, outputs=(output,), attributes=attributes))
    case = OPS[name].case(match.phase, **match.arguments)
    assert work_of(case).write_bytes == output.bytes
    assert 0 < work_of(case).read_bytes <= sum(tensor.bytes for tensor in inputs)


def test_same_lower_pads_more_at_the_beginning():
    x, weight = Tensor(shape=(1, 3, 16), dtype="fp32"), Tensor(shape=(4, 3, 4), dtype="fp32")
    site = OnnxSite(
        name="Conv", inputs=(x, weight), outputs=(Tensor(shape=(1, 4, 16), dtype="fp32"),),
        attributes={"auto_pad": "SAME_LOWER"},
    )  # fmt: skip
    arguments = onnx_matchers()["Conv"][1](site).arguments
    assert (arguments["pw"], arguments["pw_end"]) == (2, 1)
