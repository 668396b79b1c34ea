"""Weights packed for MatMulNBits: what the runtime computes is the product with the rounded weights."""

import numpy as np
import pytest

from nearpeak.errors import NotModelledError
from nearpeak.precision.quantisation.packed_weights import BLOCK_COUNT, pack_blocks, with_packed_weights

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")


def unpacked(codes, scales, bits, depth):
    if bits == 4:
        codes = np.stack((codes & 15, codes >> 4), -1).reshape(*codes.shape[:2], BLOCK_COUNT)
    values = (codes.astype(np.float32) - 2 ** (bits - 1)) * scales[..., None]
    return values.reshape(codes.shape[0], -1)[:, :depth].T


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("depth", [32, 40, 96])
def test_the_runtime_multiplies_the_rounded_weights(bits, depth):
    draw, helper, kind = np.random.default_rng(bits * depth), onnx.helper, onnx.TensorProto.FLOAT
    weights, x = (draw.standard_normal(shape).astype(np.float32) for shape in ((depth, 24), (8, depth)))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, (8, 24))], [onnx.numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    packed = with_packed_weights(onnx, model, bits)
    session = runtime.InferenceSession(packed.SerializeToString(), providers=["CPUExecutionProvider"])
    codes, scales = pack_blocks(weights, bits)
    rounded = unpacked(codes, scales, bits, depth)
    assert np.abs(rounded - weights).max() <= np.abs(scales).max()
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ rounded, rtol=1e-4, atol=1e-4)
    assert [item.name for item in packed.graph.initializer] == ["w_packed", "w_scales"]
    with pytest.raises(NotModelledError, match="no MatMul with stored weights"):
        with_packed_weights(onnx, packed, bits)


def test_a_block_of_zeros_stays_zero():
    codes, scales = pack_blocks(np.zeros((40, 2), np.float32), 4)
    assert not unpacked(codes, scales, 4, 40).any()
