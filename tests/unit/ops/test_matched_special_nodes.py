"""ONNX nodes of recurrent, quantised, sampled and spectral operators matched to cases of the size that ONNX states."""

import pytest

from nearpeak.core.work.tensor import Tensor
from nearpeak.ops import OPS, OnnxSite, onnx_matchers, work_of


def tensor(shape, dtype="fp32"):
    return Tensor(shape=shape, dtype=dtype)


def matched(kind, inputs, outputs, attributes=None, constants=None):
    site = OnnxSite(
        name=kind, inputs=tuple(inputs), outputs=tuple(outputs), attributes=attributes or {}, constants=constants or {}
    )
    name, matcher = onnx_matchers()[kind]
    match = matcher(site)
    return OPS[match.op or name].case(match.phase, **match.arguments), match


SINGLE = tensor(())
BYTE = tensor((), "uint8")
# Node, inputs, outputs, attributes, constants, operator, FLOP or none.
NODES = [
    ("LSTM", [tensor((5, 2, 3)), tensor((2, 16, 3)), tensor((2, 16, 4)), tensor((2, 32))],
     [tensor((5, 2, 2, 4)), tensor((2, 2, 4)), tensor((2, 2, 4))], {}, {}, "recurrent",
     2 * 2 * 2 * 16 * (5 * 7 - 4) - 2 * 2 * 2 * 4 * 3),  # from zero, the first step needs no forget gate
    ("GRU", [tensor((5, 2, 3)), tensor((1, 12, 3)), tensor((1, 12, 4)), None, None, tensor((1, 2, 4))],
     [tensor((1, 2, 4))], {}, {}, "recurrent", 2 * 5 * 2 * 12 * 7),
    ("RNN", [tensor((5, 2, 3)), tensor((1, 4, 3)), tensor((1, 4, 4))], [tensor((5, 1, 2, 4)), tensor((1, 2, 4))],
     {"activations": ["Relu"]}, {}, "recurrent", 2 * 2 * 4 * (5 * 7 - 4)),
    ("MatMulInteger", [tensor((2, 3, 8), "uint8"), tensor((8, 5), "int8")], [tensor((2, 3, 5), "int32")], {}, {},
     "gemm", 2 * 6 * 5 * 8),
    ("QLinearMatMul", [tensor((3, 8), "uint8"), SINGLE, BYTE, tensor((8, 5), "uint8"), SINGLE, BYTE, SINGLE, BYTE],
     [tensor((3, 5), "uint8")], {}, {}, "gemm", 2 * 3 * 5 * 8),
    ("ConvInteger", [tensor((1, 3, 6, 6), "uint8"), tensor((4, 3, 3, 3), "uint8")], [tensor((1, 4, 4, 4), "int32")],
     {}, {}, "conv", 2 * 16 * 4 * 27),
    ("QLinearConv", [tensor((1, 3, 6, 6), "uint8"), SINGLE, BYTE, tensor((4, 3, 1, 1), "uint8"), SINGLE, BYTE, SINGLE,
                     BYTE], [tensor((1, 4, 3, 3), "uint8")], {"strides": [2, 2]}, {}, "conv", 2 * 9 * 4 * 3),
    ("com.microsoft.MatMulNBits", [tensor((1, 64)), tensor((32, 2, 16), "uint8"), tensor((64,))], [tensor((1, 32))],
     {"N": 32, "K": 64, "bits": 4, "block_size": 32}, {}, "scaled_gemm", 2 * 32 * 64),
    ("DFT", [tensor((2, 16, 1))], [tensor((2, 9, 2))], {"onesided": 1, "axis": 1}, {}, "fft", None),
    ("Det", [tensor((3, 4, 4))], [tensor((3,))], {}, {}, "linalg", None),
    ("GridSample", [tensor((2, 3, 8, 8)), tensor((2, 4, 4, 2))], [tensor((2, 3, 4, 4))], {"mode": "bilinear"}, {},
     "grid_sample", None),
    ("LRN", [tensor((2, 3, 8, 8))], [tensor((2, 3, 8, 8))], {"size": 3}, {}, "local_response_norm", None),
    ("Multinomial", [tensor((2, 9))], [tensor((2, 4), "int32")], {}, {}, "multinomial", None),
    ("Col2Im", [tensor((1, 8, 9)), tensor((2,), "int64"), tensor((2,), "int64")], [tensor((1, 2, 4, 4))], {},
     {1: (4, 4), 2: (2, 2)}, "im2col", None),
    ("CumProd", [tensor((2, 9)), tensor((), "int64")], [tensor((2, 9))], {}, {1: (1,)}, "scan", None),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "inputs", "outputs", "attributes", "constants", "op", "flop"), NODES)
def test_matched_node_writes_its_outputs(kind, inputs, outputs, attributes, constants, op, flop):
    case, _ = matched(kind, inputs, outputs, attributes, constants)
    work = work_of(case)
    assert case.op == op
    assert work.write_bytes == sum(output.bytes for output in outputs)
    assert work.read_bytes <= sum(given.bytes for given in inputs if given is not None)
    matrix = sum(count for unit, count in work.flop.items() if unit.startswith("matrix"))
    assert flop is None or matrix == flop


def test_what_a_quantised_convolution_leaves_unread_is_told_by_its_own_positions():
    inputs = [tensor((1, 3, 6, 6), "uint8"), SINGLE, BYTE, tensor((4, 3, 1, 1), "uint8"), SINGLE, BYTE, SINGLE, BYTE]
    _, match = matched("QLinearConv", inputs, [tensor((1, 4, 3, 3), "uint8")], {"strides": [2, 2]})
    assert match.touched_bytes["0"] == 3 * 9
    assert set(match.touched_bytes) <= {"0", "3"}


@pytest.mark.parametrize("kind", ["NonZero", "Unique"])
def test_results_whose_extent_is_data_are_taken_at_their_least(kind):
    case, _ = matched(kind, [tensor((4, 4))], [tensor((2, 16), "int64")])
    assert work_of(case).read_bytes == 64
    assert work_of(case).write_bytes <= 4
