"""Input recipe for waveforms that the model's own codec tokenizes, with the end of each recording."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import DEFAULT_TOKENS, Ask, Recipe
from nearpeak.frontends.huggingface.recipes.tokens import plain_token

_FRAMES, _SAMPLES_PER_FRAME = 10, 1920
"""Ten frames of the codec, at 12.5 frames for each 24,000 samples."""


def tokens(ask: Ask) -> Any:
    """Return (batch, tokens): a placeholder for each frame of sound, then text."""
    text = [plain_token(ask)] * (ask.sequence or DEFAULT_TOKENS)
    return ask.whole([[ask.config.audio_token_id] * _FRAMES + text] * ask.batch)


def sound(ask: Ask) -> Any:
    """Return (batch, 1, samples)."""
    return ask.floats(ask.batch, 1, _FRAMES * _SAMPLES_PER_FRAME)


def ends(ask: Ask) -> Any:
    """Return (batch, recordings): the sample at which each recording ends."""
    return ask.whole([[_FRAMES * _SAMPLES_PER_FRAME]] * ask.batch)


RECIPE = Recipe(
    gives={"input_ids": tokens, "input_values": sound, "input_values_cutoffs": ends}, model_types=frozenset({"csm"})
)
