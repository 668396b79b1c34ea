"""Input recipe for image patches folded into depth, and spectrograms of integer classes."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe
from nearpeak.frontends.huggingface.recipes.image import channels, patch_extents

_PATCHES, _FRAMES = 16, 50


def patches(ask: Ask) -> Any:
    """Return (patches of all images, frames, height and width of a patch, colours)."""
    return ask.floats(ask.batch * _PATCHES, *patch_extents(ask), channels(ask))


def sound(ask: Ask) -> Any:
    """Return (recordings, frames, bins): the class of each value of a spectrogram."""
    return ask.filled(ask.batch, _FRAMES, int(ask.setting("n_mel_bins", kind="audio")))


RECIPE = Recipe(gives={"pixel_values": patches, "audio_input_ids": sound}, model_types=frozenset({"inkling_mm_model"}))
