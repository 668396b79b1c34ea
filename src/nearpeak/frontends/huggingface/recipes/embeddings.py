"""Input recipe for embeddings of another model, where a model requires them."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import DEFAULT_TOKENS, Ask, Recipe


def _needed(name: str) -> Any:
    def embeddings(ask: Ask) -> Any:
        needed = ask.parameters[name] or (name == "inputs_embeds" and ask.hints.get("embedded"))
        width = int(ask.setting("hidden_size", kind="text"))
        return (
            ask.floats(
                ask.batch,
                DEFAULT_TOKENS,
                width * (len(ask.setting("target_layer_ids", default=(0,))) if name == "context_hidden_states" else 1),
            )
            if needed
            else None
        )

    return embeddings


RECIPE = Recipe(gives={name: _needed(name) for name in ("inputs_embeds", "noise_embeds", "context_hidden_states")})
