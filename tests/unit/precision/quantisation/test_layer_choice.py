"""Minimum cuts against all choices, and the choice of layers on planted costs."""

import itertools
import random

import pytest

from nearpeak.precision.quantisation.executed_products import Array, GraphNode
from nearpeak.precision.quantisation.expected_runtime import expected_s, node_s
from nearpeak.precision.quantisation.layer_choice import layer_choice, sum_s
from nearpeak.precision.quantisation.minimum_cut import cheapest_states


@pytest.mark.parametrize("seed", range(40))
def test_a_cut_is_as_cheap_as_the_best_of_all_choices(seed):
    draw = random.Random(seed)
    count = draw.randint(1, 8)
    costs = [(draw.random(), float("inf") if draw.random() < 0.2 else draw.random()) for _ in range(count)]
    pairs = [pair for pair in itertools.combinations(range(count), 2) if draw.random() < 0.5]
    edges = [(a, b, draw.random() * 0.5) for a, b in pairs]
    best_s = min(sum_s(costs, edges, states) for states in itertools.product((False, True), repeat=count))
    assert sum_s(costs, edges, cheapest_states(costs, edges)) == pytest.approx(best_s)


def array(*shape, dtype="fp32"):
    return Array(shape, dtype, 32 if dtype == "fp32" else 8)


def test_a_small_softmax_between_large_products_stays_in_fp32_and_products_do_not():
    onnx = pytest.importorskip("onnx")
    make, square = onnx.helper.make_node, array(1024, 1024)
    protos = [make("MatMul", ["x", "w"], ["a"]), make("Softmax", ["a"], ["b"]), make("MatMul", ["b", "v"], ["c"])]
    model = onnx.helper.make_model(onnx.helper.make_graph(protos, "g", [], []))
    nodes = [
        GraphNode("first", "MatMul", "", (square, square), (square,), {}),
        GraphNode("middle", "Softmax", "", (square,), (square,), {}),
        GraphNode("last", "MatMul", "", (square, square), (square,), {}),
    ]
    choice = layer_choice(model, nodes)
    assert choice.products == {"first": "int8", "last": "int8"}
    assert choice.left_out == ("middle",)
    assert choice.chosen_s < choice.quantised_s < choice.plain_s
    unknown = [nodes[0]._replace(outputs=(None,)), *nodes[1:]]
    assert layer_choice(model, unknown) is None


def test_kernels_that_a_runtime_lacks_are_slow():
    square, codes = array(512, 512), array(512, 512, dtype="int8")
    plain = GraphNode("p", "MatMul", "", (square, square), (square,), {})
    signed = GraphNode("s", "MatMulInteger", "", (codes, codes), (square,), {})
    unsigned = signed._replace(inputs=(Array((512, 512), "uint8", 8), codes))
    assert node_s(signed) > node_s(plain) > node_s(unsigned)
    one_row = GraphNode("w", "MatMulNBits", "com.microsoft", (array(1, 512),), (array(1, 512),), {"K": 512, "bits": 8})
    assert node_s(one_row) > node_s(one_row._replace(numbers={"K": 512, "bits": 4}))
    assert expected_s([plain._replace(outputs=(None,))]) is None
    depthwise = GraphNode(
        "d", "Conv", "", (array(1, 64, 56, 56), array(64, 1, 3, 3)), (array(1, 64, 56, 56),), {"group": 64}
    )
    assert node_s(depthwise) > node_s(depthwise._replace(numbers={"group": 1}))


def test_columns_are_widened_without_a_vector_kernel():
    codes, wide = Array((256, 256), "int4", 4), array(256, 256)
    per_tensor = GraphNode("t", "DequantizeLinear", "", (codes, array()), (wide,), {})
    per_column = per_tensor._replace(inputs=(codes, array(256)))
    assert node_s(per_column) > 4 * node_s(per_tensor)
