"""Input recipe for audio codes or latents with placeholder tokens in the text."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import DEFAULT_TOKENS, Ask, Recipe
from nearpeak.frontends.huggingface.recipes.tokens import plain_token

_FRAMES = 16
_PLACEHOLDERS = {
    "audio_input_ids": "audio_token_id", "audio_prompt_latents": "audio_prompt_token_id",
    "audio_latents": "audio_latent_token_id",
}  # fmt: skip


def tokens(ask: Ask) -> Any:
    """Return (batch, tokens): the placeholders of each kind of sound that the model takes, then text."""
    kinds = [getattr(ask.config, token) for name, token in _PLACEHOLDERS.items() if name in ask.parameters]
    row = [token for token in kinds for _ in range(_FRAMES)]
    return ask.whole([row + [plain_token(ask)] * (ask.sequence or DEFAULT_TOKENS)] * ask.batch)


def codes(ask: Ask) -> Any:
    """Return (batch, frames, codebooks)."""
    return ask.filled(ask.batch, _FRAMES, int(ask.setting("num_codebooks")))


def _latents(projection: str) -> Any:
    def latents(ask: Ask) -> Any:
        """Return (batch, frames, width of a latent): what the projection of that name takes."""
        named = (m for name, m in ask.model.named_modules() if name.rsplit(".", 1)[-1] == projection)
        width = getattr(next(named, None), "in_features", ask.config.latent_dim)
        return ask.floats(ask.batch, _FRAMES, int(width))

    return latents


RECIPE = Recipe(
    gives={
        "input_ids": tokens, "audio_input_ids": codes, "audio_prompt_latents": _latents("audio_prompt_proj"),
        "audio_latents": _latents("audio_latent_proj"),
    },
    model_types=frozenset({"higgs_audio_v2", "pocket_tts", "gradium_phonon_tts"}),
)  # fmt: skip
