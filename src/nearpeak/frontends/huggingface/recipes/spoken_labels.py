"""Training labels of text-to-speech models: token durations, pitch, energy and spectrogram."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe

_FRAMES_PER_TOKEN = 4


def durations(ask: Ask) -> Any:
    """Return (batch, tokens): frames of each token, which decide how long the speech is."""
    return ask.filled(*ask.given("input_ids").shape, value=_FRAMES_PER_TOKEN)


def of_tokens(ask: Ask) -> Any:
    """Return (batch, tokens, 1): a number for each token."""
    return ask.floats(*ask.given("input_ids").shape, 1)


def spectrogram(ask: Ask) -> Any:
    """Return (batch, frames, bins)."""
    batch, tokens = ask.given("input_ids").shape
    return ask.floats(batch, tokens * _FRAMES_PER_TOKEN, int(ask.setting("num_mel_bins", default=80)))


RECIPE = Recipe(gives={
    "duration_labels": durations, "pitch_labels": of_tokens, "energy_labels": of_tokens,
    "spectrogram_labels": spectrogram,
})  # fmt: skip
