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
