"""Input recipe for images as rows of patches without a grid."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe
from nearpeak.frontends.huggingface.recipes.image import channels, packed, patch_extents

_PATCHES = 64


def pixel_values(ask: Ask) -> Any:
    """Return (batch, patches, values of a patch), or all patches in one row."""
    _, height, width = patch_extents(ask)
    if ask.model_type == "colqwen2":  # padded to the longest image of the batch, beside a grid
        return packed(ask, ask.given("image_grid_thw")).unflatten(0, (ask.batch, -1))
    shape = (ask.batch * _PATCHES,) if ask.model_type == "neomme" else (ask.batch, _PATCHES)
    return ask.floats(*shape, channels(ask) * height * width)


RECIPE = Recipe(gives={"pixel_values": pixel_values}, model_types=frozenset({"fuyu", "neomme", "colqwen2"}))
