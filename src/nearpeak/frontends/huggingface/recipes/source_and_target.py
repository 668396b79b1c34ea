"""Input recipe for image generation: source images, with grids of source and target images."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe
from nearpeak.frontends.huggingface.recipes.image import packed

_SIDE = 16


def grids(ask: Ask) -> Any:
    """Return (2 * batch, 3): steps, rows and columns of patches of a source and of a target for each example."""
    return ask.whole([[1, _SIDE, _SIDE]] * 2 * ask.batch)


def sources(ask: Ask) -> Any:
    """Return (patches of all sources, values of a patch)."""
    return packed(ask, ask.whole([[1, _SIDE, _SIDE]] * ask.batch))


def counts(ask: Ask) -> Any:
    """Return (batch,): images of each example, the target included."""
    return ask.filled(ask.batch, value=2)


RECIPE = Recipe(
    gives={"image_grid_thw": grids, "pixel_values": sources, "images_per_sample": counts},
    model_types=frozenset({"glm_image"}),
)
