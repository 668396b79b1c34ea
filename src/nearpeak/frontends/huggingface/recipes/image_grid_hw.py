"""Input recipe for packed patches with the height and width of each image in patches."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe
from nearpeak.frontends.huggingface.recipes.image import channels, patch_extents

_SIDE = 16


def image_grid_hw(ask: Ask) -> Any:
    """Return (images, 2): rows and columns of patches."""
    return ask.filled(ask.batch, 2, value=_SIDE)


def pixel_values(ask: Ask) -> Any:
    """Return (patches of all images, values of a patch)."""
    _, height, width = patch_extents(ask)
    return ask.floats(ask.batch * _SIDE * _SIDE, channels(ask) * height * width)


RECIPE = Recipe(
    gives={
        "image_grid_hw": image_grid_hw, "pixel_values": pixel_values,
        "pixel_values_videos": lambda _: None,  # transformers joins a list of videos where its own method returns one
        "input_features": lambda _: None,  # its default configuration has no part that hears
    },
    model_types=frozenset({"nemotron_h_omni"}),
)  # fmt: skip
