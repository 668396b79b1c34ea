"""Attention and rotary nodes of ONNX, of the standard and of onnxruntime, matched to cases; what is open is refused."""

import pytest

from nearpeak.core.work.tensor import Tensor
from nearpeak.errors import NotModelledError
from nearpeak.ops import OPS, OnnxSite, onnx_matchers


def tensor(*shape, dtype="fp16"):
    return Tensor(shape=shape, dtype=dtype)


def records(kind, inputs, outputs=(), attributes=None, constants=None):
    site = OnnxSite(
        name=kind, inputs=tuple(inputs), outputs=tuple(outputs), attributes=attributes or {}, constants=constants or {}
    )
    name, matcher = onnx_matchers()[kind]
    found = matcher(site)
    matches = found if isinstance(found, tuple) else (found,)
    return [OPS[m.op or name].case(m.phase, **m.arguments).record() for m in matches]


Q, KV = tensor(2, 64, 8 * 32), tensor(2, 96, 2 * 32)
FOUR = tensor(2, 8, 64, 32)
PAST = tensor(2, 2, 36, 32)
NODES = [
    ("Attention", [Q, KV, KV], {"q_num_heads": 8, "kv_num_heads": 2, "is_causal": 1},
     {"heads": 8, "kv_heads": 2, "q": 64, "kv": 96, "dim": 32, "causal": True}),
    ("Attention", [FOUR, tensor(2, 8, 64, 32), tensor(2, 8, 64, 16)], {"softcap": 30.0},
     {"heads": 8, "kv": 64, "v_dim": 16, "softcap": True, "causal": False}),
    ("Attention", [Q, KV, KV, tensor(64, 132, dtype="bool"), PAST, PAST], {"q_num_heads": 8, "kv_num_heads": 2},
     {"kv": 132, "mask": "bool", "mask_elements": 64 * 132}),
    ("com.microsoft.MultiHeadAttention", [Q, Q, Q, None, None, tensor(1, 8, 64, 64)], {"num_heads": 8},
     {"heads": 8, "kv": 64, "mask": "float", "mask_elements": 8 * 64 * 64}),
    ("com.microsoft.MultiHeadAttention", [Q, tensor(2, 8, 100, 32), tensor(2, 8, 100, 32)], {"num_heads": 8},
     {"heads": 8, "kv": 100, "dim": 32, "mask": "none"}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "inputs", "attributes", "wanted"), NODES)
def test_attention_nodes_have_the_shapes_that_they_state(kind, inputs, attributes, wanted):
    (found,) = records(kind, inputs, attributes=attributes)
    assert found["op"] == "attention"
    assert {name: found[name] for name in wanted} == wanted


def grouped(query, *, past=None, present=None, constants=None, own=True):
    key = tensor(2, query.shape[1], 2 * 32) if own else None
    return records(
        "com.microsoft.GroupQueryAttention", [query, key, key, past, past, tensor(2), tensor()],
        [query, *([present] * 2 if present else [])],
        {"num_heads": 8, "kv_num_heads": 2, "local_window_size": 24}, constants,
    )[0]  # fmt: skip


def test_grouped_queries_see_their_cache_and_themselves():
    assert grouped(Q)["kv"] == 64
    assert grouped(tensor(2, 1, 8 * 32), past=PAST, present=tensor(2, 2, 37, 32))["kv"] == 37
    assert grouped(tensor(2, 1, 8 * 32), past=PAST, present=PAST, constants={6: (20,)})["kv"] == 20
    packed = grouped(tensor(2, 64, 12 * 32), own=False)
    assert (packed["heads"], packed["dim"], packed["left"], packed["align"]) == (8, 32, 24, "lower_right")


def test_how_full_a_shared_cache_is_cannot_be_guessed():
    with pytest.raises(NotModelledError, match="how full the cache is"):
        grouped(tensor(2, 1, 8 * 32), past=PAST, present=PAST)


def test_fused_attention_projects_first():
    project, attend = records(
        "com.microsoft.Attention", [tensor(2, 64, 128), tensor(128, 384), tensor(384)],
        attributes={"num_heads": 4, "unidirectional": 1},
    )  # fmt: skip
    assert (project["op"], project["m"], project["n"], project["k"]) == ("gemm", 128, 384, 128)
    assert (attend["op"], attend["dim"], attend["causal"]) == ("attention", 32, True)


@pytest.mark.parametrize(("kind", "inputs", "attributes"), [
    ("Attention", [Q, KV, KV], {}),
    ("com.microsoft.MultiHeadAttention", [tensor(2, 64, 8, 3, 32), None, None], {"num_heads": 8}),
    ("com.microsoft.Attention", [None, tensor(128, 384)], {"num_heads": 4}),
    ("com.microsoft.RotaryEmbedding", [None, None, None, None], {}),
])  # fmt: skip
def test_nodes_whose_layout_is_open_are_left_uncovered(kind, inputs, attributes):
    with pytest.raises(NotModelledError):
        records(kind, inputs, attributes=attributes)


TABLE = tensor(4096, 16)
ROTARY = [
    ("RotaryEmbedding", [FOUR, TABLE, TABLE, tensor(2, 64, dtype="int64")], {},
     {"batch": 2, "heads": 8, "positions": 64, "dim": 32, "rotary": 32, "ids": 128, "table_rows": 1}),
    ("RotaryEmbedding", [Q, tensor(2, 64, 8), tensor(2, 64, 8)],
     {"num_heads": 8, "interleaved": 1, "rotary_embedding_dim": 16},
     {"heads": 8, "dim": 32, "rotary": 16, "ids": 0, "table_rows": 128, "layout": "interleaved"}),
    ("com.microsoft.RotaryEmbedding", [Q, tensor(1, dtype="int64"), TABLE, TABLE], {},
     {"heads": 8, "dim": 32, "rotary": 32, "ids": 1, "layout": "half"}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "inputs", "attributes", "wanted"), ROTARY)
def test_rotary_nodes_have_the_shapes_that_they_state(kind, inputs, attributes, wanted):
    (found,) = records(kind, inputs, attributes=attributes)
    assert found["op"] == "rotary_embedding"
    assert {name: found[name] for name in wanted} == wanted
