"""Forms of attention as programs write them: latent keys, caches that grow or stay, ONNX nodes of both dialects."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.frontends.onnx.onnx_file import capture_onnx  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402
from nearpeak.ops import work_of  # noqa: E402


def calls(workload, *words):
    return [call for call in workload.calls if any(word in call.operator for word in words)]


class Absorbed(nn.Module):
    """MLA with its projections absorbed: one latent serves as keys and, its first features, as values."""

    def forward(self, query, latent):
        values = latent[..., :512]
        return functional.scaled_dot_product_attention(query, latent, values, enable_gqa=True)


def test_a_latent_cache_is_read_once():
    query, latent = torch.rand(2, 16, 1, 576), torch.rand(2, 1, 100, 576)
    workload = capture_torch(Absorbed, ((query, latent), {}), name="mla")
    (call,) = calls(workload, "attention")
    record = call.case.record()
    assert (record["latent"], record["kv_heads"], record["dim"], record["v_dim"]) == (True, 1, 576, 512)
    assert [use.bytes for use in call.reads] == [4 * query.numel(), 4 * latent.numel(), 0]
    assert work_of(call.case).read_bytes == 4 * (query.numel() + latent.numel())


def test_values_of_their_own_are_not_latent():
    run = lambda q, kv: functional.scaled_dot_product_attention(q, kv[..., 64:], kv[..., :64])  # noqa: E731
    workload = capture_torch(lambda: run, ((torch.rand(1, 2, 8, 64), torch.rand(1, 2, 8, 128)), {}), name="packed")
    assert calls(workload, "attention")[0].case.record()["latent"] is False


def decode(cache_of):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8,
    )  # fmt: skip

    def inputs():
        cache = cache_of(transformers, config)
        named = lambda: [(t, "kv_cache", "kv") for layer in cache.layers for t in (layer.keys, layer.values)]  # noqa: E731
        return ((torch.zeros(1, 1, dtype=torch.int64),), {"past_key_values": cache, "use_cache": True}, named)

    return capture_torch(
        lambda: transformers.LlamaForCausalLM(config), inputs, CaptureOptions(step="decode"), name="decode"
    )


def static(transformers, config):
    cache = transformers.StaticCache(config=config, max_cache_len=128)
    cache.early_initialization(batch_size=1, num_heads=2, head_dim=8, dtype=torch.float32, device="cpu")
    return cache


def dynamic(transformers, config):
    cache = transformers.DynamicCache(config=config)
    cache.update(torch.rand(1, 2, 127, 8), torch.rand(1, 2, 127, 8), 0)
    return cache


def test_a_static_cache_takes_one_row_and_a_growing_one_is_copied():
    row, whole = 4 * 2 * 8, 4 * 2 * 8 * 128
    updates = calls(decode(static), "index_copy_")
    assert [([u.bytes for u in c.reads], [u.bytes for u in c.writes]) for c in updates] == [([0, 8, row], [row])] * 2
    copies = [c for c in calls(decode(dynamic), "aten.cat") if max(u.bytes for u in c.writes) == whole]
    assert [[u.bytes for u in c.reads] for c in copies] == [[whole - row, row]] * 2
    assert [work_of(c.case).read_bytes for c in copies] == [whole] * 2


def test_attention_nodes_of_a_file_are_calls(tmp_path):
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    def value(name, shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    rotate = helper.make_node("RotaryEmbedding", ["q", "cos", "sin"], ["r"], num_heads=4)
    attend = helper.make_node("Attention", ["r", "k", "v"], ["a"], q_num_heads=4, kv_num_heads=2, is_causal=1)
    again = helper.make_node(
        "MultiHeadAttention", ["a", "a", "a"], ["y"], num_heads=4, domain="com.microsoft", name="/layers.0/attention/y"
    )
    graph = helper.make_graph(
        [rotate, attend, again], "g",
        [value("q", [2, 10, 64]), value("k", [2, 10, 32]), value("v", [2, 10, 32]),
         value("cos", [2, 10, 8]), value("sin", [2, 10, 8])], [value("y", [2, 10, 64])],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    path = tmp_path / "attention.onnx"
    onnx.save(helper.make_model(graph, opset_imports=imports), str(path))
    workload = capture_onnx(path)
    assert workload.uncovered_counts() == {}
    rotary, first, second = (call.case.record() for call in workload.calls)
    assert (rotary["op"], rotary["heads"], rotary["dim"]) == ("rotary_embedding", 4, 16)
    assert (first["heads"], first["kv_heads"], first["causal"]) == (4, 2, True)
    assert (second["heads"], second["kv"], second["dim"]) == (4, 10, 16)
