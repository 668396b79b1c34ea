"""Input recipe for speech-generating submodels: embeddings of the language model, audio codes and a voice."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import DEFAULT_TOKENS, Ask, Recipe

_CODES, _FRAMES = 16, 32


def embedded(ask: Ask) -> Any:
    """Return (batch, tokens, width), for a part that speaks of what another one thought."""
    if "inputs_embeds" not in ask.parameters:
        return None
    width = ask.setting("embedding_size", "hidden_size", kind="text")
    return ask.floats(ask.batch, ask.sequence or DEFAULT_TOKENS, int(width))


def code(ask: Ask) -> Any:
    """Return (batch, codes)."""
    return ask.filled(ask.batch, _CODES)


def voice(ask: Ask) -> Any:
    """Return (batch, width): the embedding of a voice."""
    return ask.floats(ask.batch, int(ask.setting("enc_emb_dim")))


def spoken(ask: Ask) -> Any:
    """Return (batch, frames, bins): a spectrogram of that voice, as long as what is said."""
    frames = _CODES * int(ask.setting("repeats", default=2))
    return ask.floats(ask.batch, frames, int(ask.setting("mel_dim")))


RECIPE = Recipe(
    gives={
        "inputs_embeds": embedded, "input_ids": lambda _: None, "code": code, "conditioning": voice,
        "reference_mel": spoken,
    },
    model_types=frozenset({"qwen2_5_omni_talker", "qwen2_5_omni_token2wav", "qwen3_omni_moe_talker"}),
)  # fmt: skip
