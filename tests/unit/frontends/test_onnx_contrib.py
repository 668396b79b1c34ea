"""Files with operators of ONNX Runtime's own domain: shapes go on behind them, and those with a rule are covered."""

import pytest

from nearpeak.frontends.onnx.onnx_file import capture_onnx

onnx = pytest.importorskip("onnx")
helper, DOMAIN = onnx.helper, "com.microsoft"
HIDDEN, HEADS, GROUPS = 128, 8, 2


def weight(name, shape, kind=onnx.TensorProto.FLOAT16):
    count = 1
    for extent in shape:
        count *= extent
    width = 1 if kind == onnx.TensorProto.UINT8 else 2
    return helper.make_tensor(name, kind, shape, bytes(count * width), raw=True)


def saved(tmp_path, nodes, weights, inputs, output):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value(name, onnx.TensorProto.FLOAT16, shape) for name, shape in inputs.items()],
        [value(output, onnx.TensorProto.FLOAT16, None)], weights,
    )  # fmt: skip
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=imports), path)
    return path


def packed_product(name, source, columns, rows=HIDDEN):
    node = helper.make_node(
        "MatMulNBits", [source, f"{name}.w", f"{name}.s"], [name], domain=DOMAIN, N=columns, K=rows, bits=4,
        block_size=32,
    )  # fmt: skip
    blocks = rows // 32
    return node, [weight(f"{name}.w", (columns, blocks, 16), onnx.TensorProto.UINT8),
                  weight(f"{name}.s", (columns * blocks,))]  # fmt: skip


def layer():
    own = lambda kind, *names, **more: helper.make_node(kind, *names, domain=DOMAIN, **more)  # noqa: E731
    parts = [
        packed_product("q", "n", HIDDEN), packed_product("k", "n", HIDDEN // 4), packed_product("v", "n", HIDDEN // 4),
        packed_product("o", "a", HIDDEN), packed_product("up", "m", 256), packed_product("y", "f", HIDDEN, 256),
    ]  # fmt: skip
    (q, k, v, o, up, down), weights = ([p[0] for p in parts], [w for p in parts for w in p[1]])
    weights += [weight("norm", (HIDDEN,)), helper.make_tensor("total", onnx.TensorProto.INT32, (), [16]),
                helper.make_tensor("lengths", onnx.TensorProto.INT32, (1,), [15])]  # fmt: skip
    attend = own("GroupQueryAttention", ["q", "k", "v", "", "", "lengths", "total"], ["a"], num_heads=HEADS,
                 kv_num_heads=GROUPS)  # fmt: skip
    return [
        helper.make_node("SimplifiedLayerNormalization", ["x", "norm"], ["n"], axis=-1, epsilon=1e-5),
        q, k, v, attend, o,
        own("SkipSimplifiedLayerNormalization", ["x", "o", "norm"], ["m", "", "", "r"]),
        up, own("FastGelu", ["up"], ["f"]), down, helper.make_node("Add", ["y", "r"], ["z"]),
    ], weights  # fmt: skip


def test_a_quantised_language_model_of_onnx_runtime_is_covered_but_for_what_is_named(tmp_path):
    nodes, weights = layer()
    workload = capture_onnx(saved(tmp_path, nodes, weights, {"x": [1, 16, HIDDEN]}, "z"))
    assert workload.uncovered_counts() == {"com.microsoft.SkipSimplifiedLayerNormalization": 1}
    ops = [call.case.op for call in workload.calls if call.case]
    assert ops.count("scaled_gemm") == 6
    assert [op for op in ops if op != "scaled_gemm"] == ["rms_norm", "attention", "elementwise", "elementwise"]
    narrow = workload.calls[2].case.record()
    assert (narrow["m"], narrow["n"], narrow["k"]) == (16, HIDDEN // 4, HIDDEN)


@pytest.mark.parametrize(
    ("left", "right", "options", "sizes"),
    [
        ((2, 4, 8, 16), (2, 4, 32, 16), {"transB": 1}, (8, 32, 16)),
        ((2, 16, 8), (2, 16, 32), {"transA": 1}, (8, 32, 16)),
        ((2, 8, 16), (2, 16, 32), {}, (8, 32, 16)),
    ],
)
def test_fused_products_turn_their_factors(tmp_path, left, right, options, sizes):
    node = helper.make_node("FusedMatMul", ["a", "b"], ["y"], domain=DOMAIN, alpha=0.125, **options)
    after = helper.make_node("Relu", ["y"], ["z"])
    (product, relu) = capture_onnx(saved(tmp_path, [node, after], [], {"a": left, "b": right}, "z")).calls
    record = product.case.record()
    assert (record["m"], record["n"], record["k"]) == sizes
    assert relu.case.record()["elements"] == record["batch"] * 8 * 32


def test_a_foreign_operator_without_a_rule_is_uncovered_by_name(tmp_path):
    nodes = [helper.make_node("Mystery", ["x"], ["y"], domain="org.example"), helper.make_node("Relu", ["x"], ["z"])]
    workload = capture_onnx(saved(tmp_path, nodes, [], {"x": [2, 3]}, "z"))
    assert workload.uncovered_counts() == {"org.example.Mystery": 1}


def integer_model(tmp_path):
    """Products of integers one behind the other, with an addition and a mean of integers between them."""
    kinds = onnx.TensorProto
    make = helper.make_tensor
    stored = [make("s", kinds.FLOAT, (), [0.1]), make("z", kinds.UINT8, (), [3]), make("o", kinds.INT8, (), [0])]
    stored += [make(name, kinds.INT8, (64, 64), bytes(4096), raw=True) for name in ("u", "v", "w")]
    own = lambda kind, inputs, output, **more: helper.make_node(kind, inputs, [output], domain=DOMAIN, **more)  # noqa: E731
    nodes = [
        own("DynamicQuantizeMatMul", ["x", "u", "s"], "a"),
        helper.make_node("QuantizeLinear", ["a", "s", "z"], ["b"]),
        own("MatMulIntegerToFloat", ["b", "v", "s", "s", "z"], "c"),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["d"]),
        own("QLinearAdd", ["b", "s", "z", "d", "s", "z", "s", "z"], "e"),
        own("QLinearSigmoid", ["e", "s", "z", "s", "z"], "f"),
        own("QGemm", ["f", "s", "z", "w", "s", "o", "", "s", "z"], "g", transB=1),
        helper.make_node("DequantizeLinear", ["g", "s", "z"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", kinds.FLOAT, (16, 64))], [value("y", kinds.FLOAT, None)], stored)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), tmp_path / "integers.onnx")
    return tmp_path / "integers.onnx"


def test_products_of_integers_in_the_runtimes_own_operators_have_cases(tmp_path):
    workload = capture_onnx(integer_model(tmp_path))
    products = [call.case for call in workload.calls if call.case is not None and call.case.op == "gemm"]
    assert [(dict(case.axes)["m"], dict(case.axes)["n"], dict(case.axes)["k"]) for case in products] == [
        (16, 64, 64)
    ] * 3
    assert {dict(case.dtypes)["dtype"] for case in products} <= {"int8", "uint8"}
    assert [dict(case.dtypes)["out_dtype"] for case in products] == ["fp32", "fp32", "uint8"]
    assert not workload.uncovered_counts()


def test_integers_have_the_shapes_that_the_runtime_gives_them(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    import numpy as np

    path = integer_model(tmp_path)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.ones((16, 64), np.float32)})
    assert y.shape == (16, 64)
