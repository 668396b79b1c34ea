"""Random small float models as ONNX files, and quantised files of them."""

import random
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.precision.quantisation.quantised_files import SCHEMES as WAYS
from nearpeak.precision.quantisation.quantised_files import write_quantised
from nearpeak.precision.quantisation.runtime_timing import random_feeds

SCHEMES = tuple(name for name in WAYS if name != "mixed")


def quantised_file(path: Path, draw: random.Random, scheme: str) -> str:
    """Write a random model quantised by a scheme; return its name. What the scheme refuses is drawn again."""
    import onnxruntime

    for _ in range(20):
        plain = path.with_suffix(".float.onnx")
        name = float_file(plain, draw)
        session = onnxruntime.InferenceSession(str(plain), providers=["CPUExecutionProvider"])
        if not write_quantised(plain, path, scheme, [random_feeds(session, seed) for seed in range(2)]):
            return f"{name} {scheme}"
    raise RuntimeError(f"no model that {scheme} takes")


def float_file(path: Path, draw: random.Random) -> str:
    """Write a random float model: convolutions, or products of a sequence; return its name."""
    import onnx

    kind = draw.choice((_convolutions, _products, _attention))
    model = _Model(draw.randrange(2**31))
    name = kind(model, draw)
    onnx.save(model.finished(), str(path))
    return name


class _Model:
    """A chain of nodes that grows."""

    def __init__(self, seed: int) -> None:
        self._draw = np.random.default_rng(seed)
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self._shape: tuple[int, ...] = ()
        self.last = "x"

    def start(self, *shape: int) -> None:
        self._shape = shape

    def weight(self, *shape: int) -> str:
        import onnx

        name = f"w{len(self._weights)}"
        scale = 1 / max(1.0, float(np.sqrt(np.prod(shape[1:]))))
        values = (self._draw.standard_normal(shape) * scale).astype(np.float32)
        self._weights.append(onnx.numpy_helper.from_array(values, name))
        return name

    def add(self, op: str, *more: str, **attributes: Any) -> str:
        import onnx

        name = f"t{len(self._nodes)}"
        self._nodes.append(
            onnx.helper.make_node(op, [self.last, *more], [name], name=f"n{len(self._nodes)}", **attributes)
        )
        self.last = name
        return name

    def finished(self) -> Any:
        import onnx

        helper, kind = onnx.helper, onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            self._nodes, "g", [helper.make_tensor_value_info("x", kind, self._shape)],
            [helper.make_tensor_value_info(self.last, kind, None)], self._weights,
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def _convolutions(model: _Model, draw: random.Random) -> str:
    batch, channels, extent = draw.choice((1, 4, 8)), draw.choice((3, 16, 64)), draw.choice((14, 28, 56))
    model.start(batch, channels, extent, extent)
    name = f"conv {batch}×{channels}×{extent}²"
    for _ in range(draw.randint(1, 4)):
        wide = draw.choice((16, 32, 64, 128, 256))
        taps, groups = draw.choice((1, 3, 3, 5)), channels if draw.random() < 0.15 else 1
        wide = channels if groups > 1 else wide
        model.add("Conv", model.weight(wide, channels // groups, taps, taps), pads=[taps // 2] * 4, group=groups)
        name, channels = f"{name} {wide}×{taps}²{'d' if groups > 1 else ''}", wide
        if draw.random() < 0.7:
            model.add(draw.choice(("Relu", "Relu", "Sigmoid", "HardSwish")))
        if draw.random() < 0.2:
            model.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
        if draw.random() < 0.2:
            model.add("Add", model.weight(1, channels, 1, 1))
    if draw.random() < 0.4:
        model.add("GlobalAveragePool")
        model.add("Flatten")
        model.add("Gemm", model.weight(100, channels), transB=1)
    return name


def _products(model: _Model, draw: random.Random) -> str:
    rows, depth = draw.choice((1, 16, 128, 512)), draw.choice((64, 256, 512, 1024))
    model.start(rows, depth)
    name = f"product {rows}×{depth}"
    for _ in range(draw.randint(1, 4)):
        wide = draw.choice((64, 256, 512, 1024, 2048))
        if draw.random() < 0.3:
            model.add("Gemm", model.weight(depth, wide), model.weight(wide))
        else:
            model.add("MatMul", model.weight(depth, wide))
        name, depth = f"{name}×{wide}", wide
        if draw.random() < 0.6:
            model.add(draw.choice(("Relu", "Gelu", "Tanh")))
        if draw.random() < 0.2:
            model.add("LayerNormalization", model.weight(depth), model.weight(depth), axis=-1)
    return name


def _attention(model: _Model, draw: random.Random) -> str:
    batch, length, width = draw.choice((1, 4)), draw.choice((64, 128, 256)), draw.choice((128, 256, 512))
    model.start(batch, length, width)
    source = model.last
    turned = []
    for _ in range(3):
        model.last = source
        turned.append(model.add("MatMul", model.weight(width, width)))
    queries, keys, values = turned
    model.last = keys
    keys = model.add("Transpose", perm=[0, 2, 1])
    model.last = queries
    model.add("MatMul", keys)
    model.add("Softmax", axis=-1)
    model.add("MatMul", values)
    model.add("MatMul", model.weight(width, width))
    if draw.random() < 0.5:
        model.add("Add", source)
    return f"attention {batch}×{length}×{width}"
