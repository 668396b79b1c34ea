"""Experts of Llama 4 as servers run them: each token goes to the experts that its router picked, not through all."""

# transformers multiplies every token, scaled by zero where another expert was picked, with the weights of every expert,
# and says that this is not meant to be run. The result is the same: experts have no biases, so that zeros stay zeros.
# Source: Meta 2025, github.com/meta-llama/llama-models, models/llama4/moe.py.

from types import MethodType
from typing import Any

_DENSE = "Llama4TextMoe"
"""Class of the layers in transformers."""
ROUTED_TYPES = ("llama4", "llama4_text")
"""Types of models that have them."""
ROUTING_NOTE = (
    "Experts compute the tokens that their router sends them, as servers do; transformers sends every token to all."
)


def route_tokens(model: Any) -> None:
    """Let the layers of experts of a model compute what their router picked."""
    for module in model.modules():
        if type(module).__name__ == _DENSE:
            module.forward = MethodType(_routed, module)


def _routed(layer: Any, hidden_states: Any) -> tuple[Any, Any]:
    """Return the output and the scores of a layer, as its class does."""
    import torch

    tokens = hidden_states.reshape(-1, layer.hidden_dim)
    logits = torch.nn.functional.linear(tokens, layer.router.weight)
    scores, experts = torch.topk(logits, layer.top_k, dim=1)
    sorted_experts, order = torch.sort(experts.reshape(-1))
    counts = torch.histc(sorted_experts.float(), bins=layer.num_experts, min=0, max=layer.num_experts - 1)
    ends = torch.cumsum(counts, dim=0, dtype=torch.int32)
    scales = torch.sigmoid(scores.float()).to(tokens.dtype).reshape(-1)[order]
    picked = tokens[order // layer.top_k] * scales[:, None]
    gate, up = torch._grouped_mm(picked, layer.experts.gate_up_proj, offs=ends).chunk(2, dim=-1)
    outputs = torch._grouped_mm(up * layer.experts.act_fn(gate), layer.experts.down_proj, offs=ends)
    places = torch.empty_like(order)
    places[order] = torch.arange(order.shape[0])
    summed = outputs[places].view(-1, layer.top_k, layer.hidden_dim).sum(dim=1)
    return layer.shared_expert(tokens) + summed, logits
