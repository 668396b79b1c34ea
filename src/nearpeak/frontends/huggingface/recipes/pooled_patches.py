"""Input recipe for image crops as flat patches, with the patches that each embedding pools."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe
from nearpeak.frontends.huggingface.recipes.image import channels, patch_extents, size

_POOL = 2


def _patches(ask: Ask) -> tuple[int, int]:
    """Return rows and columns of the patches of a crop."""
    _, height, width = patch_extents(ask)
    return size(ask)[0] // height, size(ask)[1] // width


def crops(ask: Ask) -> Any:
    """Return (crops, patches, values of a patch): the whole view of each image and one crop of it."""
    _, height, width = patch_extents(ask)
    rows, columns = _patches(ask)
    return ask.floats(2 * ask.batch, rows * columns, channels(ask) * height * width)


def grids(ask: Ask) -> Any:
    """Return (images, 4): rows and columns of embeddings of the whole view, and of the crop."""
    rows, columns = (-(-extent // _POOL) for extent in _patches(ask))
    return ask.whole([[rows, columns, rows, columns]] * ask.batch)


def pooled(ask: Ask) -> Any:
    """Return (embeddings, patches pooled for each): numbers of patches, counted through all crops."""
    count = int(grids(ask)[0, 0] * grids(ask)[0, 1]) * 2 * ask.batch
    return ask.filled(count, _POOL * _POOL)


RECIPE = Recipe(
    gives={
        "pixel_values": crops, "image_grids": grids, "image_token_pooling": pooled,
        "image_num_crops": lambda ask: ask.filled(ask.batch, value=2), "pixel_values_videos": lambda _: None,
    },
    model_types=frozenset({"molmo2"}),
)  # fmt: skip
