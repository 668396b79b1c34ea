"""Ten small ONNX models of usual architectures, in which a benchmark plants breaks."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

_helper, _arrays = onnx.helper, onnx.numpy_helper


class _Builder:
    """Collects nodes and constants; shapes follow by inference."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.stored: list[Any] = []
        self._draw = np.random.default_rng(0)

    def add(self, kind: str, *operands: str, **attributes: Any) -> str:
        """Return the result of a new node."""
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(_helper.make_node(kind, list(operands), [f"{name}_y"], name=name, **attributes))
        return f"{name}_y"

    def constant(self, *shape: int) -> str:
        """Return a stored tensor of small random numbers."""
        name = f"c{len(self.stored)}"
        self.stored.append(_arrays.from_array((0.05 * self._draw.standard_normal(shape)).astype(np.float32), name))
        return name

    def list(self, *values: int) -> str:
        """Return a stored list of extents or axes."""
        name = f"c{len(self.stored)}"
        self.stored.append(_arrays.from_array(np.array(values, np.int64), name))
        return name

    def conv(self, x: str, from_: int, to: int, size: int = 3, group: int = 1) -> str:
        """Return a convolution that keeps the extents."""
        weight = self.constant(to, from_ // group, size, size)
        return self.add("Conv", x, weight, pads=[size // 2] * 4, kernel_shape=[size] * 2, group=group)

    def dense(self, x: str, from_: int, to: int) -> str:
        """Return a product with a bias."""
        return self.add("Add", self.add("MatMul", x, self.constant(from_, to)), self.constant(to))


def _plain(b: _Builder, x: str) -> str:
    for _ in range(4):
        x = b.add("Relu", b.conv(x, 64, 64))
    return x


def _residual(b: _Builder, x: str) -> str:
    for _ in range(3):
        inner = b.conv(b.add("Relu", b.conv(x, 64, 64)), 64, 64)
        x = b.add("Relu", b.add("Add", inner, x))
    return x


def _separable(b: _Builder, x: str) -> str:
    for _ in range(3):
        x = b.add("Clip", b.conv(x, 64, 64, group=64))
        x = b.add("Relu", b.conv(x, 64, 64, size=1))
    return x


def _gated(b: _Builder, x: str) -> str:
    for _ in range(3):
        x = b.conv(x, 64, 64)
        x = b.add("Mul", x, b.add("Sigmoid", x))
    return x


def _pooled(b: _Builder, x: str) -> str:
    x = b.add("Relu", b.conv(x, 64, 64))
    x = b.add("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4)
    x = b.add("Relu", b.conv(x, 64, 128))
    x = b.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    return b.add("Relu", b.conv(x, 128, 128))


def _grouped(b: _Builder, x: str) -> str:
    for _ in range(2):
        x = b.conv(x, 64, 64)
        x = b.add("Reshape", x, b.list(1, 8, -1))
        ones, zeros = b.constant(8), b.constant(8)
        x = b.add("Reshape", b.add("InstanceNormalization", x, ones, zeros), b.list(1, 64, 56, 56))
        x = b.add("Relu", b.add("Add", b.add("Mul", x, b.constant(64, 1, 1)), b.constant(64, 1, 1)))
    return x


def _perceptron(b: _Builder, x: str) -> str:
    for _ in range(4):
        x = b.add("Relu", b.dense(x, 512, 512))
    return x


def _encoder(b: _Builder, x: str) -> str:
    query, key, value = (
        b.add("Transpose", b.add("Reshape", b.dense(x, 512, 512), b.list(128, 8, 64)), perm=perm)
        for perm in ([1, 0, 2], [1, 2, 0], [1, 0, 2])
    )
    weights = b.add("Softmax", b.add("MatMul", query, key), axis=-1)
    mixed = b.add("Transpose", b.add("MatMul", weights, value), perm=[1, 0, 2])
    x = b.add("Add", x, b.dense(b.add("Reshape", mixed, b.list(128, 512)), 512, 512))
    inner = b.dense(x, 512, 1024)
    inner = b.add("Mul", inner, b.add("Add", b.add("Erf", inner), b.constant(1)))
    return b.add("Add", x, b.dense(inner, 1024, 512))


def _normed(b: _Builder, x: str) -> str:
    for _ in range(3):
        x = b.add("LayerNormalization", x, b.constant(512), b.constant(512), axis=-1)
        x = b.add("Tanh", b.dense(x, 512, 512))
    return x


def _pointwise(b: _Builder, x: str) -> str:
    for kind in ("Sigmoid", "Tanh", "Softplus", "Erf", "Exp", "Sigmoid"):
        x = b.add(kind, b.add("Mul", x, b.constant(512)))
    return x


_IMAGE, _ROWS = (1, 64, 56, 56), (128, 512)
MODELS: Mapping[str, tuple[Callable[[_Builder, str], str], tuple[int, ...]]] = {
    "plain convolutions": (_plain, _IMAGE), "residual": (_residual, _IMAGE), "separable": (_separable, _IMAGE),
    "gated": (_gated, _IMAGE), "pooled": (_pooled, _IMAGE), "grouped": (_grouped, _IMAGE),
    "perceptron": (_perceptron, _ROWS), "encoder": (_encoder, _ROWS), "normed": (_normed, _ROWS),
    "pointwise": (_pointwise, (1024, 512)),
}  # fmt: skip
"""Builder and shape of the input by name."""


def model_of(name: str) -> Any:
    """Return a model with all shapes stated."""
    build, shape = MODELS[name]
    builder = _Builder()
    last = build(builder, "x")
    info = _helper.make_tensor_value_info
    graph = _helper.make_graph(
        builder.nodes, "graph", [info("x", 1, shape)], [info(last, 1, None)], builder.stored
    )  # fmt: skip
    model = _helper.make_model(graph, opset_imports=[_helper.make_opsetid("", 17)], ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    shapes = {item.name: item for item in inferred.graph.output}
    inferred.graph.output[0].CopyFrom(shapes[last])
    return inferred
