"""Small ONNX files for tests of conversion coverage."""

from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
helper, arrays = onnx.helper, onnx.numpy_helper
FP32, FP16 = 1, 10


def saved(path: Path, nodes, shapes, stored=(), opset=17, results=("y",), formats=None):
    """Write a model; `shapes` are those of inputs and results by name, `stored` its constants by name."""
    formats = formats or {}
    read = {name for node in nodes for name in node.input}
    made = {name for node in nodes for name in node.output}

    def info(name):
        return helper.make_tensor_value_info(name, formats.get(name, FP32), shapes[name])

    graph = helper.make_graph(
        list(nodes), "graph", [info(name) for name in shapes if name in read - made], [info(name) for name in results],
        [arrays.from_array(value, name) for name, value in dict(stored).items()],
        value_info=[info(name) for name in shapes if name in made and name not in results],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("mine", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), str(path))
    return path


def chain(path: Path, kinds, shape=(1, 32, 16, 16), opset=17):
    """Write a chain of nodes of one operand; `Conv` has a 3×3 kernel, a dot puts a kind into a domain of its own."""
    nodes, last, stored, shapes = [], "x", {}, {"x": list(shape)}
    for number, kind in enumerate(kinds):
        domain, _, name = kind.rpartition(".")
        made = "y" if number == len(kinds) - 1 else f"t{number}"
        extra = {"pads": [1, 1, 1, 1]} if name == "Conv" else {}
        if name == "Conv":
            stored["w"] = np.zeros((shape[1], shape[1], 3, 3), np.float32)
        operands = [last, "w"] if name == "Conv" else [last]
        nodes.append(helper.make_node(name, operands, [made], name=f"n{number}", domain=domain, **extra))
        shapes[made] = list(shape)
        last = made
    return saved(path, nodes, shapes, stored, opset)


def group_norm_block(path: Path, opset: int, *, is_native: bool, channels=320, side=64, groups=32):
    """Write Conv, group normalisation, SiLU and Conv in fp16, as PyTorch exports them."""
    kernel = np.zeros((channels, channels, 3, 3), np.float16)
    stored = {"w1": kernel, "w2": kernel}
    if is_native:
        stored |= {"g": np.ones(channels, np.float16), "b": np.zeros(channels, np.float16)}
        norm = [helper.make_node("GroupNormalization", ["a", "g", "b"], ["n"], name="gn", num_groups=groups)]
    else:
        stored |= {
            "s1": np.array([0, groups, -1]), "s2": np.array([1, channels, side, side]),
            "i1": np.ones(groups, np.float16), "i0": np.zeros(groups, np.float16),
            "g": np.ones((channels, 1, 1), np.float16), "b": np.zeros((channels, 1, 1), np.float16),
        }  # fmt: skip
        norm = [
            helper.make_node("Reshape", ["a", "s1"], ["r1"], name="r1"),
            helper.make_node("InstanceNormalization", ["r1", "i1", "i0"], ["i"], name="in"),
            helper.make_node("Reshape", ["i", "s2"], ["r2"], name="r2"),
            helper.make_node("Mul", ["r2", "g"], ["m"], name="scale"),
            helper.make_node("Add", ["m", "b"], ["n"], name="shift"),
        ]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], name="conv1", pads=[1, 1, 1, 1]), *norm,
        helper.make_node("Sigmoid", ["n"], ["s"], name="sigmoid"),
        helper.make_node("Mul", ["n", "s"], ["u"], name="silu"),
        helper.make_node("Conv", ["u", "w2"], ["y"], name="conv2", pads=[1, 1, 1, 1]),
    ]  # fmt: skip
    whole = [1, channels, side, side]
    return saved(path, nodes, {"x": whole, "y": whole}, stored, opset, formats={"x": FP16, "y": FP16})


def resnet18(path: Path):
    """Write ResNet-18 with the node names of torchvision's export, an eighth as wide."""
    nodes, stored, shapes, last = [], {}, {"x": [1, 3, 224, 224]}, "x"

    def conv(name, source, channels, size, stride=1):
        kernel = np.zeros((channels, shapes[source][1], size, size), np.float32)
        stored[f"{name}.w"], pad = kernel, size // 2
        side = -(-shapes[source][2] // stride)
        return add("Conv", name, [source, f"{name}.w"], [1, channels, side, side], pads=[pad] * 4,
                   strides=[stride] * 2, kernel_shape=[size] * 2)  # fmt: skip

    def add(kind, name, operands, shape, **attributes):
        nodes.append(helper.make_node(kind, operands, [f"{name}_out"], name=name, **attributes))
        shapes[f"{name}_out"] = shape
        return f"{name}_out"

    last = conv("/conv1/Conv", last, 8, 7, 2)
    last = add("Relu", "/relu/Relu", [last], shapes[last])
    last = add("MaxPool", "/maxpool/MaxPool", [last], [1, 8, 56, 56], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for stage, channels in enumerate((8, 16, 32, 64), 1):
        for block in range(2):
            base, stride = f"/layer{stage}/layer{stage}.{block}", 2 if stage > 1 and not block else 1
            inner = conv(f"{base}/conv1/Conv", last, channels, 3, stride)
            inner = add("Relu", f"{base}/relu/Relu", [inner], shapes[inner])
            inner = conv(f"{base}/conv2/Conv", inner, channels, 3)
            skip = conv(f"{base}/downsample/downsample.0/Conv", last, channels, 1, stride) if stride == 2 else last
            last = add("Add", f"{base}/Add", [inner, skip], shapes[inner])
            last = add("Relu", f"{base}/relu_1/Relu", [last], shapes[last])
    last = add("GlobalAveragePool", "/avgpool/GlobalAveragePool", [last], [1, 64, 1, 1])
    last = add("Flatten", "/Flatten", [last], [1, 64])
    stored |= {"fc.w": np.zeros((1000, 64), np.float32), "fc.b": np.zeros(1000, np.float32)}
    last = add("Gemm", "/fc/Gemm", [last, "fc.w", "fc.b"], [1, 1000], transB=1)
    return saved(path, nodes, shapes, stored, results=(last,))
