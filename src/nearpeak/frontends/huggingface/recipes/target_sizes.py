"""Input recipe for images packed into one row of patches, with the size of each image."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe
from nearpeak.frontends.huggingface.recipes.image import channels, patch_extents

_SIDE = 16


def strip(ask: Ask) -> Any:
    """Return (1, colours, height of a patch, width of all patches side by side)."""
    _, height, width = patch_extents(ask)
    return ask.floats(1, channels(ask), height, ask.batch * _SIDE * _SIDE * width)


def sizes(ask: Ask) -> Any:
    """Return (images, 2): rows and columns of patches."""
    return ask.filled(ask.batch, 2, value=_SIDE)


RECIPE = Recipe(
    gives={
        "pixel_values": strip, "pixel_values_videos": strip, "target_sizes": sizes, "target_sizes_videos": sizes,
    },
    model_types=frozenset({
        "minicpm_ocr", "minicpm_ocr_vision", "minicpmv4_6", "minicpmv4_7", "minicpmv4_7_vision",
    }),
)  # fmt: skip
