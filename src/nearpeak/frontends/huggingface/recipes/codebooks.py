"""Input recipe for audio codes: one token of every codebook per time step."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import DEFAULT_TOKENS, Ask, Recipe
from nearpeak.frontends.huggingface.recipes.tokens import input_ids

_FRAMES, _SAMPLES = 16, 19_200


def tokens(ask: Ask) -> Any:
    """Return (batch, times, codebooks and one more for text), or text where only the decoder has codes."""
    if ask.model_type in ("dia", "musicgen", "musicgen_melody"):
        return input_ids(ask)
    if ask.model_type == "fine_acoustics":
        return ask.filled(ask.batch, DEFAULT_TOKENS, int(ask.config.n_codes_total))
    return ask.filled(ask.batch, DEFAULT_TOKENS, int(ask.setting("num_codebooks")) + 1)


def decoder_tokens(ask: Ask) -> Any:
    """Return (batch, times, codebooks), or the codebooks of all examples in a row; none where sound is continued."""
    if ask.model_type == "musicgen":
        return None
    if ask.model_type != "dia":
        return ask.filled(ask.batch * int(ask.setting("num_codebooks")), _FRAMES)
    return ask.filled(ask.batch, _FRAMES, int(ask.config.decoder_config.num_channels))


def continued(ask: Ask) -> Any:
    """Return (batch, 1, samples): the sound that goes on, which a codec inside the model turns into codes."""
    return ask.floats(ask.batch, 1, _SAMPLES) if ask.model_type == "musicgen" else None


def melody(ask: Ask) -> Any:
    """Return (batch, frames, pitches): how loud each pitch of a melody is."""
    if ask.model_type != "musicgen_melody":
        return None
    return ask.floats(ask.batch, int(ask.setting("chroma_length")), int(ask.setting("num_chroma")))


RECIPE = Recipe(
    gives={
        "input_ids": tokens, "decoder_input_ids": decoder_tokens, "input_values": continued,
        "input_features": melody,
    },
    model_types=frozenset({"dia", "fine_acoustics", "kyutai_speech_to_text", "musicgen", "musicgen_melody"}),
)  # fmt: skip
