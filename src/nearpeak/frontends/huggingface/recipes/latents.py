"""Input recipe for decoders of audio codecs, which take an encoder's latents."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe
from nearpeak.frontends.huggingface.recipes.audio import input_values

_FRAMES = 25


def latents(ask: Ask) -> Any:
    """Return (batch, width, frames)."""
    return ask.floats(ask.batch, int(ask.setting("latent_dim", "hidden_size", "dimension")), _FRAMES)


def hidden_states(ask: Ask) -> Any:
    """Return (batch, width, frames) for a decoder, (batch, 1, samples) for an encoder."""
    if ask.model_type.endswith("encoder"):
        return ask.floats(ask.batch, 1, 19_200)
    return ask.floats(ask.batch, int(ask.setting("hidden_size")), _FRAMES)


RECIPE = Recipe(
    gives={"latents": latents, "hidden_states": hidden_states, "input_values": input_values},
    model_types=frozenset({
        "mimi_decoder", "pocket_tts_audio_tokenizer_decoder", "vibevoice_acoustic_tokenizer_decoder",
        "vibevoice_acoustic_tokenizer_encoder",
    }),
)  # fmt: skip
