"""Input recipe for spectrograms of fixed length that are read like images."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe


def input_values(ask: Ask) -> Any:
    """Return (batch, frames, bins)."""
    return ask.floats(ask.batch, int(ask.config.max_length), int(ask.config.num_mel_bins))


def input_features(ask: Ask) -> Any:
    """Return (batch, 1, frames, bins): ten seconds at 48,000 samples per second, a frame for every 480."""
    return ask.floats(ask.batch, 1, 1001, int(ask.setting("num_mel_bins", kind="audio")))


RECIPE = Recipe(
    gives={"input_values": input_values, "input_features": input_features},
    model_types=frozenset({"audio-spectrogram-transformer", "clap"}),
)
