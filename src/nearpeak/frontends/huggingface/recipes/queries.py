"""Input recipe for query transformers: learned queries and the image features that they attend to."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe

_QUERIES, _PATCHES = 32, 257


def query_embeds(ask: Ask) -> Any:
    """Return (batch, queries, width)."""
    return ask.floats(ask.batch, _QUERIES, int(ask.config.hidden_size))


def encoder_hidden_states(ask: Ask) -> Any:
    """Return (batch, patches, width of the vision tower): what the queries look at."""
    return ask.floats(ask.batch, _PATCHES, int(ask.config.encoder_hidden_size))


RECIPE = Recipe(
    gives={"query_embeds": query_embeds, "encoder_hidden_states": encoder_hidden_states},
    model_types=frozenset({"blip_2_qformer"}),
)
