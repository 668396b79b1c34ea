"""Sound as codes: a token of every codebook at each time."""

from typing import Any

from nearpeak.capture._ask import DEFAULT_TOKENS, Ask, Recipe
from nearpeak.capture.recipes.tokens import input_ids

_FRAMES = 16


def tokens(ask: Ask) -> Any:
    """Return (batch, times, codebooks and one more for text), or text where only the decoder has codes."""
    if ask.model_type in ("dia", "musicgen", "musicgen_melody"):
        return input_ids(ask)
    return ask.filled(ask.batch, DEFAULT_TOKENS, int(ask.setting("num_codebooks")) + 1)


def decoder_tokens(ask: Ask) -> Any:
    """Return (batch, times, codebooks), or the codebooks of all examples in a row."""
    if ask.model_type != "dia":
        return ask.filled(ask.batch * int(ask.setting("num_codebooks")), _FRAMES)
    return ask.filled(ask.batch, _FRAMES, int(ask.config.decoder_config.num_channels))


RECIPE = Recipe(
    gives={
        "input_ids": tokens, "decoder_input_ids": decoder_tokens, "input_values": lambda _: None,
        "input_features": lambda _: None,
    },
    model_types=frozenset({"dia", "kyutai_speech_to_text", "musicgen", "musicgen_melody"}),
)  # fmt: skip
