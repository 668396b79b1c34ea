"""Experts of Llama 4: routed tokens give what transformers computes, and a token reads the experts that it needs."""

import pytest

from nearpeak.frontends.huggingface.routed_experts import route_tokens

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

CONFIG = {
    "hidden_size": 32, "intermediate_size": 64, "intermediate_size_mlp": 64, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 64, "num_local_experts": 4,
}  # fmt: skip


@pytest.mark.parametrize("top_k", [1, 2])
def test_routed_experts_compute_what_the_published_layer_computes(top_k):
    from transformers.models.llama4.modeling_llama4 import Llama4TextMoe

    torch.manual_seed(0)
    layer = Llama4TextMoe(transformers.Llama4TextConfig(**CONFIG, num_experts_per_tok=top_k)).to(torch.bfloat16)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    tokens = torch.randn(2, 5, 32, dtype=torch.bfloat16)
    with torch.no_grad():
        wanted, wanted_logits = layer(tokens)
        route_tokens(layer)
        got, logits = layer(tokens)
    assert torch.equal(logits, wanted_logits)
    assert torch.allclose(got.float(), wanted.float(), rtol=0.05, atol=0.05 * float(wanted.float().std()))
