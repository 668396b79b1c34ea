"""Input recipe for decoder tokens of encoder-decoder models."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe
from nearpeak.frontends.huggingface.recipes.tokens import plain_token

_TOKENS = 16


def decoder_input_ids(ask: Ask) -> Any:
    """Return (batch, tokens)."""
    return ask.tokens(ask.batch, int(ask.setting("decoder_sequence", default=_TOKENS)), value=plain_token(ask))


RECIPE = Recipe(gives={"decoder_input_ids": decoder_input_ids})
