"""Input recipe for encoders that take a spectrogram as `audio_mel`, with a mask of frames."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe

_FRAMES = 400


def audio_mel(ask: Ask) -> Any:
    """Return (batch, frames, bins)."""
    return ask.floats(ask.batch, _FRAMES, int(ask.setting("input_feat_size", kind="audio")))


def audio_mel_mask(ask: Ask) -> Any:
    """Return (batch, frames) of false: no frame is padding."""
    return ask.filled(ask.batch, _FRAMES, value=0).bool()


RECIPE = Recipe(gives={"audio_mel": audio_mel, "audio_mel_mask": audio_mel_mask})
